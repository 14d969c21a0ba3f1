#pragma once

#include <span>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/plan.h"

namespace baton::cost {

/// The properties that decide how long a task takes: the operation, the shapes of its operands, the number of cores. A task of
/// a meeting has the key of the meeting: what is sent, between how many members.
std::string key_of(const plan::Plan& plan, TaskId task, const cluster::Cluster& cluster);

/// The keys of all tasks of a plan, with where a task finds its operands: in a cache, because its device touched them a moment ago,
/// or in memory. A device's *distance* to an operand is how many bytes it touched since it last touched the operand's addresses, in
/// this step or in the one before. Distances are rounded: two tasks have the same key if they agree in
/// the rounded ones too, and two meetings if their first members do.
class TaskKeys {
 public:
  /// `cache`: the size of the largest cache. Distances of twice that or more count as equal: such an operand is in memory.
  TaskKeys(const plan::Plan& plan, const cluster::Cluster& cluster, Bytes cache);

  std::size_t size() const { return keys_.size(); }
  const std::string& operator[](TaskId task) const { return keys_[task.index()]; }
  /// The distance of each operand: what the task reads, then what it writes.
  std::span<const Bytes> distances(TaskId task) const { return distances_[task.index()]; }

 private:
  std::vector<std::string> keys_;
  std::vector<std::vector<Bytes>> distances_;
};

}  // namespace baton::cost
