#pragma once

#include <array>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::plan {

/// A vector clock: per lane of the task's device, how many tasks of that lane are certainly done when the task
/// starts.
using VectorClock = std::array<std::uint32_t, lane_count>;

/// The order of tasks in a plan, computed in one pass.
///
/// Within a device, order comes only from its lanes and from `after`, never from other devices, so a slice of the
/// plan is safe whatever the other devices do. Members of a meeting wait for each other, which orders nothing but
/// can block.
struct Ordering {
  std::vector<TaskId> sequence;    // all tasks, each after those it waits for; fewer if some wait in a cycle
  std::vector<TaskId> circle;      // a cycle of waiting tasks, if there is one
  std::vector<VectorClock> start;  // by task

  /// True if `first` is certainly done when `second`, of the same device, starts.
  bool ordered(const Plan& plan, TaskId first, TaskId second) const {
    return plan.position(first) < start[second.index()][static_cast<std::size_t>(plan[first].lane)];
  }
};

Ordering order(const Plan& plan);

}  // namespace baton::plan
