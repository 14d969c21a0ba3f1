#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "baton/findings/straggler.h"
#include "baton/plan/plan.h"
#include "baton/trace/analysis.h"
#include "baton/trace/arrivals.h"
#include "baton/trace/trace.h"

namespace baton::job {

/// The times of the traced steps of a plan by their parts, summed over the steps.
class Study {
 public:
  /// `copies`: how many devices each one of the plan stands for.
  Study(plan::Plan plan, std::int64_t copies, trace::Origin origin);

  void add(const trace::StepTrace& step);

  /// The number of devices that each one of the plan stands for: one, unless equal replicas were folded.
  std::int64_t copies() const { return copies_; }
  /// The times of each device, by device, summed over the traced steps; `traced` is how long those steps took together.
  const std::vector<trace::DeviceTime>& device_times() const { return device_times_; }
  Nanoseconds traced() const { return traced_; }
  std::int64_t traced_steps() const { return traced_steps_; }
  /// The time of the traced steps' critical paths, by kind of segment.
  const std::array<Nanoseconds, trace::PathSegment::kinds>& path() const { return path_; }
  /// The arrivals of devices at collectives, on average over the traced steps; empty if fewer than two devices meet.
  std::vector<findings::ArrivalStats> arrival_stats() const;
  /// The parts of a step of this length: the mean over devices and traced steps.
  trace::DeviceTime mean_time(Nanoseconds step) const;

 private:
  plan::Plan plan_;
  std::int64_t copies_;
  trace::Origin origin_;
  std::vector<trace::DeviceTime> device_times_;
  std::vector<trace::Arrivals> arrivals_;
  std::vector<std::int64_t> latest_in_;  // by device: traced steps in which the others waited longest for it
  Nanoseconds traced_;
  std::int64_t traced_steps_ = 0;
  std::array<Nanoseconds, trace::PathSegment::kinds> path_{};  // by kind of segment
};

}  // namespace baton::job
