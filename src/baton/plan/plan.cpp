#include "baton/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "baton/base/error.h"
#include "baton/op/signature.h"

namespace baton::plan {

BufferId Draft::add(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return BufferId(buffers.size() - 1);
}

void Draft::rearrange(const std::vector<bool>& dropped, std::vector<std::vector<Task>> insertions) {
  check(dropped.size() == tasks.size() && insertions.size() == tasks.size() + 1, "{} marks and {} places for {} tasks",
        dropped.size(), insertions.size(), tasks.size());
  std::size_t added = 0;
  for (const std::vector<Task>& list : insertions) {
    added += list.size();
  }
  if (added == 0 && std::find(dropped.begin(), dropped.end(), true) == dropped.end()) {
    return;
  }
  // First where every task comes to stand, then the moves, within the list: plans have millions of tasks.
  std::vector<TaskId> place(tasks.size());
  std::vector<TaskId> latest(devices.size() * lane_count);
  std::size_t count = 0;
  const auto latest_of = [&](const Task& task) -> TaskId& {
    return latest[task.device.index() * lane_count + static_cast<std::size_t>(task.lane)];
  };
  const auto settle = [&](Task& task, std::size_t at) {
    for (TaskId& id : task.after) {
      check(id.index() < at, "a task at place {} comes after task {}", at, id.value);
      id = place[id.index()];
    }
    std::erase_if(task.after, [](TaskId id) { return !id.valid(); });
    latest_of(task) = TaskId(count++);
  };
  for (Task& task : insertions.front()) {
    settle(task, 0);
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!dropped[i]) {
      settle(tasks[i], i);
    }
    place[i] = latest_of(tasks[i]);
    for (Task& task : insertions[i + 1]) {
      settle(task, i + 1);
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!dropped[i]) {
      if (kept != i) {
        tasks[kept] = std::move(tasks[i]);
      }
      ++kept;
    }
  }
  if (tasks.capacity() < count) {
    tasks.reserve(count + count / 4);
  }
  const std::size_t before = tasks.size();
  tasks.resize(count);
  std::size_t free = count;  // from here on all is in place
  for (std::size_t i = before + 1; i-- > 0 && free > kept;) {
    for (auto task = insertions[i].rbegin(); task != insertions[i].rend(); ++task) {
      tasks[--free] = std::move(*task);
    }
    if (i > 0 && !dropped[i - 1]) {
      --kept;
      if (--free != kept) {
        tasks[free] = std::move(tasks[kept]);
      }
    }
  }
}

Plan::Plan(std::string title, std::vector<std::string> devices, std::vector<Buffer> buffers, std::vector<Task> tasks, Graph graph)
    : body_(std::make_shared<const Body>(with_lanes({.title = std::move(title),
                                                     .devices = std::move(devices),
                                                     .buffers = std::move(buffers),
                                                     .tasks = std::move(tasks),
                                                     .graph = std::move(graph)}))) {}

/// Adds lanes, positions and meetings, which follow from the tasks.
Plan::Body Plan::with_lanes(Body body) {
  body.lanes.resize(body.devices.size() * lane_count);
  for (const Buffer& buffer : body.buffers) {
    check(buffer.device.index() < body.devices.size(), "buffer on device {} of {}", buffer.device.value, body.devices.size());
  }
  body.position.reserve(body.tasks.size());
  body.before.reserve(body.tasks.size());
  for (std::size_t i = 0; i < body.tasks.size(); ++i) {
    const Task& task = body.tasks[i];
    check(task.device.index() < body.devices.size(), "task {} on device {} of {}", i, task.device.value, body.devices.size());
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        check(id.index() < body.buffers.size(), "task {} touches buffer {} of {}", i, id.value, body.buffers.size());
      }
    }
    for (const TaskId id : task.after) {
      check(id.index() < body.tasks.size(), "task {} comes after task {} of {}", i, id.value, body.tasks.size());
    }
    std::vector<TaskId>& lane = body.lanes[task.device.index() * lane_count + static_cast<std::size_t>(task.lane)];
    body.position.push_back(static_cast<std::uint32_t>(lane.size()));
    body.before.push_back(lane.empty() ? TaskId() : lane.back());
    lane.push_back(TaskId(i));
    if (const MeetingId meeting = meeting_of(task); meeting.valid()) {
      check(meeting.index() < 2 * body.tasks.size(), "meeting {} in a plan of {} tasks", meeting.value, body.tasks.size());
      if (meeting.index() >= body.meetings.size()) {
        body.meetings.resize(meeting.index() + 1);
      }
      body.meetings[meeting.index()].push_back(TaskId(i));
    }
  }
  return body;
}

std::span<const TaskId> Plan::lane(DeviceId device, Lane lane) const {
  return body_->lanes[device.index() * lane_count + static_cast<std::size_t>(lane)];
}

std::string Plan::describe(TaskId id) const {
  const Task& task = body_->tasks[id.index()];
  std::string text = fmt::format("t{} ({} in the {}", id.value, verb(task), to_text(task.labels.phase));
  if (task.labels.block >= 0) {
    text += fmt::format(" of block {}", task.labels.block);
  }
  if (task.labels.micro_batch >= 0) {
    text += fmt::format(", micro-batch {}", task.labels.micro_batch);
  }
  return text + fmt::format(", on {})", body_->devices[task.device.index()]);
}

