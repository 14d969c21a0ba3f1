#include <map>

#include "baton/op/traits.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::ParameterPart;
using plan::Task;

plan::Draft tile_weights(plan::Draft draft) {
  std::map<std::uint32_t, plan::MemoryLayout> orders;  // by ordinal
  for (const Task& task : draft.tasks) {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    const std::optional<op::WeightOperand> weight = compute == nullptr ? std::nullopt : op::weight_operand(compute->op);
    if (weight) {
      const BufferId id = (weight->written ? task.writes : task.reads)[weight->operand];
      if (const auto* part = std::get_if<ParameterPart>(&draft[id].content)) {
        orders[part->ordinal] = weight->output_axes == 2 ? plan::MemoryLayout::tiled_heads : plan::MemoryLayout::tiled;
      }
    }
  }
  for (Buffer& buffer : draft.buffers) {
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    if (const auto found = part == nullptr ? orders.end() : orders.find(part->ordinal); found != orders.end()) {
      buffer.layout = found->second;
    }
  }
  return draft;
}

plan::Draft use_tf32(plan::Draft draft) {
  for (Task& task : draft.tasks) {
    if (auto* compute = std::get_if<plan::Compute>(&task.action)) {
      op::attributes(compute->op, [](std::string_view name, auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
          value = value || name == "tf32";
        }
      });
    }
  }
  return draft;
}

plan::Draft set_workspaces(plan::Draft draft, const plan::Target& target, const cluster::Cluster& cluster) {
  if (target.workspace) {
    for (Task& task : draft.tasks) {
      task.workspace = target.workspace(draft.buffers, task, cluster.device(task.device).cores.size());
    }
  }
  return draft;
}

}  // namespace baton::strategy
