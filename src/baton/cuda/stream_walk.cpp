#include "baton/cuda/stream_walk.h"

#include "baton/cuda/status.h"

namespace baton::cuda {

StreamWalk::StreamWalk(const Slice& slice, const Meetings& meetings)
    : plan_(slice.plan()),
      slice_(slice),
      meetings_(meetings),
      events_(plan_.tasks().size()),
      streams_(plan_.meeting_count()),
      missing_(plan_.meeting_count()) {}

void StreamWalk::add(TaskId id, bool meets) {
  if (meets) {
    events_[id.index()].arrived = std::make_unique<Event>(Event::Purpose::order);
  }
  events_[id.index()].done = std::make_unique<Event>(Event::Purpose::order);
}

void StreamWalk::add_times(TaskId id) {
  events_[id.index()].start = std::make_unique<Event>(Event::Purpose::timed);
  events_[id.index()].end = std::make_unique<Event>(Event::Purpose::timed);
}

void StreamWalk::add_meeting(MeetingId meeting) {
  for (const TaskId member : plan_.members(meeting)) {
    streams_[meeting.index()].push_back(slice_.stream(plan_[member]));
  }
}

void StreamWalk::begin_step() {
  for (std::size_t m = 0; m < missing_.size(); ++m) {
    missing_[m] = streams_[m].size();
  }
}

void StreamWalk::record(Event& event, cudaStream_t stream, Times times) {
  if (times == Times::recorded) {
    event.record(stream);
  } else if (times == Times::in_graph) {
    event.record_in_graph(stream);
  }
}

void StreamWalk::begin(TaskId id, Times times) const {
  const plan::Task& task = plan_[id];
  for (const TaskId other : task.after) {
    events_[other.index()].done->wait(slice_.stream(task));
  }
  if (times != Times::none) {
    record(*events_[id.index()].start, slice_.stream(task), times);
  }
}

void StreamWalk::finish(TaskId id, Times times) const {
  const TaskEvents& events = events_[id.index()];
  if (times != Times::none) {
    record(*events.end, slice_.stream(plan_[id]), times);
  }
  events.done->record(slice_.stream(plan_[id]));
}

void StreamWalk::arrive(TaskId id, const std::function<void(TaskId member)>& finished) {
  const MeetingId meeting = plan::meeting_of(plan_[id]);
  events_[id.index()].arrived->record(slice_.stream(plan_[id]));
  if (--missing_[meeting.index()] != 0) {
    return;
  }
  const std::span<const TaskId> members = plan_.members(meeting);
  for (const TaskId member : members) {
    wait_for_others(member);
  }
  meetings_.enqueue(meeting, streams_[meeting.index()]);
  require_launched("launching a message");
  for (const TaskId member : members) {
    slice_.place(plan_[member].device).enter();
    events_[member.index()].arrived->record(slice_.stream(plan_[member]));  // again: its part is done
  }
  for (const TaskId member : members) {
    wait_for_others(member);
    finished(member);
  }
}

/// Enters the member's place too.
void StreamWalk::wait_for_others(TaskId member) const {
  slice_.place(plan_[member].device).enter();
  for (const TaskId other : plan_.members(plan::meeting_of(plan_[member]))) {
    if (other != member) {
      events_[other.index()].arrived->wait(slice_.stream(plan_[member]));
    }
  }
}

}  // namespace baton::cuda
