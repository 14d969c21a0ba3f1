#pragma once

#include <span>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/ranks/world.h"

namespace baton::exec {

/// A question to another rank for its time, and the answer.
struct Echo {
  Nanoseconds asked;     // on rank 0's clock
  Nanoseconds there;     // on the other's
  Nanoseconds answered;  // on rank 0's
};

/// How far another rank's clock is ahead of rank 0's at one moment of that.
struct ClockReading {
  Nanoseconds at;
  Nanoseconds offset;
  Nanoseconds error;  // at most: half of the time that the answer took
};
/// From the quickest answer, since it leaves the least doubt about when the other clock was read.
ClockReading read_clock(std::span<const Echo> echoes);

/// The same over a run: two clocks of which one gains on the other evenly.
struct ClockFit {
  ClockReading first;
  double drift = 0;   // nanoseconds a nanosecond
  Nanoseconds error;  // of the offset at the first and at the last reading, the larger

  /// A moment of the other clock, on rank 0's.
  Nanoseconds on_rank_0(Nanoseconds there) const;
};
ClockFit fit_clock(const ClockReading& before, const ClockReading& after);

/// By rank, at rank 0. All ranks call it. Ranks of one machine have one clock, so those of rank 0's are asked only if `all`.
std::vector<ClockReading> read_clocks(World& world, bool all = false);

}  // namespace baton::exec
