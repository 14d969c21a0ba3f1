#include "baton/cost/measured.h"

#include <cmath>

#include "baton/base/error.h"

namespace baton::cost {

Measured::Measured(const Times& times, const TaskKeys& keys, std::string where) : times_(keys.size()), where_(std::move(where)) {
  for (std::size_t t = 0; t < times_.size(); ++t) {
    const std::string& key = keys[TaskId(t)];
    if (const auto found = times.find(key); found != times.end()) {
      times_[t] = found->second;
    } else {
      untimed_.emplace(TaskId(t), key);
    }
  }
}

Nanoseconds Measured::look_up(TaskId task) const {
  if (const auto untimed = untimed_.find(task); untimed != untimed_.end()) {
    throw usage_error("no time was measured for {}: run baton calibrate for this job", untimed->second);
  }
  return times_[task.index()];
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
