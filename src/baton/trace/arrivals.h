#pragma once

#include <array>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// The delay of one device's arrivals at collectives, summed over steps.
struct Arrivals {
  std::int64_t collectives = 0;           // collectives that it was a member of
  std::int64_t last = 0;                  // collectives at which it arrived last
  Nanoseconds held_up;                    // how long all other members of those waited for it alone
  std::array<Nanoseconds, 3> by_phase{};  // time of its computations and delays, by phase

  Arrivals& operator+=(const Arrivals& other);
};
/// Per device, for one step.
std::vector<Arrivals> arrivals(const plan::Plan& plan, const StepTrace& step);

/// The phase in which a device was slowest relative to the others of its collectives, and how much longer it took
/// than their median. Empty if there are no others.
struct Excess {
  plan::Phase phase = plan::Phase::forward;
  Nanoseconds time;
};
Excess excess(const plan::Plan& plan, const std::vector<Arrivals>& all, DeviceId device);

}  // namespace baton::trace