bool Plan::operator==(const Plan& other) const {
  const Body& a = *body_;
  const Body& b = *other.body_;
  return &a == &b ||
         (a.title == b.title && a.devices == b.devices && a.buffers == b.buffers && a.tasks == b.tasks && a.graph == b.graph);
}

std::string_view to_text(Lane lane) {
  return lane == Lane::compute ? "compute" : lane == Lane::communication ? "communication" : "host";
}

std::string_view to_text(Phase phase) {
  return phase == Phase::forward ? "forward" : phase == Phase::backward ? "backward" : "update";
}

std::string_view verb(const Task& task) {
  struct {
    std::string_view operator()(const Compute& compute) const { return op::name(compute.op); }
    std::string_view operator()(const Transfer& transfer) const { return transfer.end == Transfer::End::send ? "send" : "receive"; }
    std::string_view operator()(const Collective& collective) const { return to_text(collective.kind); }
    std::string_view operator()(const Update& update) const { return op::name(update.optimizer); }
    std::string_view operator()(const Delay&) const { return "delay"; }
    std::string_view operator()(const Load&) const { return "load"; }
    std::string_view operator()(const Take&) const { return "take"; }
  } visitor;
  return std::visit(visitor, task.action);
}

std::size_t updated_count(const Task& task) {
  const auto& update = std::get<Update>(task.action);
  return task.writes.size() / (1 + op::state_slots(update.optimizer) + (update.copies ? 1 : 0));
}

std::size_t copy_count(const Task& task) {
  if (const auto* update = std::get_if<Update>(&task.action)) {
    return update->copies ? updated_count(task) : 0;
  }
  const auto* compute = std::get_if<Compute>(&task.action);
  return compute == nullptr ? 0 : op::signature(compute->op).copies;
}

bool is_product(const Task& task) {
  const auto* compute = std::get_if<Compute>(&task.action);
  return compute != nullptr && op::is_product(compute->op);
}

std::span<const BufferId> payload(const Task& task) {
  const MoveRule& rule = rule_of(move_of(task));
  const std::span<const BufferId> reads = task.reads;
  if (rule.owner == MoveRule::Owner::piece) {
    const std::size_t added = rule.sums && std::get<Collective>(task.action).accumulate ? task.writes.size() : 0;
    return rule.sums ? reads.first(reads.size() - std::min(reads.size(), added)) : task.writes;
  }
  const auto* collective = std::get_if<Collective>(&task.action);
  if (collective != nullptr && collective->sgd_rate > 0) {
    return reads.first(reads.size() / 2);
  }
  return reads.empty() ? task.writes : reads;
}

std::span<const BufferId> pieces(const Task& task) { return rule_of(move_of(task)).sums ? task.writes : task.reads; }

Move move_of(const Task& task) {
  const auto* collective = std::get_if<Collective>(&task.action);
  return collective == nullptr ? Move::copy : collective->kind;
}

std::uint32_t rank_of(const Task& task) {
  if (const auto* transfer = std::get_if<Transfer>(&task.action)) {
    return transfer->end == Transfer::End::send ? 0 : 1;
  }
  return std::get<Collective>(task.action).rank;
}

MeetingId meeting_of(const Task& task) {
  if (const auto* transfer = std::get_if<Transfer>(&task.action)) {
    return transfer->meeting;
  }
  if (const auto* collective = std::get_if<Collective>(&task.action)) {
    return collective->meeting;
  }
  return {};
}

Plan finish(Draft draft) {
  struct Touch {
    TaskId write;
    std::array<TaskId, lane_count> reads;  // the latest of each lane since that write
  };
  std::vector<Touch> touches(draft.buffers.size());
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    std::array<TaskId, lane_count> latest{};
    const std::vector<TaskId> wanted = std::exchange(task.after, {});
    const auto come_after = [&](TaskId other) {
      if (!other.valid()) {
        return;
      }
      TaskId& kept = latest[static_cast<std::size_t>(draft.tasks[other.index()].lane)];
      if (!kept.valid() || kept < other) {
        kept = other;
      }
    };
    for (const TaskId id : wanted) {
      check(id.index() < i && draft.tasks[id.index()].device == task.device, "task {} comes after task {}", i, id.value);
      come_after(id);
    }
    for (const BufferId id : task.reads) {
      check(draft[id].device == task.device, "{} of device {} reads buffer {} of device {}", verb(task), task.device.value,
            id.value, draft[id].device.value);
      come_after(touches[id.index()].write);
    }
    for (const BufferId id : task.writes) {
      check(draft[id].device == task.device, "{} of device {} writes buffer {} of device {}", verb(task), task.device.value,
            id.value, draft[id].device.value);
      come_after(touches[id.index()].write);
      for (const TaskId read : touches[id.index()].reads) {
        come_after(read);
      }
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (latest[lane].valid() && lane != static_cast<std::size_t>(task.lane)) {
        task.after.push_back(latest[lane]);
      }
    }
    for (const BufferId id : task.reads) {
      touches[id.index()].reads[static_cast<std::size_t>(task.lane)] = TaskId(i);
    }
    for (const BufferId id : task.writes) {
      touches[id.index()] = {TaskId(i), {}};
    }
  }
  return Plan(std::move(draft.title), std::move(draft.devices), std::move(draft.buffers), std::move(draft.tasks),
              std::move(draft.graph));
}

}  // namespace baton::plan
