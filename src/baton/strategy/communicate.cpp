#include <algorithm>
#include <map>

#include "baton/base/error.h"
#include "baton/strategy/gradients.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Collective;
using plan::Draft;
using plan::Lane;
using plan::ParameterPart;
using plan::Phase;
using plan::Role;
using plan::Task;

Task communication(plan::Action action, DeviceId device, plan::Labels labels, std::vector<BufferId> reads,
                   std::vector<BufferId> writes) {
  return {.action = action,
          .device = device,
          .lane = Lane::communication,
          .labels = labels,
          .reads = std::move(reads),
          .writes = std::move(writes),
          .after = {}};
}

/// A buffer on another device for a copy of a buffer's content, for this step.
BufferId add_copy(Draft& draft, BufferId id, DeviceId device, Role role) {
  Buffer copy = draft[id];
  copy.device = device;
  copy.persistent = false;
  copy.role = role;
  return draft.add(std::move(copy));
}

/// Tasks to be inserted after others: at 0 before everything, at i + 1 after task i.
class Insertions {
 public:
  explicit Insertions(const Draft& draft) : places_(draft.tasks.size() + 1) {}

  void add(std::size_t at, Task task) {
    tasks_.resize(places_);
    tasks_[at].push_back(std::move(task));
  }

  void apply(Draft& draft) {
    if (!tasks_.empty()) {
      draft.rearrange(std::vector<bool>(draft.tasks.size(), false), std::move(tasks_));
    }
  }

 private:
  std::size_t places_;
  std::vector<std::vector<Task>> tasks_;  // empty until the first is added
};

bool is_piece(const Buffer& gradient) { return std::get<ParameterPart>(gradient.content).piece_end > 0; }

/// Adds the buckets of one group of devices.
void all_reduce_group(Draft& draft, Insertions& insertions, const std::vector<Gradients>& gradients, Bytes first_bucket,
                      Bytes bucket, const std::vector<DeviceId>& group) {
  struct Member {
    std::vector<BufferId> buffers;  // the device's gradients in the bucket
    std::size_t end_of_writes = 0;  // the task that writes the last of them
  };
  std::vector<Member> members(group.size());
  Bytes size;
  Bytes limit = first_bucket;
  const auto close = [&] {
    const auto count = std::count_if(members.begin(), members.end(), [](const Member& one) { return !one.buffers.empty(); });
    if (count > 1) {
      const MeetingId meeting = draft.new_meeting();
      std::uint32_t rank = 0;
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (const Member& one = members[i]; !one.buffers.empty()) {
          insertions.add(one.end_of_writes,
                         communication(Collective{plan::Move::all_reduce, meeting, rank++, static_cast<std::uint32_t>(count)},
                                       group[i], draft.tasks[one.end_of_writes - 1].labels, one.buffers, one.buffers));
        }
      }
    }
    for (Member& one : members) {
      one.buffers.clear();
      one.end_of_writes = 0;
    }
    size = Bytes(0);
    limit = bucket;
  };
  for (auto one = gradients.rbegin(); one != gradients.rend(); ++one) {
    Bytes added;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (const Gradients::Copy* copy = one->of(group[i])) {
        members[i].buffers.push_back(copy->id);
        members[i].end_of_writes = std::max(members[i].end_of_writes, copy->end_of_writes);
        added = draft[copy->id].size();
      }
    }
    size += added;
    if (size >= limit) {
      close();
    }
  }
  if (size.count > 0) {
    close();
  }
}

/// The ends of a device's collectives: of its latest cell of the schedule, and of those before.
class LastCollectives {
 public:
  void note(const plan::Labels& cell, std::size_t end) {
    if (!same_cell(cell, cell_)) {
      end_before_ = end_;
      cell_ = cell;
    }
    end_ = end;
  }
  /// After the last one of the cells before this one.
  std::size_t end_of_earlier_cells(const plan::Labels& cell) const { return same_cell(cell, cell_) ? end_before_ : end_; }

 private:
  static bool same_cell(const plan::Labels& a, const plan::Labels& b) {
    return a.phase == b.phase && a.micro_batch == b.micro_batch && a.stage == b.stage;
  }

  plan::Labels cell_;
  std::size_t end_ = 0;
  std::size_t end_before_ = 0;
};

}  // namespace

