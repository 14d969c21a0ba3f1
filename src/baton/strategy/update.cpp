#include <fmt/format.h>

#include <map>

#include "baton/base/error.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::Draft;
using plan::ParameterPart;
using plan::Phase;
using plan::Role;
using plan::Task;

plan::Draft add_updates(plan::Draft draft, const op::Optimizer& optimizer) {
  struct Group {
    std::vector<BufferId> gradients;
    std::vector<BufferId> parameters;
    std::int32_t stage = -1;
  };
  std::map<std::pair<DeviceId, std::uint32_t>, BufferId> gradients;
  std::map<std::uint32_t, plan::Labels> labels_of;
  for (const Task& task : draft.tasks) {
    for (const BufferId id : task.writes) {
      const auto* part = std::get_if<ParameterPart>(&draft[id].content);
      if (part != nullptr && draft[id].role == Role::gradient) {
        gradients[{draft[id].device, part->ordinal}] = id;
        labels_of.try_emplace(part->ordinal, task.labels);
      }
    }
  }
  // The last block's gradients are final first, so its update comes first.
  std::map<std::pair<std::int32_t, DeviceId>, Group, std::greater<>> groups;
  for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
    const Buffer& buffer = draft.buffers[b];
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    if (part == nullptr || buffer.role != Role::parameter || !buffer.persistent) {
      continue;
    }
    const auto gradient = gradients.find({buffer.device, part->ordinal});
    check(gradient != gradients.end(), "{} has no gradient on device {}", part->name, buffer.device.value);
    Group& group = groups[{labels_of[part->ordinal].block, buffer.device}];
    group.stage = labels_of[part->ordinal].stage;
    group.gradients.push_back(gradient->second);
    group.parameters.push_back(BufferId(b));
  }
  for (const auto& [key, group] : groups) {
    Task task{.action = plan::Update{optimizer},
              .device = key.second,
              .labels = {.phase = Phase::update, .block = key.first, .stage = group.stage},
              .reads = group.gradients,
              .writes = group.parameters,
              .after = {}};
    for (const BufferId parameter : group.parameters) {
      for (std::size_t slot = 0; slot < op::state_slots(optimizer); ++slot) {
        Buffer state = draft[parameter];
        state.role = Role::optimizer_state;
        state.label = fmt::format("state {} of {}", slot, state.label);
        std::get<ParameterPart>(state.content).slot = static_cast<std::uint32_t>(slot);
        task.writes.push_back(draft.add(state));
      }
    }
    task.reads.insert(task.reads.end(), task.writes.begin(), task.writes.end());
    draft.tasks.push_back(std::move(task));
  }
  return draft;
}

}  // namespace baton::strategy
