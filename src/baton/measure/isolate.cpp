#include "baton/measure/isolate.h"

#include <fmt/format.h>

#include <map>
#include <span>
#include <tuple>

namespace baton::measure {
namespace {

class Writer {
 public:
  explicit Writer(const plan::Plan& source) : source_(source) {}

  /// The `copy`-th of the task on a device, on copies of its buffers: one for each of its turns, or of its own. All of them live
  /// on, so that it may read what nothing has written.
  plan::Task& copy(TaskId id, DeviceId device, std::int64_t copy, std::span<const std::int64_t> turns = {}) {
    plan::Task task = source_[id];
    std::map<BufferId, BufferId> copies;
    std::size_t operand = 0;
    for (std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (BufferId& buffer : *list) {
        const std::int64_t turn = turns.empty() ? copy : copy % turns[operand];
        ++operand;
        if (const auto [found, added] = copies.try_emplace(buffer); added) {
          found->second = copy_of(id, buffer, device, turn);
        }
        buffer = copies.at(buffer);
      }
    }
    task.device = device;
    task.after.clear();
    tasks_.push_back(std::move(task));
    return tasks_.back();
  }
  void delay(DeviceId device, Nanoseconds duration) {
    plan::Task task;
    task.action = plan::Delay{duration};
    task.device = device;
    tasks_.push_back(std::move(task));
  }
  plan::Plan finish(std::string title) {
    return plan::Plan(std::move(title), source_.devices(), std::move(buffers_), std::move(tasks_));
  }

 private:
  BufferId copy_of(TaskId task, BufferId buffer, DeviceId device, std::int64_t turn) {
    const auto [found, added] = copies_.try_emplace({task, buffer, device, turn});
    if (added) {
      found->second = BufferId(buffers_.size());
      buffers_.push_back(source_[buffer]);
      buffers_.back().device = device;
      buffers_.back().persistent = true;
    }
    return found->second;
  }

  const plan::Plan& source_;
  std::map<std::tuple<TaskId, BufferId, DeviceId, std::int64_t>, BufferId> copies_;
  std::vector<plan::Buffer> buffers_;
  std::vector<plan::Task> tasks_;
};

}  // namespace

plan::Plan isolate_task(const plan::Plan& plan, TaskId task, const std::vector<DeviceId>& devices, std::int64_t copies,
                        const Turns& turns) {
  Writer writer(plan);
  const std::vector<std::int64_t> own = turns(task);
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (const DeviceId device : devices) {
      writer.copy(task, device, copy, own);
    }
  }
  return writer.finish(fmt::format("{} copies of {}", copies, plan.describe(task)));
}

plan::Plan isolate_after_delay(const plan::Plan& plan, TaskId task, Nanoseconds delay, std::int64_t copies) {
  Writer writer(plan);
  writer.delay(plan[task].device, delay);
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    writer.copy(task, plan[task].device, copy);
  }
  return writer.finish(fmt::format("{} copies of {} after a rest", copies, plan.describe(task)));
}

plan::Plan isolate_meeting(const plan::Plan& plan, MeetingId meeting, std::int64_t copies, const Turns& turns) {
  Writer writer(plan);
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (const TaskId member : plan.members(meeting)) {
      plan::Task& task = writer.copy(member, plan[member].device, copy, turns(member));
      const MeetingId own(static_cast<std::size_t>(copy));
      if (auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        transfer->meeting = own;
      } else {
        std::get<plan::Collective>(task.action).meeting = own;
      }
    }
  }
  return writer.finish(fmt::format("{} copies of {}", copies, plan.describe(plan.members(meeting)[0])));
}

}  // namespace baton::measure
