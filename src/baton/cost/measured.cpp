#include "baton/cost/measured.h"

#include <cmath>

#include "baton/base/error.h"

namespace baton::cost {
Nanoseconds Measured::look_up(TaskId task) const {
  const std::string& key = keys_[task];
  const auto found = times_.find(key);
  if (found == times_.end()) {
    throw usage_error("no time was measured for {}: run baton calibrate for this job", key);
  }
  return found->second;
}

Nanoseconds Measured::duration(const plan::Plan&, TaskId task) const { return look_up(task); }

Nanoseconds Measured::copying(const plan::Plan& plan, TaskId task) const {
  const std::span<const TaskId> members = plan.members(plan::meeting_of(plan[task]));
  double all = 0;
  for (const TaskId member : members) {
    all += static_cast<double>(carried(plan, member).count);
  }
  const double share = all > 0 ? static_cast<double>(carried(plan, task).count) / all : 0;
  const double together = static_cast<double>(look_up(task).count) * static_cast<double>(members.size());
  return Nanoseconds(std::llround(together * share));
}

}  // namespace baton::cost
