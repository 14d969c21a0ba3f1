#include "baton/trace/arrivals.h"

#include <algorithm>
#include <set>

#include "baton/trace/analysis.h"

namespace baton::trace {

Arrivals& Arrivals::operator+=(const Arrivals& other) {
  collectives += other.collectives;
  last += other.last;
  held_up += other.held_up;
  for (std::size_t phase = 0; phase < by_phase.size(); ++phase) {
    by_phase[phase] += other.by_phase[phase];
  }
  return *this;
}

std::vector<Arrivals> arrivals(const plan::Plan& plan, const StepTrace& step) {
  std::vector<Arrivals> all(plan.devices().size());
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    if (!plan::meeting_of(task).valid() && !std::holds_alternative<plan::Load>(task.action)) {
      const Event& event = step.events[t];
      all[task.device.index()].by_phase[static_cast<std::size_t>(task.labels.phase)] += event.end - event.start;
    }
  }
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    if (members.size() < 2 || !std::holds_alternative<plan::Collective>(plan[members[0]].action)) {
      continue;
    }
    std::vector<TaskId> order(members.begin(), members.end());
    const auto came = [&](TaskId id) { return step.events[id.index()].start; };
    std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) { return came(a) < came(b); });
    for (const TaskId member : members) {
      ++all[plan[member].device.index()].collectives;
    }
    Arrivals& late = all[plan[order.back()].device.index()];
    ++late.last;
    late.held_up += came(order.back()) - came(order[order.size() - 2]);
  }
  return all;
}

Excess excess(const plan::Plan& plan, const std::vector<Arrivals>& all, DeviceId device) {
  std::set<DeviceId> others;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const std::span<const TaskId> members = plan.members(MeetingId(m));
    const auto here = [&](TaskId id) { return plan[id].device == device; };
    if (members.empty() || !std::holds_alternative<plan::Collective>(plan[members[0]].action) ||
        std::none_of(members.begin(), members.end(), here)) {
      continue;
    }
    for (const TaskId member : members) {
      others.insert(plan[member].device);
    }
  }
  others.erase(device);
  Excess most;
  for (std::size_t phase = 0; phase < 3 && !others.empty(); ++phase) {
    std::vector<Nanoseconds> times;
    for (const DeviceId other : others) {
      times.push_back(all[other.index()].by_phase[phase]);
    }
    const Nanoseconds beyond = all[device.index()].by_phase[phase] - spread(times).median;
    if (phase == 0 || beyond > most.time) {
      most = {static_cast<plan::Phase>(phase), beyond};
    }
  }
  return most;
}

}  // namespace baton::trace
