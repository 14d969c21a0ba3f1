#pragma once

#include <cstdint>
#include <vector>

#include "baton/schedule/run.h"

namespace baton::schedule {

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

/// All actions in one order in which each comes after what it waits for and each device's own keep their
/// row's order: as they would end with a backward as long as two forwards, ties by device, so that values are sent in
/// the order in which they are made. A usage error names the flaw.
std::vector<Action> sequence(const Grid& grid);

}  // namespace baton::schedule
