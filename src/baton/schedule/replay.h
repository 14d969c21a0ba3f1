#pragma once

#include <cstdint>
#include <vector>

#include "baton/schedule/grid.h"

namespace baton::schedule {

/// How long each kind of action takes, the same on every stage, and a transfer between two devices: in any
/// unit of time.
struct Costs {
  std::int64_t forward = 1;
  std::int64_t backward = 2;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t transfer = 0;

  std::int64_t of(Kind kind) const;
};

struct Placed {
  Action action;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

/// When each action of a grid runs.
struct Timing {
  /// By device, in its row's order.
  std::vector<std::vector<Placed>> rows;
  std::int64_t makespan = 0;

  std::int64_t busy(std::size_t device) const;
  /// The share of the makespan in which the device does nothing.
  double idle_share(std::size_t device) const;
  /// The same over all devices.
  double idle_share() const;
  /// What the device waits between its own first action and its own last. This is the bubble of the papers on
  /// zero bubble: steps follow each other, and a device that starts later also ends later.
  std::int64_t bubble(std::size_t device) const;
};

/// Runs the grid as soon as each row's order and what its actions wait for allow. A usage error says the
/// grid's flaw.
Timing replay(const Grid& grid, const Costs& costs = {});

}  // namespace baton::schedule
