#include "baton/cost/measured.h"

#include <fmt/format.h>

#include <cmath>

#include "baton/base/error.h"

namespace baton::cost {
namespace {

/// Switches that a task has on. Numbers do not matter to how long it takes, but whether there is one (a rate) may.
template <typename Attributed>
std::string switches(Attributed attributed) {
  std::string text;
  attributes(attributed, [&](std::string_view name, auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, bool>) {
      text += value ? fmt::format(" {}", name) : "";
    } else if constexpr (std::is_same_v<Value, double>) {
      text += value > 0 ? fmt::format(" {}", name) : "";
    }
  });
  return text;
}

std::string operands(const plan::Plan& plan, std::span<const BufferId> ids) {
  std::string text;
  for (const BufferId id : ids) {
    const plan::Buffer& buffer = plan[id];
    text += fmt::format("{}{}{}[{}]", text.empty() ? "" : " ", to_text(buffer.dtype),
                        buffer.layout.empty() ? "" : fmt::format(" {} ", buffer.layout), to_text(buffer.shape));
  }
  return text;
}

}  // namespace

std::string key_of(const plan::Plan& plan, TaskId id, const cluster::Cluster& cluster) {
  const plan::Task& task = plan[id];
  const cluster::Device& device = cluster.device(task.device);
  const std::string team = device.gpu ? fmt::format("{} multiprocessors", device.gpu->multiprocessors)
                                      : fmt::format("{} core{}", device.cores.size(), device.cores.size() == 1 ? "" : "s");
  if (const MeetingId meeting = plan::meeting_of(task); meeting.valid()) {
    const plan::Task& first = plan[plan.members(meeting)[0]];
    const std::span<const BufferId> payload = plan::payload(first);
    const auto* collective = std::get_if<plan::Collective>(&first.action);
    return fmt::format("{}{}{} of {} B in {} buffer{} between {}, {} each", collective == nullptr ? "transfer" : plan::verb(first),
                       collective != nullptr && collective->sgd_rate > 0 ? " sgd" : "",
                       collective != nullptr && collective->accumulate ? " accumulate" : "", plan::bytes_of(plan, payload).count,
                       payload.size(), payload.size() == 1 ? "" : "s", plan.members(meeting).size(), team);
  }
  std::string text(plan::verb(task));
  if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
    text += switches(compute->op);
  } else if (const auto* update = std::get_if<plan::Update>(&task.action)) {
    text += switches(update->optimizer);
  }
  return fmt::format("{}: {} -> {} on {}", text, operands(plan, task.reads), operands(plan, task.writes), team);
}

Nanoseconds Measured::look_up(const plan::Plan& plan, TaskId task) const {
  const std::string key = key_of(plan, task, cluster_);
  const auto found = times_.find(key);
  if (found == times_.end()) {
    throw usage_error("no time was measured for {}: run baton calibrate for this job", key);
  }
  return found->second;
}

Nanoseconds Measured::duration(const plan::Plan& plan, TaskId task) const { return look_up(plan, task); }

Nanoseconds Measured::copying(const plan::Plan& plan, TaskId task) const {
  const std::span<const TaskId> members = plan.members(plan::meeting_of(plan[task]));
  double all = 0;
  for (const TaskId member : members) {
    all += static_cast<double>(carried(plan, member).count);
  }
  const double share = all > 0 ? static_cast<double>(carried(plan, task).count) / all : 0;
  const double together = static_cast<double>(look_up(plan, task).count) * static_cast<double>(members.size());
  return Nanoseconds(std::llround(together * share));
}

}  // namespace baton::cost
