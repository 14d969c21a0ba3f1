#include <map>

#include "baton/base/error.h"
#include "baton/op/traits.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::ParameterPart;
using plan::Task;

plan::Draft set_layouts(plan::Draft draft, const plan::Target& target) {
  if (!target.layout) {
    return draft;
  }
  std::map<std::uint32_t, std::string> layouts;  // by ordinal
  for (const Task& task : draft.tasks) {
    for (const std::vector<BufferId>* operands : {&task.reads, &task.writes}) {
      for (const BufferId id : *operands) {
        const auto* part = std::get_if<ParameterPart>(&draft[id].content);
        const std::string wanted = part == nullptr ? "" : target.layout(draft.buffers, task, id);
        if (wanted.empty()) {
          continue;
        }
        check(plan::is_layout_name(wanted), "a backend wants the memory layout '{}', which is not a valid name", wanted);
        const std::string& known = layouts.emplace(part->ordinal, wanted).first->second;
        check(known == wanted, "a backend wants {} laid out both as {} and as {}", part->name, known, wanted);
      }
    }
  }
  for (Buffer& buffer : draft.buffers) {
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    if (const auto found = part == nullptr ? layouts.end() : layouts.find(part->ordinal); found != layouts.end()) {
      buffer.layout = found->second;
    }
  }
  return draft;
}

plan::Draft use_tf32(plan::Draft draft) {
  for (Task& task : draft.tasks) {
    if (auto* compute = std::get_if<plan::Compute>(&task.action)) {
      compute->op = op::with_tf32(compute->op);
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
