#include "baton/plan/ordering.h"

#include <algorithm>

namespace baton::plan {
namespace {

/// Tasks that must start together are one node: a meeting's members, or a task alone.
class Waits {
 public:
  explicit Waits(const Plan& plan) : plan_(plan), node_(plan.tasks().size()) {
    std::vector<std::uint32_t> meeting_node(plan.meeting_count(), Id<void>::invalid);
    for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
      const MeetingId meeting = meeting_of(plan.tasks()[i]);
      if (meeting.valid() && meeting_node[meeting.index()] != Id<void>::invalid) {
        node_[i] = meeting_node[meeting.index()];
      } else {
        node_[i] = node_count_++;
        if (meeting.valid()) {
          meeting_node[meeting.index()] = node_[i];
        }
      }
    }
  }

  std::uint32_t node(TaskId id) const { return node_[id.index()]; }
  std::uint32_t node_count() const { return node_count_; }

  /// Calls `visit` for each task that must be done before `id` may start.
  template <typename Visit>
  void each_before(TaskId id, Visit visit) const {
    if (const TaskId before = plan_.before(id); before.valid()) {
      visit(before);
    }
    for (const TaskId other : plan_[id].after) {
      visit(other);
    }
  }

 private:
  const Plan& plan_;
  std::vector<std::uint32_t> node_;
  std::uint32_t node_count_ = 0;
};

/// Lists grouped by key, in two arrays: as a vector of vectors, without its allocations.
struct Groups {
  std::vector<std::uint32_t> begin;
  std::vector<TaskId> items;

  std::span<const TaskId> operator[](std::size_t key) const { return {items.data() + begin[key], items.data() + begin[key + 1]}; }
};

Groups members_by_node(const Plan& plan, const Waits& waits) {
  Groups groups{std::vector<std::uint32_t>(waits.node_count() + 1, 0), std::vector<TaskId>(plan.tasks().size())};
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    ++groups.begin[waits.node(TaskId(i)) + 1];
  }
  for (std::size_t n = 0; n < waits.node_count(); ++n) {
    groups.begin[n + 1] += groups.begin[n];
  }
  std::vector<std::uint32_t> next(groups.begin.begin(), groups.begin.end() - 1);
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    groups.items[next[waits.node(TaskId(i))]++] = TaskId(i);
  }
  return groups;
}

/// For each task, those that wait for it directly.
Groups waiters(const Plan& plan, const Waits& waits) {
  Groups groups{std::vector<std::uint32_t>(plan.tasks().size() + 1, 0), {}};
  std::size_t edges = 0;
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    waits.each_before(TaskId(i), [&](TaskId before) {
      ++groups.begin[before.index() + 1];
      ++edges;
    });
  }
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    groups.begin[i + 1] += groups.begin[i];
  }
  groups.items.resize(edges);
  std::vector<std::uint32_t> next(groups.begin.begin(), groups.begin.end() - 1);
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    waits.each_before(TaskId(i), [&](TaskId before) { groups.items[next[before.index()]++] = TaskId(i); });
  }
  return groups;
}

/// Walks backwards through tasks that never became ready until one comes up twice.
std::vector<TaskId> find_circle(const Plan& plan, const Waits& waits, const Groups& members, const std::vector<bool>& done) {
  std::vector<std::uint32_t> seen(waits.node_count(), Id<void>::invalid);
  std::vector<TaskId> path;
  TaskId at;
  for (std::size_t i = 0; i < plan.tasks().size() && !at.valid(); ++i) {
    if (!done[waits.node(TaskId(i))]) {
      at = TaskId(i);
    }
  }
  while (seen[waits.node(at)] == Id<void>::invalid) {
    seen[waits.node(at)] = static_cast<std::uint32_t>(path.size());
    TaskId blocked;
    TaskId blocker;
    for (const TaskId member : members[waits.node(at)]) {
      waits.each_before(member, [&](TaskId before) {
        if (!blocker.valid() && !done[waits.node(before)]) {
          blocked = member;
          blocker = before;
        }
      });
    }
    path.push_back(blocked);
    at = blocker;
  }
  return {path.begin() + seen[waits.node(at)], path.end()};
}

}  // namespace

Ordering order(const Plan& plan) {
  const std::size_t count = plan.tasks().size();
  const Waits waits(plan);
  const Groups members = members_by_node(plan, waits);
  const Groups next = waiters(plan, waits);

  Ordering result;
  result.sequence.reserve(count);
  result.start.resize(count);

  std::vector<std::uint32_t> pending(waits.node_count(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    waits.each_before(TaskId(i), [&](TaskId) { ++pending[waits.node(TaskId(i))]; });
  }
  // A first-in-first-out queue over nodes in plan order: the sequence is the same on every machine.
  std::vector<std::uint32_t> ready;
  ready.reserve(waits.node_count());
  for (std::uint32_t node = 0; node < waits.node_count(); ++node) {
    if (pending[node] == 0) {
      ready.push_back(node);
    }
  }
  std::vector<bool> done(waits.node_count(), false);
  for (std::size_t head = 0; head < ready.size(); ++head) {
    done[ready[head]] = true;
    for (const TaskId id : members[ready[head]]) {
      VectorClock& start = result.start[id.index()];
      waits.each_before(id, [&](TaskId before) {
        if (plan[before].device != plan[id].device) {
          return;  // `verify` refuses such an edge; it must not count as order
        }
        const VectorClock& other = result.start[before.index()];
        for (std::size_t lane = 0; lane < lane_count; ++lane) {
          start[lane] = std::max(start[lane], other[lane]);
        }
        const auto lane = static_cast<std::size_t>(plan[before].lane);
        start[lane] = std::max(start[lane], plan.position(before) + 1);
      });
      result.sequence.push_back(id);
      for (const TaskId waiter : next[id.index()]) {
        if (--pending[waits.node(waiter)] == 0) {
          ready.push_back(waits.node(waiter));
        }
      }
    }
  }
  if (result.sequence.size() < count) {
    result.circle = find_circle(plan, waits, members, done);
  }
  return result;
}

}  // namespace baton::plan
