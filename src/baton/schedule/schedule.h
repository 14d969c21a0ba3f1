#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/schedule/grid.h"
#include "baton/schedule/text.h"

namespace baton::schedule {

/// The arguments of a schedule.
struct Pipeline {
  std::int64_t devices = 1;
  /// Stages on each device.
  std::int64_t chunks = 1;
  std::int64_t micro_batches = 1;

  std::int64_t stages() const { return devices * chunks; }
};

/// A named order of the work of a pipeline, or a refusal (a usage error) that says what to change.
struct Schedule {
  std::string name;
  /// PyTorch's name and other names.
  std::vector<std::string> aliases;
  std::string summary;
  std::int64_t default_chunks;
  Grid (*grid)(const Pipeline&);
};

/// Every schedule, in the order in which help shows them.
const std::vector<Schedule>& schedules();
/// Finds one by name or alias, with or without PyTorch's prefix `Schedule`; nullptr if not found.
const Schedule* find_schedule(std::string_view name);
/// The same; if not found, a usage error lists the names.
const Schedule& schedule_by_name(std::string_view name);

}  // namespace baton::schedule
