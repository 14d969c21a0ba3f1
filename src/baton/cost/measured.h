#pragma once

#include <map>
#include <string>
#include <vector>

#include "baton/cost/cost_model.h"
#include "baton/cost/task_keys.h"

namespace baton::cost {

/// Times by key; each task or meeting was timed alone.
using Times = std::map<std::string, Nanoseconds, std::less<>>;

/// The times of a plan's tasks, looked up once. The time of a meeting is that of all its members together; each gets the share that
/// it carries.
///
/// Not modelled: other devices that use the memory at the same time.
class Measured final : public CostModel {
 public:
  /// The keys are those of the plan that it is asked about. `where` names the machine on which the times were measured.
  Measured(const Times& times, const TaskKeys& keys, std::string where);

  /// The measured time. A usage error names a task that was not timed.
  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override;
  std::string origin() const override { return origin_on(where_); }
  static std::string origin_on(const std::string& where) { return "measured: each distinct task timed by itself on " + where; }

 private:
  Nanoseconds look_up(TaskId task) const;

  std::vector<Nanoseconds> times_;         // by task
  std::map<TaskId, std::string> untimed_;  // the keys of tasks without a time
  std::string where_;
};

}  // namespace baton::cost
