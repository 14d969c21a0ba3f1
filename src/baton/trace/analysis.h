#pragma once

#include <span>
#include <utility>
#include <vector>

#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::trace {

/// Where one device's step went. busy + idle is the step; idle is delayed + exposed + waiting + the rest.
struct DeviceTime {
  Nanoseconds busy;           // a computation ran
  Nanoseconds idle;           // none did:
  Nanoseconds delayed;        //   a delay was put in on purpose
  Nanoseconds exposed;        //   bytes were on their way
  Nanoseconds waiting;        //   it had come to a meeting and others had not
  Nanoseconds communication;  // bytes were on their way, whether or not a computation ran
  Nanoseconds overlapped;     // both at once

  /// Of the idle time, what is none of the three: nothing to do, and the executor's own time.
  Nanoseconds rest() const { return idle - delayed - exposed - waiting; }

  DeviceTime& operator+=(const DeviceTime& other);
};
std::vector<DeviceTime> device_times(const plan::Plan& plan, const StepTrace& step);

/// When the last member came to the meeting that a task takes part in: from then on bytes move.
Nanoseconds met_at(const plan::Plan& plan, const StepTrace& step, TaskId task);
/// When the part of its last member was over.
Nanoseconds ended_at(const plan::Plan& plan, const StepTrace& step, TaskId task);

/// A stretch of the longest chain of tasks, each of which had to wait for the one before. The chain covers the step.
struct PathSegment {
  enum class Kind : std::uint8_t { compute, communication, delay, overhead };
  Kind kind;
  TaskId task;  // for overhead: the task that was then started
  Nanoseconds start;
  Nanoseconds end;
};
/// In order of time, without gaps from 0 to the step's duration.
std::vector<PathSegment> critical_path(const plan::Plan& plan, const StepTrace& step);

/// Of several steps.
struct Spread {
  Nanoseconds median, mean, std, p5, p95, min, max;
};
/// Percentiles lie between neighbours in proportion; std is that of a sample. All zero for no times.
Spread spread(std::span<const Nanoseconds> times);

/// The ends of the 95 % confidence interval of the median.
std::pair<Nanoseconds, Nanoseconds> median_interval(std::vector<Nanoseconds> times);
/// Half that interval's width, relative to the median; 1 for fewer than six times.
double median_uncertainty(std::vector<Nanoseconds> times);

/// 0 of nothing.
double share(Nanoseconds part, Nanoseconds whole);

}  // namespace baton::trace
