#pragma once

#include <span>

#include "baton/op/traits.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"

namespace baton::exec::cpu {

/// Rows, inputs and outputs of the product a task does.
inline op::ProductExtents extents_of(std::span<const plan::Buffer> buffers, const plan::Task& task) {
  const auto operands = [&](const std::vector<BufferId>& ids) {
    std::vector<op::Operand> list;
    for (const BufferId id : ids) {
      list.push_back({buffers[id.index()].shape, buffers[id.index()].dtype});
    }
    return list;
  };
  return *op::product_extents(std::get<plan::Compute>(task.action).op, operands(task.reads), operands(task.writes));
}

template <typename AnyOp>
concept ProductOp = std::same_as<AnyOp, op::Linear> || std::same_as<AnyOp, op::LinearBackwardInput> ||
    std::same_as<AnyOp, op::LinearBackwardWeight> || std::same_as<AnyOp, op::MatrixProduct>;

}  // namespace baton::exec::cpu
