#pragma once

#include <cstdint>
#include <string_view>

#include "baton/base/units.h"
#include "baton/plan/task.h"

namespace baton::strategy {

/// A delay put into a step on purpose: before a phase's first computation, on one device or on all.
struct DelayRequest {
  plan::Phase before = plan::Phase::backward;
  std::int64_t device = -1;  // -1: every one
  Nanoseconds duration;
  bool operator==(const DelayRequest&) const = default;
};

/// `before=backward,device=all,ms=10`; `ms` may be replaced by `time=10ms`.
DelayRequest parse_delay(std::string_view text);

}  // namespace baton::strategy
