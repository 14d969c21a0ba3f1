#pragma once

#include <optional>
#include <span>
#include <string>

#include "baton/op/traits.h"
#include "baton/plan/target.h"

namespace baton::test {

/// A rule for `Target::layout` that wants weights, and nothing else, in tiles. The names are those of the cpu backend.
inline std::string tiled_weights(std::span<const plan::Buffer> /*buffers*/, const plan::Task& task, BufferId operand) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  const std::optional<op::WeightOperand> weight = compute == nullptr ? std::nullopt : op::weight_operand(compute->op);
  if (!weight || (weight->written ? task.writes : task.reads)[weight->operand] != operand) {
    return "";
  }
  return weight->output_axes == 2 ? "tiled_heads" : "tiled";
}

}  // namespace baton::test
