#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/schedule/grid.h"
#include "baton/schedule/text.h"

namespace baton::schedule {

/// Idle time and kept activations of a schedule by formula, for a search over more pipelines than it can make grids for.
struct Formulas {
  /// True if devices work at the same time; otherwise one micro-batch is in the pipeline at a time.
  bool overlaps = true;
  /// The time that the device that waits longest waits between its own actions, relative to 1f1b with stages of the same
  /// size.
  double waiting = 1;
  /// The most micro-batches whose activations a device keeps, if there are that many; one that only some of its chunks keep counts
  /// in part. nullptr: the backward is in halves, activations are kept for one or for both, and the grid says how many.
  std::function<double(const Pipeline&)> kept = nullptr;
};

/// A named order of the work of a pipeline, or a refusal (a usage error) that says what to change.
struct Schedule {
  std::string name;
  /// PyTorch's name and other names.
  std::vector<std::string> aliases;
  std::string summary;
  std::int64_t default_chunks;
  std::function<Grid(const Pipeline&)> grid;
  Formulas formulas;
};

/// Every schedule, in the order in which help shows them.
const std::vector<Schedule>& schedules();
/// Finds one by name or alias, with or without PyTorch's prefix `Schedule`; nullptr if not found.
const Schedule* find_schedule(std::string_view name);
/// Finds a schedule like `find_schedule`; if not found, a usage error lists the names.
const Schedule& schedule_by_name(std::string_view name);

}  // namespace baton::schedule
