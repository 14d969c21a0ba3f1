#pragma once

#include <span>
#include <string>

#include "baton/base/units.h"

namespace baton::findings {

/// The arrivals of a device at its collectives, on average over steps.
struct ArrivalStats {
  std::string name;
  double last_share = 0;       // share of the collectives at which it came last
  Nanoseconds held_up;         // per step: how long all others waited for it alone
  std::string phase;           // the phase in which it took longest beyond the others
  Nanoseconds excess;          // how much longer it took there, per step
  std::int64_t steps = 0;      // the number of steps that were looked at; 0: not said
  std::int64_t latest_in = 0;  // the number of these steps in which the others waited longest for it
};

/// The chance that one of `devices` equal ones is the one that the others wait for longest in at least `latest_in` of
/// `steps`.
double chance_of_latest(std::int64_t latest_in, std::int64_t steps, std::size_t devices);

/// The device that the others waited for most in the steps that were looked at: its part of the time in which one device held all
/// others up is clearly larger than chance explains, and it costs the others at least a twentieth of the step. None if there is no
/// such device, or fewer than two meet. Time decides, not how often a device came last: after one late arrival all arrive at the
/// next collectives together.
const ArrivalStats* most_waited_for(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

/// Returns the device that was waited for most, but only if it was the one waited for longest in more steps than chance explains,
/// so that the next steps can be expected to be alike. Otherwise nullptr.
const ArrivalStats* latest(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

/// Names the device that keeps the others waiting, how long and in which phase it is slow; or says that there
/// is none. Empty if fewer than two meet.
std::string straggler(std::span<const ArrivalStats> arrival_stats, Nanoseconds step);

}  // namespace baton::findings
