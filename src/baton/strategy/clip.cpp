#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "baton/base/error.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {
namespace {

using plan::ParameterPart;
using plan::Phase;
using plan::Role;
using plan::Task;

/// What one device with updates has.
struct Summand {
  BufferId norm;
  std::vector<BufferId> gradients;
  plan::Labels labels;
};
using Summands = std::map<DeviceId, Summand>;

const plan::Update* update_of(const Task& task) { return std::get_if<plan::Update>(&task.action); }

/// Devices of which nobody has updates are left out. If only some of a group have none, what the rounds bring together is not what
/// they would: then all devices add up their sums at once.
std::vector<DeviceGroups> rounds_of(const std::vector<DeviceGroups>& rounds, const Summands& summands) {
  std::vector<DeviceGroups> kept;
  bool even = true;
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    DeviceGroups& groups = kept.emplace_back();
    for (const std::vector<DeviceId>& group : rounds[r]) {
      std::vector<DeviceId> members;
      std::copy_if(group.begin(), group.end(), std::back_inserter(members), [&](DeviceId id) { return summands.contains(id); });
      even = even && (r + 1 == rounds.size() || members.empty() || members.size() == group.size());
      groups.push_back(std::move(members));
    }
  }
  if (!even) {
    kept = {{{}}};
    for (const auto& [device, summand] : summands) {
      kept[0][0].push_back(device);
    }
  }
  return kept;
}

/// By device: which of those that add up their sums it belongs to.
std::map<DeviceId, DeviceId> circles(const std::vector<DeviceGroups>& rounds, const Summands& summands) {
  std::map<DeviceId, DeviceId> first;
  for (const auto& [device, summand] : summands) {
    first[device] = device;
  }
  const auto find = [&](DeviceId device) {
    while (first[device] != device) {
      device = first[device] = first[first[device]];
    }
    return device;
  };
  for (const DeviceGroups& groups : rounds) {
    for (const std::vector<DeviceId>& group : groups) {
      for (const DeviceId device : group) {
        first[find(device)] = find(group[0]);
      }
    }
  }
  for (auto& [device, of] : first) {
    of = find(device);
  }
  return first;
}

}  // namespace

plan::Draft clip_gradients(plan::Draft draft, const std::vector<DeviceGroups>& rounds) {
  Summands summands;
  std::size_t first_update = draft.tasks.size();
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    const plan::Update* update = update_of(task);
    if (update == nullptr) {
      check(first_update == draft.tasks.size(), "task {} comes after the first update", i);
      continue;
    }
    first_update = std::min(first_update, i);
    Summand& own = summands[task.device];
    if (!own.norm.valid()) {
      own.norm = draft.add({.device = task.device,
                            .role = Role::communication,
                            .dtype = DType::f64,
                            .shape = Shape{1},
                            .content = plan::SquaredNorm{},
                            .label = "squares of the gradients"});
      own.labels = {.phase = Phase::update, .stage = task.labels.stage};
    }
    const std::size_t count = task.writes.size() / (1 + op::state_slots(update->optimizer));
    own.gradients.insert(own.gradients.end(), task.reads.begin(), task.reads.begin() + static_cast<std::ptrdiff_t>(count));
    task.reads.push_back(own.norm);
  }

  const std::vector<DeviceGroups> sums = rounds_of(rounds, summands);
  const std::map<DeviceId, DeviceId> circle = circles(sums, summands);
  std::vector<std::vector<Task>> behind(draft.tasks.size() + 1);
  std::vector<Task>& tasks = behind[first_update];
  // Of devices that hold the same part of a parameter the first counts it.
  std::set<std::tuple<DeviceId, std::uint32_t, std::uint32_t, std::int64_t, std::int64_t, std::int64_t>> counted;
  for (const auto& [device, own] : summands) {
    Task task{.action = plan::Compute{op::SquaredSum{}},
              .device = device,
              .labels = own.labels,
              .reads = {},
              .writes = {own.norm},
              .after = {}};
    for (const BufferId gradient : own.gradients) {
      const auto& part = std::get<ParameterPart>(draft[gradient].content);
      if (counted.insert({circle.at(device), part.ordinal, part.axis, part.begin, part.end, part.piece_begin}).second) {
        task.reads.push_back(gradient);
      }
    }
    tasks.push_back(std::move(task));
  }
  for (const DeviceGroups& groups : sums) {
    for (const std::vector<DeviceId>& group : groups) {
      if (group.size() < 2) {
        continue;
      }
      const MeetingId meeting = draft.new_meeting();
      for (std::size_t rank = 0; rank < group.size(); ++rank) {
        const Summand& own = summands.at(group[rank]);
        tasks.push_back({.action = plan::Collective{plan::Move::all_reduce, meeting, static_cast<std::uint32_t>(rank),
                                                    static_cast<std::uint32_t>(group.size())},
                         .device = group[rank],
                         .lane = plan::Lane::communication,
                         .labels = own.labels,
                         .reads = {own.norm},
                         .writes = {own.norm},
                         .after = {}});
      }
    }
  }
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(behind));
  return draft;
}

}  // namespace baton::strategy
