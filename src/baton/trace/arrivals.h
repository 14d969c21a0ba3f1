#pragma once

#include <array>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// How one device came to the collectives of the steps that were added up.
struct Arrivals {
  std::int64_t collectives = 0;           // it was a member of
  std::int64_t last = 0;                  // of those: it came last
  Nanoseconds held_up;                    // how long all other members of those waited for it alone
  std::array<Nanoseconds, 3> by_phase{};  // what its computations and delays took, by phase

  Arrivals& operator+=(const Arrivals& other);
};
/// By device, of one step.
std::vector<Arrivals> arrivals(const plan::Plan& plan, const StepTrace& step);

/// The phase in which a device took longest beyond the others it meets in collectives, and how much longer
/// than the median of them. Nothing where there are no others.
struct Excess {
  plan::Phase phase = plan::Phase::forward;
  Nanoseconds time;
};
Excess excess(const plan::Plan& plan, const std::vector<Arrivals>& all, DeviceId device);

}  // namespace baton::trace
