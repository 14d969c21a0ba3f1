#pragma once

#include <string_view>
#include <vector>

#include "baton/base/ids.h"
#include "baton/base/units.h"

namespace baton::trace {

/// Measured or simulated. The label stays with the numbers in every table and file.
enum class Origin : std::uint8_t { measured, simulated };
constexpr std::string_view to_text(Origin origin) { return origin == Origin::measured ? "measured" : "simulated"; }

/// The start and the end of one task. A task of a meeting starts when it arrives at the meeting and ends when its part is
/// over, so the time until the last member's start was spent waiting for that member.
struct Event {
  Nanoseconds start;  // time since the start of the step
  Nanoseconds end;
  Bytes sent;
  Bytes received;
};

/// One run of a plan: one event per task, in the plan's order. It lasts from before the first task to after the last
/// one, with every device finished.
struct StepTrace {
  Nanoseconds duration;
  std::vector<Event> events;
};

struct Trace {
  Origin origin = Origin::measured;
  std::vector<StepTrace> steps;
};

}  // namespace baton::trace
