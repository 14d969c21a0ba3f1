#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::measure {

/// The number of buffers that the copies of a task use in turn for each of its operands (reads, then writes): with one,
/// each copy finds what the copy before has just touched.
using Turns = std::function<std::vector<std::int64_t>(TaskId task)>;

/// A plan of nothing but `copies` of one task, one after the other, on each of `devices`.
plan::Plan isolate_task(const plan::Plan& plan, TaskId task, const std::vector<DeviceId>& devices, std::int64_t copies,
                        const Turns& turns);

/// A plan of nothing but a delay and then `copies` of one task, on the task's own device; each copy has buffers of its own.
plan::Plan isolate_after_delay(const plan::Plan& plan, TaskId task, Nanoseconds delay, std::int64_t copies);

/// A plan of nothing but `copies` of one meeting, likewise; its members stay on their devices.
plan::Plan isolate_meeting(const plan::Plan& plan, MeetingId meeting, std::int64_t copies, const Turns& turns);

}  // namespace baton::measure
