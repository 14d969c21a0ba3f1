#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/schedule/run.h"

namespace baton::schedule {

/// Explains why the grid cannot run: an action that is missing or appears twice, a stage on two devices, a whole backward in
/// addition to its halves, a backward before its forward, or a deadlock, with the devices that wait for each other. Empty if the
/// grid can run.
std::optional<std::string> flaw(const Grid& grid);

/// Runs the orders of a grid. A usage error names its flaw.
Run run_sound(const Grid& grid, const Costs& costs);
/// The grid with each action in the slot in which it would run if every action took one. A usage error names its flaw.
Grid aligned_sound(const Grid& grid);
/// The device of each stage. A usage error names the flaw of the grid.
std::vector<std::int32_t> device_of_stage(const Grid& grid);

}  // namespace baton::schedule
