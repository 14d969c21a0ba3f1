#include <algorithm>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {

using plan::Task;

DelayRequest parse_delay(std::string_view text) {
  DelayRequest request;
  bool timed = false;
  for_each_setting(text, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if ((key == "ms" || key == "time") && std::exchange(timed, true)) {
      throw usage_error("delay '{}' has both ms and time: give one of them", text);
    }
    if (key == "before") {
      const std::string phase = canonical(value);
      if (phase != "forward" && phase != "backward" && phase != "update") {
        throw usage_error("delay '{}' is before '{}', but must be before forward, backward or update", text, value);
      }
      request.before = phase == "forward"    ? plan::Phase::forward
                       : phase == "backward" ? plan::Phase::backward
                                             : plan::Phase::update;
    } else if (key == "device") {
      request.device = canonical(value) == "all" ? -1 : parse_integer(value, "the delayed device", 0, 1 << 20);
    } else if (key == "ms") {
      request.duration = Nanoseconds(static_cast<std::int64_t>(parse_number(value, "the delay in ms", 0, 60000) * 1e6));
    } else if (key == "time") {
      request.duration = parse_time(value, "the delay");
    } else {
      throw usage_error("delay '{}' has '{}', but a delay looks like before=backward,device=all,ms=10", text, setting);
    }
  });
  if (!timed) {
    throw usage_error("delay '{}' says no time: write before=backward,device=all,ms=10", text);
  }
  return request;
}

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