plan::Draft replicate_parameters(plan::Draft draft) {
  std::map<std::pair<BufferId, DeviceId>, BufferId> copies;
  std::map<DeviceId, std::vector<BufferId>> wanted;  // in order of first use
  std::vector<BufferId> sources;
  for (Task& task : draft.tasks) {
    for (BufferId& id : task.reads) {
      const Role role = draft[id].role;
      if ((role != Role::parameter && role != Role::statistic) || draft[id].device == task.device) {
        continue;
      }
      const auto [found, added] = copies.try_emplace({id, task.device});
      if (added) {
        found->second = add_copy(draft, id, task.device, role);
        wanted[task.device].push_back(found->second);
        if (std::find(sources.begin(), sources.end(), id) == sources.end()) {
          sources.push_back(id);
        }
      }
      id = found->second;
    }
  }
  if (wanted.empty()) {
    return draft;
  }
  Insertions insertions(draft);
  const MeetingId meeting = draft.new_meeting();
  const auto size = static_cast<std::uint32_t>(wanted.size() + 1);
  insertions.add(0, communication(Collective{plan::Move::broadcast, meeting, 0, size}, draft[sources[0]].device, {}, sources, {}));
  std::uint32_t rank = 1;
  for (auto& [device, buffers] : wanted) {
    check(buffers.size() == sources.size(), "device {} reads {} of {} parameters", device.value, buffers.size(), sources.size());
    insertions.add(0, communication(Collective{plan::Move::broadcast, meeting, rank++, size}, device, {}, {}, buffers));
  }
  insertions.apply(draft);
  return draft;
}

plan::Draft add_transfers(plan::Draft draft) {
  std::vector<std::size_t> end_of_writes(draft.buffers.size(), 0);
  std::vector<LastCollectives> collectives(draft.devices.size());
  std::map<std::pair<BufferId, DeviceId>, BufferId> copies;
  std::vector<bool> copied(draft.buffers.size(), false);
  Insertions insertions(draft);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    if (std::holds_alternative<Collective>(task.action)) {
      collectives[task.device.index()].note(task.labels, i + 1);
    }
    for (BufferId& id : task.reads) {
      const DeviceId from = draft[id].device;
      if (from == task.device) {
        continue;
      }
      const auto [found, added] = copies.try_emplace({id, task.device});
      if (added) {
        found->second = add_copy(draft, id, task.device, Role::communication);
        end_of_writes.push_back(0);
        copied.push_back(false);
        copied[id.index()] = true;
        const MeetingId meeting = draft.new_meeting();
        const std::size_t written = end_of_writes[id.index()];
        const std::size_t at = std::max(written, collectives[task.device.index()].end_of_earlier_cells(task.labels));
        plan::Labels sent = task.labels;  // those of its reader, but with the stage of the sender
        sent.stage = written == 0 ? -1 : draft.tasks[written - 1].labels.stage;
        insertions.add(at, communication(plan::Transfer{plan::Transfer::End::send, meeting, task.device}, from, sent, {id}, {}));
        insertions.add(at, communication(plan::Transfer{plan::Transfer::End::receive, meeting, from}, task.device, task.labels, {},
                                         {found->second}));
      }
      id = found->second;
    }
    for (const BufferId id : task.writes) {
      check(draft[id].device == task.device, "a task of device {} writes buffer {} of device {}", task.device.value, id.value,
            draft[id].device.value);
      end_of_writes[id.index()] = i + 1;
      if (copied[id.index()]) {
        const auto stale = copies.lower_bound({id, DeviceId(0)});  // the copies of its old content
        copies.erase(stale, std::find_if(stale, copies.end(), [&](const auto& entry) { return entry.first.first != id; }));
        copied[id.index()] = false;
      }
    }
  }
  insertions.apply(draft);
  return draft;
}

plan::Draft all_reduce_gradients(plan::Draft draft, Bytes first_bucket, Bytes bucket, const Replication& replication) {
  std::vector<Gradients> gradients = gradients_of_parameters(draft);
  bool any = false;
  for (std::size_t ordinal = 0; ordinal < gradients.size(); ++ordinal) {
    std::vector<Gradients::Copy>& copies = gradients[ordinal].copies;
    if (!copies.empty() && replication.parameters[ordinal].gradient != Conversion::all_reduce) {
      copies.clear();
    }
    any = any || !copies.empty();
  }
  if (!any) {
    return draft;
  }
  Insertions insertions(draft);
  for (const std::vector<DeviceId>& group : replication.groups) {
    all_reduce_group(draft, insertions, gradients, first_bucket, bucket, group);
  }
  insertions.apply(draft);
  return draft;
}

