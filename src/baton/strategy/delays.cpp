#include "baton/strategy/delays.h"

#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::strategy {

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

}  // namespace baton::strategy
