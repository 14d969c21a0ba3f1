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

/// The sum of squares of one device with updates, and the gradients that it is taken of.
struct Summand {
  BufferId norm;
  std::vector<BufferId> gradients;
  plan::Labels labels;
};
using Summands = std::map<DeviceId, Summand>;

const plan::Update* update_of(const Task& task) { return std::get_if<plan::Update>(&task.action); }

/// Devices without updates are left out.
DeviceGroups with_updates(DeviceGroups groups, const Summands& summands) {
  for (std::vector<DeviceId>& group : groups) {
    std::erase_if(group, [&](DeviceId id) { return !summands.contains(id); });
  }
  return groups;
}

/// By device: the first of the devices with which it adds up its sum.
std::map<DeviceId, DeviceId> first_of_group(const DeviceGroups& groups, const Summands& summands) {
  std::map<DeviceId, DeviceId> first;
  for (const auto& [device, summand] : summands) {
    first[device] = device;
  }
  for (const std::vector<DeviceId>& group : groups) {
    for (const DeviceId device : group) {
      first[device] = group[0];
    }
  }
  return first;
}

}  // namespace

plan::Draft clip_gradients(plan::Draft draft, const DeviceGroups& groups) {
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
    const std::size_t count = plan::updated_count(task);
    own.gradients.insert(own.gradients.end(), task.reads.begin(), task.reads.begin() + static_cast<std::ptrdiff_t>(count));
    task.reads.push_back(own.norm);
  }

  const DeviceGroups sums = with_updates(groups, summands);
  const std::map<DeviceId, DeviceId> first = first_of_group(sums, summands);
  std::vector<std::vector<Task>> insertions(draft.tasks.size() + 1);
  std::vector<Task>& tasks = insertions[first_update];
  // If several devices hold the same part of a parameter, the first counts it.
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
      if (counted.insert({first.at(device), part.ordinal, part.axis, part.begin, part.end, part.piece_begin}).second) {
        task.reads.push_back(gradient);
      }
    }
    tasks.push_back(std::move(task));
  }
  for (const std::vector<DeviceId>& group : sums) {
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
  draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(insertions));
  return draft;
}

}  // namespace baton::strategy
