#pragma once

#include <span>
#include <vector>

#include "baton/base/units.h"
#include "baton/ranks/world.h"

namespace baton::ranks {

/// A question to another rank for its time, and the answer.
struct Echo {
  Nanoseconds asked;     // when it was asked, on the clock of rank 0
  Nanoseconds there;     // when the other rank answered, on its own clock
  Nanoseconds answered;  // when the answer came, on the clock of rank 0
};

/// The offset of another rank's clock from rank 0's at one moment of rank 0's clock.
struct ClockReading {
  Nanoseconds at;
  Nanoseconds offset;
  Nanoseconds error;  // at most: half of the time that the answer took
};
/// Takes the quickest answer, because its error is the smallest.
ClockReading read_clock(std::span<const Echo> echoes);

/// The offset of another rank's clock over a run, with a constant drift between the two clocks.
struct ClockFit {
  ClockReading first;
  double drift = 0;   // nanoseconds per nanosecond
  Nanoseconds error;  // the larger of the errors of the offset at the first and at the last reading

  /// Converts a time of the other clock to rank 0's clock.
  Nanoseconds on_rank_0(Nanoseconds there) const;
};
ClockFit fit_clock(const ClockReading& before, const ClockReading& after);

/// The clock of each rank, by rank; only rank 0 gets them. All ranks call it. Ranks of one machine have one clock, so those of rank
/// 0's machine are asked only if `all`.
std::vector<ClockReading> read_clocks(World& world, bool all = false);

}  // namespace baton::ranks
