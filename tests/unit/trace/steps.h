#pragma once

#include <fmt/format.h>

#include <vector>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// A plan and one run of it, put together task by task. Times are in nanoseconds.
struct Written {
  std::size_t devices = 1;
  std::vector<plan::Task> tasks = {};
  StepTrace step = {};

  /// A task that works alone.
  TaskId compute(std::size_t device, std::int64_t start, std::int64_t end, std::vector<TaskId> after = {},
                 plan::Lane lane = plan::Lane::compute) {
    return add(plan::Compute{op::Relu{}}, device, lane, start, end, std::move(after));
  }
  TaskId delay(std::size_t device, std::int64_t start, std::int64_t end, std::vector<TaskId> after = {}) {
    return add(plan::Delay{Nanoseconds(end - start)}, device, plan::Lane::compute, start, end, std::move(after));
  }
  TaskId send(std::size_t device, std::size_t to, std::size_t meeting, std::int64_t start, std::int64_t end,
              std::vector<TaskId> after = {}) {
    return add(plan::Transfer{plan::Transfer::End::send, MeetingId(meeting), DeviceId(to)}, device, plan::Lane::communication,
               start, end, std::move(after));
  }
  TaskId receive(std::size_t device, std::size_t from, std::size_t meeting, std::int64_t start, std::int64_t end,
                 std::vector<TaskId> after = {}) {
    return add(plan::Transfer{plan::Transfer::End::receive, MeetingId(meeting), DeviceId(from)}, device, plan::Lane::communication,
               start, end, std::move(after));
  }
  /// One member; ranks are the devices' numbers.
  TaskId all_reduce(std::size_t device, std::size_t meeting, std::int64_t start, std::int64_t end, std::vector<TaskId> after = {}) {
    return add(plan::Collective{plan::Move::all_reduce, MeetingId(meeting), static_cast<std::uint32_t>(device),
                                static_cast<std::uint32_t>(devices)},
               device, plan::Lane::communication, start, end, std::move(after));
  }

  plan::Plan plan() const {
    std::vector<std::string> names;
    for (std::size_t d = 0; d < devices; ++d) {
      names.push_back(fmt::format("cpu:{}", d));
    }
    return plan::Plan("by hand", names, {}, tasks);
  }

  TaskId add(plan::Action action, std::size_t device, plan::Lane lane, std::int64_t start, std::int64_t end,
             std::vector<TaskId> after) {
    plan::Task task;
    task.action = std::move(action);
    task.device = DeviceId(device);
    task.lane = lane;
    task.after = std::move(after);
    tasks.push_back(std::move(task));
    step.events.push_back({Nanoseconds(start), Nanoseconds(end), {}, {}});
    return TaskId(tasks.size() - 1);
  }
};

}  // namespace baton::trace
