#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/op/dropout.h"
#include "baton/op/traits.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"

namespace baton::plan {

/// A training step while passes still work on it: buffers, and tasks in an order that each device could follow.
/// Tasks may touch buffers of other devices until the pass that adds transfers has run. A task's `after` holds only
/// dependencies that do not follow from buffers, for example a bound on how far ahead a lane may run.
struct Draft {
  std::string title;
  std::vector<std::string> devices;
  std::vector<Buffer> buffers;
  std::vector<Task> tasks;
  Graph graph;  // what the step computes
  std::uint32_t meetings = 0;

  BufferId add(Buffer buffer);
  /// Drops tasks, and inserts others after those that remain: `insertions[0]` before everything, `insertions[i + 1]` after task i;
  /// these refer to tasks by their current index. A task that came after a dropped one comes after that one's predecessor in its
  /// lane.
  void rearrange(const std::vector<bool>& dropped, std::vector<std::vector<Task>> insertions);
  MeetingId new_meeting() { return MeetingId(meetings++); }
  const Buffer& operator[](BufferId id) const { return buffers[id.index()]; }
};

/// A training step as an immutable graph of tasks over buffers, on devices and lanes. Copies share the graph, so a plan of a
/// million tasks is passed and kept as a value; what its functions refer to lives as long as any copy.
class Plan {
 public:
  /// Takes the parts as they are and adds no dependencies (unlike `finish`); for parsed or derived plans.
  /// `verify` checks it.
  Plan(std::string title, std::vector<std::string> devices, std::vector<Buffer> buffers, std::vector<Task> tasks, Graph graph = {});

  const std::string& title() const { return body_->title; }
  const std::vector<std::string>& devices() const { return body_->devices; }
  const std::vector<Buffer>& buffers() const { return body_->buffers; }
  const std::vector<Task>& tasks() const { return body_->tasks; }
  /// The graph that the plan must compute; empty for a plan that is not a training step.
  const Graph& graph() const { return body_->graph; }
  const Buffer& operator[](BufferId id) const { return body_->buffers[id.index()]; }
  const Task& operator[](TaskId id) const { return body_->tasks[id.index()]; }

  /// The tasks of one lane of one device, in the order in which they run.
  std::span<const TaskId> lane(DeviceId device, Lane lane) const;
  /// The number of tasks before it in its lane.
  std::uint32_t position(TaskId id) const { return body_->position[id.index()]; }
  /// The task directly before it in its lane; not valid for the first.
  TaskId before(TaskId id) const { return body_->before[id.index()]; }
  /// One more than the largest meeting's number.
  std::size_t meeting_count() const { return body_->meetings.size(); }
  /// The tasks that share a meeting, in the plan's order.
  std::span<const TaskId> members(MeetingId meeting) const { return body_->meetings[meeting.index()]; }

  /// "t17 (linear in the backward of block 3, on cpu:1)": how messages name a task.
  std::string describe(TaskId id) const;

  bool operator==(const Plan& other) const;

 private:
  struct Body {
    std::string title;
    std::vector<std::string> devices;
    std::vector<Buffer> buffers;
    std::vector<Task> tasks;
    Graph graph;
    std::vector<std::vector<TaskId>> lanes;
    std::vector<std::uint32_t> position;  // by task
    std::vector<TaskId> before;
    std::vector<std::vector<TaskId>> meetings;
  };
  static Body with_lanes(Body body);

  std::shared_ptr<const Body> body_;
};

/// The places of a buffer's elements in the value of the plan's graph that it holds a part of. A buffer that does not say
/// so counts as the whole.
op::ElementPlaces places_of(const Plan& plan, BufferId id);

/// The total size of these buffers.
Bytes bytes_of(const Plan& plan, std::span<const BufferId> buffers);

/// Buffers as an op sees them.
std::vector<op::Operand> operands_of(std::span<const Buffer> buffers, std::span<const BufferId> ids);

/// Rows, inputs and outputs of the product that a task computes; nullopt if it computes none.
std::optional<op::ProductExtents> product_extents(std::span<const Buffer> buffers, const Task& task);

/// Finishes a draft: adds the dependencies that follow from buffers (a read after the previous write, a write after the
/// previous reads and write), except those that the order of a lane already gives.
/// Before: every task touches buffers of its own device only. After: the plan satisfies `verify`'s ordering rules.
Plan finish(Draft draft);

/// The work of a task, known without running it. `sent` and `received` are the bytes that cross between devices.
struct TaskWork {
  Flops flops;
  Bytes read;
  Bytes written;
  Bytes sent;
  Bytes received;

  TaskWork& operator+=(const TaskWork& other);
  bool operator==(const TaskWork&) const = default;
};
TaskWork work(const Plan& plan, TaskId id);

/// The work and the messages of one device in a step, or of all of them together.
struct Totals {
  TaskWork work;
  std::int64_t tasks = 0;
  std::int64_t transfers_forward = 0;
  std::int64_t transfers = 0;    // counted at the sender
  std::int64_t collectives = 0;  // counted at each member

  Totals& operator+=(const Totals& other);
  bool operator==(const Totals&) const = default;
  /// The totals of `devices` identical devices.
  friend Totals operator*(const Totals& totals, std::int64_t copies);
};
std::vector<Totals> totals_by_device(const Plan& plan);

}  // namespace baton::plan
