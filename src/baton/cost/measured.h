#pragma once

#include <map>
#include <string>

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"

namespace baton::cost {

/// The key of all tasks that take equally long: the operation, the shapes of its operands, the number of cores. A task of
/// a meeting has the key of the meeting: what is sent, between how many members.
std::string key_of(const plan::Plan& plan, TaskId task, const cluster::Cluster& cluster);

/// Times by key; each task or meeting was timed alone.
using Times = std::map<std::string, Nanoseconds, std::less<>>;

/// Looks the times up. The time of a meeting is that of all its members together; each gets the share that it carries.
///
/// Not modelled: data that an earlier task left in the cache, and other devices that use the memory at the same time.
class Measured final : public CostModel {
 public:
  /// Both must outlive it. `where` names the machine on which the times were measured.
  Measured(const Times& times, const cluster::Cluster& cluster, std::string where)
      : times_(times), cluster_(cluster), where_(std::move(where)) {}

  /// A usage error names a task that was not timed.
  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override;
  std::string origin() const override { return "measured: each distinct task timed by itself on " + where_; }

 private:
  Nanoseconds look_up(const plan::Plan& plan, TaskId task) const;

  const Times& times_;
  const cluster::Cluster& cluster_;
  std::string where_;
};

}  // namespace baton::cost
