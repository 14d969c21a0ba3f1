#include "baton/job/memory_by_purpose.h"

#include <algorithm>

namespace baton::job {
namespace {

std::int64_t& part_of(MemoryByPurpose& held, const plan::Buffer& buffer) {
  const bool parameter = std::holds_alternative<plan::ParameterPart>(buffer.content);
  switch (buffer.role) {
    case plan::Role::parameter:
    case plan::Role::statistic:
      return held.parameters;
    case plan::Role::optimizer_state:
      return held.states;
    case plan::Role::gradient:
      return parameter ? held.gradients : held.activations;
    case plan::Role::communication:
      return parameter ? held.parameters : held.communication;
    case plan::Role::activation:
    case plan::Role::input:
    case plan::Role::target:
      return parameter ? held.parameters : held.activations;
    default:
      return held.other;
  }
}

}  // namespace

std::vector<MemoryByPurpose> memory_at_peak(const plan::Plan& plan) {
  const std::size_t never = plan.tasks().size();
  std::vector<std::size_t> first(plan.buffers().size(), never);
  std::vector<std::size_t> last(plan.buffers().size(), 0);
  const auto touched = [&](const plan::Task& task, auto visit) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        visit(id.index());
      }
    }
  };
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    touched(plan.tasks()[i], [&](std::size_t b) {
      first[b] = std::min(first[b], i);
      last[b] = i;
    });
  }
  std::vector<MemoryByPurpose> now(plan.devices().size());
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan.buffers()[b];
    if (buffer.persistent && first[b] != never) {
      part_of(now[buffer.device.index()], buffer) += buffer.size().count;
    }
  }
  std::vector<MemoryByPurpose> fullest = now;
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    const plan::Task& task = plan.tasks()[i];
    MemoryByPurpose& held = now[task.device.index()];
    touched(task, [&](std::size_t b) {
      if (first[b] == i && !plan.buffers()[b].persistent) {
        part_of(held, plan.buffers()[b]) += plan.buffers()[b].size().count;
        first[b] = never;  // once
      }
    });
    if (MemoryByPurpose& most = fullest[task.device.index()]; held.sum() + task.workspace.count > most.sum()) {
      most = held;
      most.other += task.workspace.count;
    }
    touched(task, [&](std::size_t b) {
      if (last[b] == i && !plan.buffers()[b].persistent) {
        part_of(held, plan.buffers()[b]) -= plan.buffers()[b].size().count;
        last[b] = never;  // once
      }
    });
  }
  return fullest;
}

}  // namespace baton::job
