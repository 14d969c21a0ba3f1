#pragma once

#include <map>
#include <string>

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"

namespace baton::cost {

/// What tasks that take equally long have in common: what is done, on operands of which shapes, with how many cores. A
/// task that meets others has its meeting's key: what crosses, between how many.
std::string key_of(const plan::Plan& plan, TaskId task, const cluster::Cluster& cluster);

/// Times by key, each of a task or meeting that was timed by itself.
using Times = std::map<std::string, Nanoseconds, std::less<>>;

/// Looks the times up. A meeting's time is that of all its members at work together; to each falls what it carries of it.
///
/// Left out: that a task finds in the cache what the one before left there, and that others may be at the memory.
class Measured final : public CostModel {
 public:
  /// Both must outlive it. `where` says on what the times were measured.
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
