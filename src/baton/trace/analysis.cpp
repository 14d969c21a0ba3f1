#include "baton/trace/analysis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/base/error.h"

namespace baton::trace {
namespace {

using plan::Lane;
using plan::Plan;
using plan::Task;

enum Activity : std::size_t { computing, delaying, moving, waiting, loading, activities };

struct Edge {
  Nanoseconds time;
  Activity activity;
  int change;
};

PathSegment::SpentOn kind_of(const Task& task) {
  if (std::holds_alternative<plan::Delay>(task.action)) {
    return PathSegment::SpentOn::delay;
  }
  if (std::holds_alternative<plan::Load>(task.action)) {
    return PathSegment::SpentOn::load;
  }
  return plan::meeting_of(task).valid() ? PathSegment::SpentOn::communication : PathSegment::SpentOn::compute;
}

}  // namespace

DeviceTime& DeviceTime::operator+=(const DeviceTime& other) {
  busy += other.busy;
  idle += other.idle;
  delayed += other.delayed;
  exposed += other.exposed;
  waiting += other.waiting;
  loading += other.loading;
  communication += other.communication;
  overlapped += other.overlapped;
  return *this;
}

Nanoseconds met_at(const Plan& plan, const StepTrace& step, TaskId task) {
  Nanoseconds latest = step.events[task.index()].start;
  for (const TaskId member : plan.members(plan::meeting_of(plan[task]))) {
    latest = std::max(latest, step.events[member.index()].start);
  }
  return latest;
}

Nanoseconds ended_at(const Plan& plan, const StepTrace& step, TaskId task) {
  Nanoseconds latest = step.events[task.index()].end;
  for (const TaskId member : plan.members(plan::meeting_of(plan[task]))) {
    latest = std::max(latest, step.events[member.index()].end);
  }
  return latest;
}

std::vector<DeviceTime> device_times(const Plan& plan, const StepTrace& step) {
  std::vector<std::vector<Edge>> edges(plan.devices().size());
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const Task& task = plan.tasks()[t];
    const Event& event = step.events[t];
    std::vector<Edge>& list = edges[task.device.index()];
    const auto add = [&](Activity activity, Nanoseconds from, Nanoseconds to) {
      if (to > from) {
        list.push_back({from, activity, 1});
        list.push_back({to, activity, -1});
      }
    };
    switch (kind_of(task)) {
      case PathSegment::SpentOn::communication: {
        const Nanoseconds met = std::min(met_at(plan, step, TaskId(t)), event.end);
        add(waiting, event.start, met);
        add(moving, met, event.end);
        break;
      }
      case PathSegment::SpentOn::delay:
        add(delaying, event.start, event.end);
        break;
      case PathSegment::SpentOn::load:
        add(loading, event.start, event.end);
        break;
      default:
        add(computing, event.start, event.end);
    }
  }
  std::vector<DeviceTime> times(plan.devices().size());
  for (std::size_t d = 0; d < times.size(); ++d) {
    DeviceTime& time = times[d];
    std::sort(edges[d].begin(), edges[d].end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
    std::array<int, activities> active{};
    Nanoseconds last;
    for (const Edge& edge : edges[d]) {
      const Nanoseconds length = edge.time - last;
      last = edge.time;
      time.communication += active[moving] > 0 ? length : Nanoseconds(0);
      if (active[computing] > 0) {
        time.busy += length;
        time.overlapped += active[moving] > 0 ? length : Nanoseconds(0);
      } else if (active[delaying] > 0) {
        time.delayed += length;
      } else if (active[moving] > 0) {
        time.exposed += length;
      } else if (active[waiting] > 0) {
        time.waiting += length;
      } else if (active[loading] > 0) {
        time.loading += length;
      }
      active[edge.activity] += edge.change;
    }
    time.idle = step.duration - time.busy;
  }
  return times;
}

std::vector<PathSegment> critical_path(const Plan& plan, const StepTrace& step) {
  const auto end_of = [&](TaskId id) { return step.events[id.index()].end; };
  TaskId at;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (!at.valid() || end_of(TaskId(t)) > end_of(at)) {
      at = TaskId(t);
    }
  }
  std::vector<PathSegment> path;
  Nanoseconds upto = step.duration;
  const auto add = [&](PathSegment::SpentOn kind, TaskId task, Nanoseconds from) {
    from = std::max(Nanoseconds(0), std::min(from, upto));
    if (from < upto) {
      path.push_back({kind, task, from, upto});
      upto = from;
    }
  };
  TaskId next = at;  // what started after the gap that follows `at`
  while (at.valid()) {
    add(PathSegment::SpentOn::overhead, next, end_of(at));
    const PathSegment::SpentOn kind = kind_of(plan[at]);
    TaskId started = at;  // whose start it was that let this task go on
    if (kind == PathSegment::SpentOn::communication) {
      for (const TaskId member : plan.members(plan::meeting_of(plan[at]))) {
        if (step.events[member.index()].start > step.events[started.index()].start) {
          started = member;
        }
      }
    }
    add(kind, at, step.events[started.index()].start);
    TaskId before = plan.before(started);
    while (before.valid() && end_of(before) > step.events[started.index()].start) {  // a task of another stream: it held nothing up
      before = plan.before(before);
    }
    for (const TaskId other : plan[started].after) {
      if (!before.valid() || end_of(other) > end_of(before)) {
        before = other;
      }
    }
    if (!before.valid()) {
      add(PathSegment::SpentOn::overhead, started, Nanoseconds(0));
    }
    next = started;
    at = before;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Spread spread(std::span<const Nanoseconds> times) {
  if (times.empty()) {
    return {};
  }
  std::vector<double> sorted;
  double sum = 0;
  for (const Nanoseconds time : times) {
    sorted.push_back(static_cast<double>(time.count));
    sum += sorted.back();
  }
  std::sort(sorted.begin(), sorted.end());
  const double mean = sum / static_cast<double>(sorted.size());
  double squares = 0;
  for (const double time : sorted) {
    squares += (time - mean) * (time - mean);
  }
  const auto rounded = [](double value) { return Nanoseconds(std::llround(value)); };
  const auto percentile = [&](double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return rounded(sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]));
  };
  const double std = sorted.size() > 1 ? std::sqrt(squares / static_cast<double>(sorted.size() - 1)) : 0;
  return {percentile(0.5),  rounded(mean),           rounded(std),          percentile(0.05),
          percentile(0.95), rounded(sorted.front()), rounded(sorted.back())};
}

MedianInterval median_interval(std::vector<Nanoseconds> times) {
  if (times.empty()) {
    return {};
  }
  std::sort(times.begin(), times.end());
  // The number of times below the true median is binomial: it lies between the one at `cut` and the one at `cut` from the end
  // unless at most `cut` times are below it, or above.
  const auto n = static_cast<double>(times.size());
  const auto chance = [&](std::size_t below) {
    const auto k = static_cast<double>(below);
    return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  };
  std::size_t cut = 0;
  double outside = 2 * chance(0);
  while (2 * (cut + 1) < times.size() && outside + 2 * chance(cut + 1) <= 0.05) {
    ++cut;
    outside += 2 * chance(cut);
  }
  return {times[cut], times[times.size() - 1 - cut], std::max(0.0, 1 - outside)};
}

double share_of(Nanoseconds part, Nanoseconds whole) {
  return whole.count == 0 ? 0 : static_cast<double>(part.count) / static_cast<double>(whole.count);
}

}  // namespace baton::trace
