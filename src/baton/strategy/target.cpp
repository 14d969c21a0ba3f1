#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::ParameterPart;
using plan::Task;

plan::Draft tile_weights(plan::Draft draft) {
  for (Buffer& buffer : draft.buffers) {
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    if (part != nullptr && part->whole.rank() == 2) {
      buffer.order = plan::Order::tiled;
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

plan::Draft set_workspaces(plan::Draft draft, const Target& target, const cluster::Cluster& cluster) {
  if (target.workspace) {
    for (Task& task : draft.tasks) {
      task.workspace = target.workspace(draft.buffers, task, cluster.device(task.device).cores.size());
    }
  }
  return draft;
}

}  // namespace baton::strategy
