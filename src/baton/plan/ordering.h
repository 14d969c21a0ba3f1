#pragma once

#include <array>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::plan {

/// How far each lane of a task's own device has come, for certain, when the task starts: how many tasks of that
/// lane are done.
using Clock = std::array<std::uint32_t, lane_count>;

/// What is ordered in a plan, found in one pass over it.
///
/// Within a device order comes from its lanes and from `after`, and from nothing else: what other devices do is
/// never relied upon, so a slice of the plan is safe whatever the others do. Members of a meeting wait for one
/// another, which orders nothing but can block.
struct Ordering {
  std::vector<TaskId> sequence;  // all tasks, each after those it waits for; fewer when some wait in a circle
  std::vector<TaskId> circle;    // a circle of waiting tasks, where there is one
  std::vector<Clock> start;      // by task

  /// Whether `first` is certainly done when `second`, of the same device, starts.
  bool ordered(const Plan& plan, TaskId first, TaskId second) const {
    return plan.position(first) < start[second.index()][static_cast<std::size_t>(plan[first].lane)];
  }
};

Ordering order(const Plan& plan);

}  // namespace baton::plan
