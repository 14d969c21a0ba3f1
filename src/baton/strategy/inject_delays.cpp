#include <algorithm>

#include "baton/base/error.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Task;

plan::Draft inject_delays(plan::Draft draft, std::span<const DelayRequest> delays) {
  if (delays.empty()) {
    return draft;
  }
  std::vector<std::vector<Task>> insertions(draft.tasks.size() + 1);
  for (const DelayRequest& delay : delays) {
    if (delay.device >= static_cast<std::int64_t>(draft.devices.size())) {
      throw usage_error("a delay is asked for on device {}, but there are {} devices, from 0", delay.device, draft.devices.size());
    }
    for (std::size_t d = 0; d < draft.devices.size(); ++d) {
      if (delay.duration.count == 0 || (delay.device >= 0 && delay.device != static_cast<std::int64_t>(d))) {
        continue;
      }
      const auto at = std::find_if(draft.tasks.begin(), draft.tasks.end(), [&](const Task& task) {
        return task.device == DeviceId(d) && task.lane == plan::Lane::compute && task.labels.phase == delay.before;
      });
      if (at == draft.tasks.end()) {
        continue;  // a device that has no such phase is not delayed
      }
      insertions[static_cast<std::size_t>(at - draft.tasks.begin())].push_back({.action = plan::Delay{delay.duration},
                                                                                .device = DeviceId(d),
                                                                                .labels = {.phase = delay.before},
                                                                                .reads = {},
                                                                                .writes = {},
                                                                                .after = {}});
    }
  }
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(insertions));
  return draft;
}

}  // namespace baton::strategy