plan::Draft all_reduce_gradients(plan::Draft draft, Bytes first_bucket, Bytes bucket) {
  Replication all{{}, DeviceGroups(1)};
  all.parameters.resize(gradients_of_parameters(draft).size(), {.gradient = Conversion::all_reduce});
  for (std::size_t d = 0; d < draft.devices.size(); ++d) {
    all.groups[0].push_back(DeviceId(d));
  }
  return all_reduce_gradients(std::move(draft), first_bucket, bucket, all);
}

plan::Draft all_reduce_shared_gradients(plan::Draft draft, const std::map<std::uint32_t, DeviceGroups>& groups) {
  if (groups.empty()) {
    return draft;
  }
  std::vector<Gradients> gradients = gradients_of_parameters(draft);
  Insertions insertions(draft);
  // Sums that follow the same task: those of many small groups first, so that all parts have them in the same order.
  std::vector<std::map<std::uint32_t, DeviceGroups>::const_reverse_iterator> order;
  for (auto entry = groups.rbegin(); entry != groups.rend(); ++entry) {
    order.push_back(entry);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a->second.size() > b->second.size(); });
  for (const auto& entry : order) {
    Gradients& own = gradients.at(entry->first);
    std::vector<Gradients::Copy>& copies = own.copies;
    // If replicas keep pieces, a device without a piece has a whole gradient that is not the final one.
    if (std::any_of(copies.begin(), copies.end(), [&](const Gradients::Copy& copy) { return is_piece(draft[copy.id]); })) {
      std::erase_if(copies, [&](const Gradients::Copy& copy) { return !is_piece(draft[copy.id]); });
    }
    for (const std::vector<DeviceId>& group : entry->second) {
      std::size_t end_of_writes = 0;
      std::uint32_t size = 0;
      for (const DeviceId device : group) {
        const Gradients::Copy* copy = own.of(device);
        end_of_writes = copy == nullptr ? end_of_writes : std::max(end_of_writes, copy->end_of_writes);
        size += copy == nullptr ? 0 : 1;
      }
      if (size == 0) {
        continue;
      }
      const MeetingId meeting = draft.new_meeting();
      std::uint32_t rank = 0;
      for (const DeviceId device : group) {
        if (const Gradients::Copy* copy = own.of(device)) {
          insertions.add(end_of_writes, communication(Collective{plan::Move::all_reduce, meeting, rank++, size}, device,
                                                      draft.tasks[end_of_writes - 1].labels, {copy->id}, {copy->id}));
        }
      }
    }
  }
  insertions.apply(draft);
  return draft;
}

plan::Draft reduce_gradients_to(plan::Draft draft, DeviceId owner) {
  std::map<DeviceId, std::vector<BufferId>> members;
  std::size_t end_of_writes = 0;
  for (const Gradients& one : gradients_of_parameters(draft)) {
    for (const Gradients::Copy& copy : one.copies) {
      members[copy.device].push_back(copy.id);
      end_of_writes = std::max(end_of_writes, copy.end_of_writes);
    }
  }
  if (members.size() < 2) {
    return draft;
  }
  check(members.contains(owner), "device {} owns no gradient", owner.value);
  Insertions insertions(draft);
  const MeetingId meeting = draft.new_meeting();
  const auto size = static_cast<std::uint32_t>(members.size());
  const plan::Labels labels{.phase = Phase::backward};
  insertions.add(end_of_writes,
                 communication(Collective{plan::Move::reduce, meeting, 0, size}, owner, labels, members[owner], members[owner]));
  std::uint32_t rank = 1;
  for (const auto& [device, buffers] : members) {
    if (device != owner) {
      insertions.add(end_of_writes,
                     communication(Collective{plan::Move::reduce, meeting, rank++, size}, device, labels, buffers, {}));
    }
  }
  insertions.apply(draft);
  return draft;
}

}  // namespace baton::strategy
