#pragma once

#include <span>
#include <utility>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// The parts of a device's step.
struct DeviceTime {
  Nanoseconds busy;           // a computation ran
  Nanoseconds idle;           // no computation ran:
  Nanoseconds delayed;        //   an injected delay ran
  Nanoseconds exposed;        //   bytes were in transit
  Nanoseconds waiting;        //   it waited for other members of a meeting
  Nanoseconds loading;        //   it waited for the data of the next step
  Nanoseconds communication;  // bytes were in transit, with or without a computation
  Nanoseconds overlapped;     // both at once

  /// The remaining idle time: nothing to do, and time of the executor itself.
  Nanoseconds rest() const { return idle - delayed - exposed - waiting - loading; }

  DeviceTime& operator+=(const DeviceTime& other);
};
std::vector<DeviceTime> device_times(const plan::Plan& plan, const StepTrace& step);

/// The time at which the last member arrived at the meeting of a task: from then on bytes move.
Nanoseconds met_at(const plan::Plan& plan, const StepTrace& step, TaskId task);
/// The time at which the last member finished its part.
Nanoseconds ended_at(const plan::Plan& plan, const StepTrace& step, TaskId task);

/// A segment of the longest chain of tasks, each of which waited for the one before. The chain covers the step.
struct PathSegment {
  enum class SpentOn : std::uint8_t { compute, communication, delay, overhead, load };
  static constexpr std::size_t kinds = 5;
  SpentOn kind;
  TaskId task;  // for overhead: the task that started after it
  Nanoseconds start;
  Nanoseconds end;
};
/// The critical path in order of time, without gaps from 0 to the step's duration.
std::vector<PathSegment> critical_path(const plan::Plan& plan, const StepTrace& step);

/// The distribution of the times of several steps.
struct Spread {
  Nanoseconds median, mean, std, p5, p95, min, max;
};
/// Percentiles are interpolated linearly; std is that of a sample. All zero if there are no times.
Spread spread(std::span<const Nanoseconds> times);

/// An interval for the true median, by order statistics, for any distribution.
struct MedianInterval {
  Nanoseconds low;
  Nanoseconds high;
  double level = 0;  // the probability that it holds the median: at least 0.95 from six times on, less for fewer
};
MedianInterval median_interval(std::vector<Nanoseconds> times);

/// part / whole; 0 if `whole` is 0.
double share_of(Nanoseconds part, Nanoseconds whole);

}  // namespace baton::trace
