#include "baton/watch/stall_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cost/link_time.h"

namespace baton::watch {
namespace {

/// A task that takes longer than the patience does not hang if it may only be slow. These are the lowest speeds: of a plain loop on
/// a core that many share, of a batch made by one, of a message over a bad network.
constexpr double slow_flops_a_second = 1e8;
constexpr double slow_data_bytes_a_second = 1e7;
constexpr double slow_crossing_bytes_a_second = 1e6;

Nanoseconds at_speed(double amount, double a_second) { return Nanoseconds(static_cast<std::int64_t>(amount / a_second * 1e9)); }

}  // namespace

StallDiagnosis::StallDiagnosis(plan::Plan plan, std::vector<int> rank_of, std::int64_t steps_before,
                               std::optional<cluster::Link> link, Nanoseconds slow_disk)
    : plan_(std::move(plan)), rank_of_(std::move(rank_of)), steps_before_(steps_before), link_(link), slow_disk_(slow_disk) {
  check(rank_of_.size() == plan_.devices().size(), "{} devices, but ranks of {}", plan_.devices().size(), rank_of_.size());
  for (std::size_t d = 0; d < rank_of_.size(); ++d) {
    own_.push_back(
        static_cast<std::size_t>(std::count(rank_of_.begin(), rank_of_.begin() + static_cast<std::ptrdiff_t>(d), rank_of_[d])));
  }
}

/// True if all ranks have said where their devices are.
bool StallDiagnosis::known(std::span<const ranks::ProgressSnapshot> snapshots) const {
  for (std::size_t d = 0; d < rank_of_.size(); ++d) {
    if (snapshots[static_cast<std::size_t>(rank_of_[d])].devices.size() <= own_[d]) {
      return false;
    }
  }
  return true;
}

StallDiagnosis::LanePosition StallDiagnosis::position_of(std::span<const ranks::ProgressSnapshot> snapshots, DeviceId device,
                                                         plan::Lane lane) const {
  const std::span<const TaskId> tasks = plan_.lane(device, lane);
  if (tasks.empty()) {
    return {steps_before_, TaskId(), false};
  }
  const ranks::ProgressSnapshot& snapshot = snapshots[static_cast<std::size_t>(rank_of_[device.index()])];
  const std::uint64_t count = snapshot.devices[own_[device.index()]].lanes[static_cast<std::size_t>(lane)];
  const std::uint64_t within = count % (2 * tasks.size());
  return {steps_before_ + static_cast<std::int64_t>(count / (2 * tasks.size())), tasks[within / 2], within % 2 == 1};
}

bool StallDiagnosis::has_come(std::span<const ranks::ProgressSnapshot> snapshots, TaskId member, std::int64_t step) const {
  const plan::Task& task = plan_[member];
  const LanePosition at = position_of(snapshots, task.device, task.lane);
  if (at.step != step) {
    return at.step > step;
  }
  const std::uint32_t reached = plan_.position(at.task);
  return reached > plan_.position(member) || (reached == plan_.position(member) && at.started);
}

std::vector<int> StallDiagnosis::missing(std::span<const ranks::ProgressSnapshot> snapshots, TaskId task, std::int64_t step) const {
  std::vector<int> ranks;
  for (const TaskId member : plan_.members(plan::meeting_of(plan_[task]))) {
    const int rank = rank_of_[plan_[member].device.index()];
    if (!has_come(snapshots, member, step) && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
      ranks.push_back(rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// The step that the slowest of its devices is at.
std::int64_t StallDiagnosis::step_of(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const {
  std::int64_t least = -1;
  for (std::size_t d = 0; d < rank_of_.size(); ++d) {
    for (std::size_t lane = 0; rank_of_[d] == rank && lane < plan::lane_count; ++lane) {
      const LanePosition at = position_of(snapshots, DeviceId(d), static_cast<plan::Lane>(lane));
      least = at.task.valid() && (least < 0 || at.step < least) ? at.step : least;
    }
  }
  return std::max(least, steps_before_);
}

std::vector<int> StallDiagnosis::not_gathered(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < snapshots.size(); ++r) {
    if (snapshots[r].gatherings < snapshots[static_cast<std::size_t>(rank)].gatherings) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

StallDiagnosis::RunningTasks StallDiagnosis::held(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const {
  RunningTasks held;
  held.gathering = snapshots[static_cast<std::size_t>(rank)].gatherings % 2 == 1;
  for (std::size_t d = 0; d < rank_of_.size(); ++d) {
    for (std::size_t lane = 0; rank_of_[d] == rank && lane < plan::lane_count; ++lane) {
      const LanePosition at = position_of(snapshots, DeviceId(d), static_cast<plan::Lane>(lane));
      if (!at.started) {
        continue;
      }
      const bool waits = plan::meeting_of(plan_[at.task]).valid() && !missing(snapshots, at.task, at.step).empty();
      (waits ? held.waiting : held.working).push_back(at.task);
    }
  }
  return held;
}

std::string describe(ranks::Activity activity) {
  switch (activity) {
    case ranks::Activity::starting:
      return "was starting";
    case ranks::Activity::training:
      return "was training";
    case ranks::Activity::between:
      return "was between runs, saving or gathering results";
    case ranks::Activity::ending:
      return "had done its steps";
  }
  throw BugError("an activity that is none");
}

std::string StallDiagnosis::describe(std::span<const ranks::ProgressSnapshot> snapshots, int rank) const {
  const ranks::Activity activity = snapshots[static_cast<std::size_t>(rank)].activity;
  if (activity != ranks::Activity::training || !known(snapshots)) {
    return watch::describe(activity);
  }
  const std::int64_t step = step_of(snapshots, rank);
  const std::int64_t shown = step + 1;  // people count from 1
  const RunningTasks held = this->held(snapshots, rank);
  if (!held.working.empty()) {
    const TaskId task = held.working.front();
    const bool meeting = plan::meeting_of(plan_[task]).valid();
    return fmt::format("{} {} of step {}", meeting ? "was moving bytes in" : "was in", plan_.describe(task), shown);
  }
  if (!held.waiting.empty()) {
    const TaskId task = held.waiting.front();
    return fmt::format("waited in {} of step {} for {}", plan_.describe(task), shown,
                       ranks::name_ranks(missing(snapshots, task, step)));
  }
  if (held.gathering) {
    const std::vector<int> others = not_gathered(snapshots, rank);
    return others.empty() ? fmt::format("was between steps, before step {}", shown)
                          : fmt::format("had done step {} and waited for {}", step, ranks::name_ranks(others));
  }
  return fmt::format("was between tasks of step {}", shown);
}

/// The time for which a device may work without polling.
Nanoseconds StallDiagnosis::work_allowance(std::span<const ranks::ProgressSnapshot> snapshots, DeviceId device,
                                           Nanoseconds patience) const {
  bool under_way = false;
  Nanoseconds longest = patience;
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    const LanePosition at = position_of(snapshots, device, static_cast<plan::Lane>(lane));
    if (!at.task.valid() || !at.started) {
      continue;
    }
    under_way = true;
    longest = std::max(longest, at_speed(static_cast<double>(plan::work(plan_, at.task).flops.count), slow_flops_a_second));
  }
  double bytes = 0;
  for (std::size_t b = 0; b < plan_.buffers().size() && !under_way; ++b) {  // it may be making the next batch
    const plan::Buffer& buffer = plan_.buffers()[b];
    const bool loaded = buffer.role == plan::Role::input || buffer.role == plan::Role::target;
    bytes += loaded && buffer.device == device ? static_cast<double>(buffer.size().count) : 0;
  }
  return std::max(longest, at_speed(bytes, slow_data_bytes_a_second));
}

/// The time that messages may take after all their members have arrived.
Nanoseconds StallDiagnosis::crossing_allowance(std::span<const ranks::ProgressSnapshot> snapshots) const {
  double most = 0;
  for (std::size_t r = 0; r < snapshots.size(); ++r) {
    for (const TaskId task : held(snapshots, static_cast<int>(r)).working) {
      const plan::TaskWork work = plan::work(plan_, task);
      most = std::max(most, static_cast<double>(std::max(work.sent, work.received).count));
    }
  }
  return at_speed(most, slow_crossing_bytes_a_second);
}

/// The longest intended pause: a delay, or an emulated link. Devices poll meanwhile.
Nanoseconds StallDiagnosis::longest_pause(std::span<const ranks::ProgressSnapshot> snapshots) const {
  Nanoseconds longest;
  for (std::size_t r = 0; r < snapshots.size(); ++r) {
    for (const TaskId task : held(snapshots, static_cast<int>(r)).working) {
      if (const auto* delay = std::get_if<plan::Delay>(&plan_[task].action)) {
        longest = std::max(longest, delay->duration);
      } else if (const MeetingId meeting = plan::meeting_of(plan_[task]); link_ && meeting.valid()) {
        longest = std::max(longest, cost::link_time(plan_, meeting, *link_));
      }
    }
  }
  return longest;
}

/// The time that assembling and writing the state may take.
Nanoseconds StallDiagnosis::saving_allowance() const {
  double bytes = 0;
  for (const plan::Buffer& buffer : plan_.buffers()) {
    bytes += buffer.persistent ? static_cast<double>(buffer.size().count) : 0;
  }
  return slow_disk_ + at_speed(bytes, slow_data_bytes_a_second);
}

std::optional<StallDiagnosis::Stall> StallDiagnosis::stall(std::span<const ranks::ProgressSnapshot> snapshots,
                                                           std::span<const std::vector<bool>> still, Nanoseconds patience) const {
  if (!known(snapshots)) {
    return std::nullopt;
  }
  const bool all_train = std::all_of(snapshots.begin(), snapshots.end(), [](const ranks::ProgressSnapshot& snapshot) {
    return snapshot.activity == ranks::Activity::training;
  });
  Stall stall{{}, patience};
  for (std::size_t d = 0; d < rank_of_.size(); ++d) {
    const int rank = rank_of_[d];
    const auto r = static_cast<std::size_t>(rank);
    if (!still[r][own_[d]]) {
      continue;
    }
    stall.allowed = std::max(stall.allowed, snapshots[r].activity == ranks::Activity::training
                                                ? work_allowance(snapshots, DeviceId(d), patience)
                                                : saving_allowance());
    if (std::find(stall.ranks.begin(), stall.ranks.end(), rank) == stall.ranks.end()) {
      stall.ranks.push_back(rank);
    }
  }
  std::sort(stall.ranks.begin(), stall.ranks.end());
  if (stall.ranks.empty() || stall.ranks.size() == snapshots.size()) {
    stall.ranks.clear();
    stall.allowed = std::max({stall.allowed, patience * 2 + longest_pause(snapshots), crossing_allowance(snapshots),
                              all_train ? Nanoseconds(0) : saving_allowance()});
  }
  return stall;
}

}  // namespace baton::watch
