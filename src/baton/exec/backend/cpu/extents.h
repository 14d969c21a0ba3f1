#pragma once

#include <span>

#include "baton/op/traits.h"
#include "baton/plan/plan.h"

namespace baton::exec::cpu {

/// Rows, inputs and outputs of the product a task does.
inline op::ProductExtents extents_of(std::span<const plan::Buffer> buffers, const plan::Task& task) {
  return *plan::product_extents(buffers, task);
}

template <typename AnyOp>
concept ProductOp = std::same_as<AnyOp, op::Linear> || std::same_as<AnyOp, op::LinearBackwardInput> ||
    std::same_as<AnyOp, op::LinearBackwardWeight> || std::same_as<AnyOp, op::MatrixProduct>;

}  // namespace baton::exec::cpu
