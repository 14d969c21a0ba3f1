#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "baton/base/units.h"
#include "baton/cuda/event.h"
#include "baton/cuda/meetings.h"
#include "baton/cuda/slice.h"

namespace baton::cuda {

/// The time between two reports of a run's progress, and between two readings of the GPU's gauges.
constexpr Nanoseconds between_reports(50'000'000);
constexpr Nanoseconds between_samples(250'000'000);

/// The events of a task: other tasks wait for `arrived` and `done`; a traced step reads the times of `start` and `end`.
struct TaskEvents {
  std::unique_ptr<Event> arrived;  // a member has arrived at a meeting of this process alone
  std::unique_ptr<Event> done;
  std::unique_ptr<Event> start;
  std::unique_ptr<Event> end;
};

/// Enqueues the tasks of a slice in its streams, which wait for each other by events. Both engines enqueue by it, the one
/// of a process alone and the one of a rank.
class StreamWalk {
 public:
  /// The way in which start and end of tasks are recorded, if they are: in a stream, or in one that is being captured into
  /// a graph.
  enum class Times : std::uint8_t { none, recorded, in_graph };

  /// Both must outlive it.
  StreamWalk(const Slice& slice, const Meetings& meetings);

  const TaskEvents& operator[](TaskId id) const { return events_[id.index()]; }
  /// Makes the events of a task; its place must be entered. `meets`: the task meets others, all in this process.
  void add(TaskId id, bool meets);
  /// Makes the events that a traced step reads; the task's place must be entered.
  void add_times(TaskId id);
  /// Adds a meeting whose members are all in this process.
  void add_meeting(MeetingId meeting);

  /// Must be called before the first task of each step.
  void begin_step();
  /// The task's stream waits for the tasks that it comes after. Its place is entered.
  void begin(TaskId id, Times times) const;
  /// All that the task does is in its stream, whose place is entered.
  void finish(TaskId id, Times times) const;
  /// A member of a meeting of this process alone has arrived. After the last has, each does its part, and when all are done,
  /// `finished` is called with each member, its place entered.
  void arrive(TaskId id, const std::function<void(TaskId member)>& finished);

 private:
  void wait_for_others(TaskId member) const;
  static void record(Event& event, cudaStream_t stream, Times times);

  plan::Plan plan_;
  const Slice& slice_;
  const Meetings& meetings_;
  std::vector<TaskEvents> events_;                  // by task
  std::vector<std::vector<cudaStream_t>> streams_;  // by meeting, of its members
  std::vector<std::size_t> missing_;                // by meeting: members that have not arrived in this step
};

}  // namespace baton::cuda
