#include "baton/job/study.h"

#include <algorithm>
#include <cmath>

namespace baton::job {

Study::Study(plan::Plan plan, std::int64_t copies, trace::Origin origin)
    : plan_(std::move(plan)),
      copies_(copies),
      origin_(origin),
      device_times_(plan_.devices().size()),
      arrivals_(plan_.devices().size()),
      latest_in_(plan_.devices().size()) {}

void Study::add(const trace::StepTrace& step) {
  const std::vector<trace::DeviceTime> times = trace::device_times(plan_, step);
  const std::vector<trace::Arrivals> came = trace::arrivals(plan_, step);
  for (std::size_t d = 0; d < times.size(); ++d) {
    device_times_[d] += times[d];
    arrivals_[d] += came[d];
  }
  const auto latest = std::max_element(came.begin(), came.end(),
                                       [](const trace::Arrivals& a, const trace::Arrivals& b) { return a.held_up < b.held_up; });
  if (latest != came.end() && latest->held_up.count > 0) {
    ++latest_in_[static_cast<std::size_t>(latest - came.begin())];
  }
  for (const trace::PathSegment& segment : trace::critical_path(plan_, step)) {
    path_[static_cast<std::size_t>(segment.kind)] += segment.end - segment.start;
  }
  traced_ += step.duration;
  ++traced_steps_;
}

std::vector<findings::ArrivalStats> Study::arrival_stats() const {
  std::vector<findings::ArrivalStats> list;
  for (std::size_t d = 0; d < arrivals_.size() && copies_ == 1; ++d) {
    const trace::Arrivals& came = arrivals_[d];
    if (came.collectives == 0) {
      continue;
    }
    const trace::Excess excess = trace::excess(plan_, arrivals_, DeviceId(d));
    list.push_back({.name = plan_.devices()[d],
                    .last_share = static_cast<double>(came.last) / static_cast<double>(came.collectives),
                    .held_up = Nanoseconds(came.held_up.count / traced_steps_),
                    .phase = std::string(plan::to_text(excess.phase)),
                    .excess = Nanoseconds(excess.time.count / traced_steps_),
                    .steps = origin_ == trace::Origin::simulated ? 0 : traced_steps_,  // one simulated step is like any other
                    .latest_in = latest_in_[d]});
  }
  return list;
}

trace::DeviceTime Study::mean_time(Nanoseconds of) const {
  trace::DeviceTime sum;
  for (const trace::DeviceTime& time : device_times_) {
    sum += time;
  }
  const auto step = static_cast<double>(of.count) / static_cast<double>(device_times_.size());
  const auto mean = [&](Nanoseconds time) { return Nanoseconds(std::llround(trace::share_of(time, traced_) * step)); };
  return {.busy = mean(sum.busy),
          .idle = mean(sum.idle),
          .delayed = mean(sum.delayed),
          .exposed = mean(sum.exposed),
          .waiting = mean(sum.waiting),
          .loading = mean(sum.loading),
          .communication = mean(sum.communication),
          .overlapped = mean(sum.overlapped)};
}

}  // namespace baton::job
