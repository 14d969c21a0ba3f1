#pragma once

#include <cstdint>
#include <vector>

#include "baton/schedule/grid.h"

namespace baton::schedule {

/// The times of each kind of action, the same on every stage, and of a transfer between two devices, in any unit of time.
struct Costs {
  std::int64_t forward = 1;
  std::int64_t backward = 2;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t transfer = 0;

  std::int64_t of(Computation kind) const;
};

struct Placed {
  Action action;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// The times at which the actions of a grid run.
struct Timing {
  /// Per device, in the order of its row.
  std::vector<std::vector<Placed>> rows;
  std::int64_t makespan = 0;

  std::int64_t busy(std::size_t device) const;
  /// The share of the makespan in which the device does nothing.
  double idle_share(std::size_t device) const;
  /// The share of the makespan in which devices do nothing, over all devices.
  double idle_share() const;
  /// The time that the device waits between its own first and last action. This is the bubble of the papers on
  /// zero bubble: steps follow each other, and a device that starts later also ends later.
  std::int64_t bubble(std::size_t device) const;
};

/// Runs each action as early as the order of its row and its dependencies allow. A usage error names the
/// flaw of the grid.
Timing replay(const Grid& grid, const Costs& costs = {});

}  // namespace baton::schedule
