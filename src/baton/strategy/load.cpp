#include <fmt/format.h>

#include <map>

#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Buffer;
using plan::Role;
using plan::Task;

plan::Draft load_ahead(plan::Draft draft) {
  std::map<DeviceId, Task> takes;
  const std::size_t count = draft.buffers.size();
  for (std::size_t b = 0; b < count; ++b) {
    if (!draft.buffers[b].persistent || (draft.buffers[b].role != Role::input && draft.buffers[b].role != Role::target)) {
      continue;
    }
    Buffer next = draft.buffers[b];
    next.label = fmt::format("next {}", next.label);
    draft.buffers[b].persistent = false;
    Task& take = takes[next.device];
    take.action = plan::Take{};
    take.device = next.device;
    take.writes.push_back(BufferId(b));
    take.reads.push_back(draft.add(std::move(next)));
  }
  std::vector<std::vector<Task>> insertions(draft.tasks.size() + 1);
  for (const auto& [device, take] : takes) {
    insertions[0].push_back(take);
    Task load{.action = plan::Load{}, .device = device, .lane = plan::Lane::host, .reads = {}, .writes = take.reads, .after = {}};
    insertions[0].push_back(std::move(load));
  }
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(insertions));
  return draft;
}

}  // namespace baton::strategy
