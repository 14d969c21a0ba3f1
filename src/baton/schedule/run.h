#pragma once

#include <optional>
#include <span>
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

/// The actions of each device in order, without slots.
using Orders = std::vector<std::vector<Action>>;

/// The progress of the devices; all actions are placed unless devices wait for each other.
struct Run {
  std::vector<std::vector<Placed>> rows;
  /// Per device: the action that its next action waits for, if that cannot start.
  std::vector<std::optional<Action>> awaited;
  std::vector<std::int32_t> device_of_stage;

  bool complete() const;
};

/// Runs orders in which no action is missing or repeated, no stage is on two devices, and each backward comes
/// after its forward. Linear in the number of actions.
Run run(const Orders& orders, const Costs& costs);

Orders orders_of(const Grid& grid);

/// `device_of_stage` of a grid that is known to have no flaw.
std::vector<std::int32_t> device_of_stage_unchecked(const Grid& grid);

/// Every action takes one slot of a grid.
inline constexpr Costs slot_costs{.backward = 1};
/// The grid of a complete run at these costs: each action in the slot in which it begins.
Grid aligned(const Run& whole);
/// The grid of these orders, likewise.
Grid aligned(const Orders& orders);

/// The most cells that a grid may have, so that a typo cannot exhaust memory.
inline constexpr std::int64_t most_cells = std::int64_t{1} << 24;

}  // namespace baton::schedule
