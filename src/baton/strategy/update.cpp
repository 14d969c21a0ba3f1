#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "baton/base/error.h"
#include "baton/strategy/gradients.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::ParameterPart;
using plan::Phase;
using plan::Role;
using plan::Task;

plan::Draft add_updates(plan::Draft draft, const op::Optimizer& optimizer) {
  struct Updated {
    std::int32_t block;
    std::int32_t stage;
    DeviceId device;
    BufferId gradient;
    BufferId parameter;
  };
  const std::vector<Gradients> gradients = gradients_of_parameters(draft);
  std::vector<Updated> all;
  for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
    const Buffer& buffer = draft.buffers[b];
    const auto* part = std::get_if<ParameterPart>(&buffer.content);
    if (part == nullptr || buffer.role != Role::parameter || !buffer.persistent) {
      continue;
    }
    const Gradients::Copy* gradient = part->ordinal < gradients.size() ? gradients[part->ordinal].of(buffer.device) : nullptr;
    check(gradient != nullptr, "{} has no gradient on device {}", part->name, buffer.device.value);
    const plan::Labels& labels = draft.tasks[gradients[part->ordinal].first_writer].labels;
    all.push_back({labels.block, labels.stage, buffer.device, gradient->id, BufferId(b)});
  }
  // The last block's gradients are final first, so its update comes first.
  std::stable_sort(all.begin(), all.end(),
                   [](const Updated& a, const Updated& b) { return std::tie(b.block, b.device) < std::tie(a.block, a.device); });
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].block == all[begin].block && all[end].device == all[begin].device) {
      ++end;
    }
    Task task{.action = plan::Update{optimizer},
              .device = all[begin].device,
              .labels = {.phase = Phase::update, .block = all[begin].block, .stage = all[end - 1].stage},
              .reads = {},
              .writes = {},
              .after = {}};
    for (std::size_t i = begin; i < end; ++i) {
      task.reads.push_back(all[i].gradient);
      task.writes.push_back(all[i].parameter);
    }
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t slot = 0; slot < op::state_slots(optimizer); ++slot) {
        Buffer state = draft[all[i].parameter];
        state.role = Role::optimizer_state;
        state.label = fmt::format("state {} of {}", slot, state.label);
        std::get<ParameterPart>(state.content).slot = static_cast<std::uint32_t>(slot);
        task.writes.push_back(draft.add(std::move(state)));
      }
    }
    task.reads.insert(task.reads.end(), task.writes.begin(), task.writes.end());
    draft.tasks.push_back(std::move(task));
  }
  return draft;
}

}  // namespace baton::strategy
