#pragma once

#include <span>
#include <string>

#include "baton/base/units.h"

namespace baton::findings {

/// How a device came to the collectives it is a member of, in the mean over steps.
struct ArrivalStats {
  std::string name;
  double last_share = 0;       // of the collectives: it came last
  Nanoseconds held_up;         // per step: how long all others waited for it alone
  std::string phase;           // in which it took longest beyond the others,
  Nanoseconds excess;          // by this much per step
  std::int64_t steps = 0;      // that were looked at; 0: not said
  std::int64_t latest_in = 0;  // of these: the others waited longest for it
};

/// The chance that one of `devices` equal ones is the one that the others wait for longest in at least `latest_in` of
/// `steps`.
double chance_of_latest(std::int64_t latest_in, std::int64_t steps, std::size_t devices);

/// The device that the others waited for most in the steps that were looked at: of the time that one device held all others up,
/// clearly more is its own than chance makes it, and it costs the others a twentieth of the step. None if no device does, or fewer
/// than two meet. Time decides and not how often a device came last: after one late arrival all come to the next collectives
/// together.
const ArrivalStats* most_waited_for(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

/// The same if it was the one waited for longest in more steps than chance explains, so that the next steps can be expected to be
/// alike.
const ArrivalStats* latest(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

/// Names the device that keeps the others waiting, how long and in which phase it is slow; or says that there
/// is none. Empty where fewer than two meet.
std::string straggler(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

}  // namespace baton::findings
