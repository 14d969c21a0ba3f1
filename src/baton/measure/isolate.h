#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::measure {

/// A plan of nothing but `copies` of one task, one after the other, each on buffers of its own, on each of `devices`.
plan::Plan isolate_task(const plan::Plan& plan, TaskId task, const std::vector<DeviceId>& devices, std::int64_t copies);

/// The same on the task's own device alone, after a delay: that is its first task.
plan::Plan isolate_after_delay(const plan::Plan& plan, TaskId task, Nanoseconds delay, std::int64_t copies);

/// A plan of nothing but `copies` of one meeting, likewise; its members stay on their devices.
plan::Plan isolate_meeting(const plan::Plan& plan, MeetingId meeting, std::int64_t copies);

}  // namespace baton::measure
