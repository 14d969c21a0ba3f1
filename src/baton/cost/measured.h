#pragma once

#include <map>
#include <string>

#include "baton/cost/cost_model.h"
#include "baton/cost/task_keys.h"

namespace baton::cost {

/// Times by key; each task or meeting was timed alone.
using Times = std::map<std::string, Nanoseconds, std::less<>>;

/// Looks the times up. The time of a meeting is that of all its members together; each gets the share that it carries.
///
/// Not modelled: other devices that use the memory at the same time.
class Measured final : public CostModel {
 public:
  /// Both must outlive it; the keys are those of the plan that it is asked about. `where` names the machine on which the times were
  /// measured.
  Measured(const Times& times, const TaskKeys& keys, std::string where) : times_(times), keys_(keys), where_(std::move(where)) {}
  Measured(Times&&, const TaskKeys&, std::string) = delete;
  Measured(const Times&, TaskKeys&&, std::string) = delete;

  /// A usage error names a task that was not timed.
  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override;
  std::string origin() const override { return origin_on(where_); }
  static std::string origin_on(const std::string& where) { return "measured: each distinct task timed by itself on " + where; }

 private:
  Nanoseconds look_up(TaskId task) const;

  const Times& times_;
  const TaskKeys& keys_;
  std::string where_;
};

}  // namespace baton::cost
