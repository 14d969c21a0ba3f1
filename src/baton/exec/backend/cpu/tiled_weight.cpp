#include "baton/exec/backend/cpu/tiled_weight.h"

#include <optional>
#include <variant>

#include "baton/op/traits.h"

namespace baton::exec::cpu {
namespace {

/// The first `output_axes` axes of a weight are its outputs.
MemoryLayout tiled(std::string name, std::size_t output_axes) {
  const auto outputs_of = [output_axes](const Shape& shape) {
    std::int64_t outputs = 1;
    for (std::size_t axis = 0; axis < std::min(output_axes, shape.rank()); ++axis) {
      outputs *= shape[axis];
    }
    return outputs;
  };
  return {.name = std::move(name),
          .position =
              [outputs_of](const Shape& shape, std::int64_t index) {
                const std::int64_t out = outputs_of(shape);
                const std::int64_t in = shape.elements() / out;
                return TiledWeight::offset(out, in, index / in, index % in);
              },
          .index =
              [outputs_of](const Shape& shape, std::int64_t position) {
                const std::int64_t out = outputs_of(shape);
                const std::int64_t in = shape.elements() / out;
                const auto [row, column] = TiledWeight::element(out, in, position);
                return row * in + column;
              }};
}

}  // namespace

std::string wanted_layout(const plan::Task& task, BufferId operand) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  const std::optional<op::WeightOperand> weight = compute == nullptr ? std::nullopt : op::weight_operand(compute->op);
  if (!weight || (weight->written ? task.writes : task.reads)[weight->operand] != operand) {
    return "";
  }
  return weight->output_axes == 2 ? "tiled_heads" : "tiled";
}

std::vector<MemoryLayout> tiled_layouts() { return {tiled("tiled", 1), tiled("tiled_heads", 2)}; }

}  // namespace baton::exec::cpu
