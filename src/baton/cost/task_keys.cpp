#include "baton/cost/task_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/plan/memory.h"
#include "baton/plan/ordering.h"

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

std::string shapes_text(const plan::Plan& plan, std::span<const BufferId> ids) {
  std::string text;
  for (const BufferId id : ids) {
    const plan::Buffer& buffer = plan[id];
    text += fmt::format("{}{}{}[{}]", text.empty() ? "" : " ", to_text(buffer.dtype),
                        buffer.layout.empty() ? "" : fmt::format(" {} ", buffer.layout), to_text(buffer.shape));
  }
  return text;
}

constexpr std::int64_t nearest_distance = std::int64_t{256} << 10;  // nearer bytes are in a core's own cache
constexpr std::int64_t small_operand = std::int64_t{16} << 10;      // whose distance no time depends on

/// The time of a device's last access to each block of its arena, measured in the bytes that it had accessed until then.
class Touches {
 public:
  Touches(Bytes arena, std::int64_t farthest)
      : block_(std::max<std::int64_t>(4096, arena.count / 65536 + 1)),
        farthest_(farthest),
        last_(static_cast<std::size_t>(arena.count / block_ + 1), -farthest) {}

  /// The mean distance of these addresses, no block of which counts as farther away than the farthest.
  double distance(std::int64_t offset, std::int64_t bytes) const {
    double sum = 0;
    std::int64_t blocks = 0;
    for (std::int64_t b = offset / block_; b <= (offset + std::max<std::int64_t>(1, bytes) - 1) / block_; ++b, ++blocks) {
      sum += static_cast<double>(std::min(farthest_, now_ - last_[static_cast<std::size_t>(b)]));
    }
    return sum / static_cast<double>(blocks);
  }
  void touch(std::int64_t offset, std::int64_t bytes) {
    for (std::int64_t b = offset / block_; bytes > 0 && b <= (offset + bytes - 1) / block_; ++b) {
      last_[static_cast<std::size_t>(b)] = now_ + bytes;
    }
    now_ += bytes;
  }

 private:
  std::int64_t block_;
  std::int64_t farthest_;
  std::int64_t now_ = 0;
  std::vector<std::int64_t> last_;
};

/// To the nearest of 256 KiB, 1 MiB, 4 MiB, and from there on of powers of two up to the farthest: caches that devices share are of
/// that size.
Bytes rounded(double distance, std::int64_t farthest) {
  std::int64_t step = nearest_distance;
  while (step < farthest) {
    const std::int64_t next = std::min(farthest, step < std::int64_t{4} << 20 ? 4 * step : 2 * step);
    if (distance * distance <= static_cast<double>(step) * static_cast<double>(next)) {  // nearest as a ratio
      break;
    }
    step = next;
  }
  return Bytes(step);
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
  return fmt::format("{}: {} -> {} on {}", text, shapes_text(plan, task.reads), shapes_text(plan, task.writes), team);
}

TaskKeys::TaskKeys(const plan::Plan& plan, const cluster::Cluster& cluster, Bytes cache)
    : keys_(plan.tasks().size()), distances_(plan.tasks().size()) {
  const plan::Ordering ordering = plan::order(plan);
  const plan::Memory memory = plan::plan_memory(plan, ordering);
  const std::int64_t farthest = std::max(nearest_distance, 2 * cache.count);
  std::vector<Touches> touches;
  for (const Bytes peak : memory.peak) {
    touches.emplace_back(peak, farthest);
  }
  for (int step = 0; step < 2; ++step) {  // the first one for what it leaves in the caches
    for (const TaskId id : ordering.sequence) {
      const plan::Task& task = plan[id];
      Touches& device = touches[task.device.index()];
      std::vector<Bytes>& distances = distances_[id.index()];
      distances.clear();
      for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
        for (const BufferId buffer : *list) {
          const std::int64_t bytes = plan::bytes_of(plan, std::span(&buffer, 1)).count;
          distances.push_back(bytes < small_operand ? Bytes(nearest_distance)
                                                    : rounded(device.distance(memory.offset[buffer.index()], bytes), farthest));
        }
      }
      std::vector<BufferId> touched(task.reads);
      touched.insert(touched.end(), task.writes.begin(), task.writes.end());
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
      for (const BufferId buffer : touched) {
        device.touch(memory.offset[buffer.index()], plan::bytes_of(plan, std::span(&buffer, 1)).count);
      }
      device.touch(memory.workspace[id.index()], task.workspace.count);
    }
  }
  for (std::size_t t = 0; t < keys_.size(); ++t) {
    const MeetingId meeting = plan::meeting_of(plan.tasks()[t]);
    const std::span<const Bytes> own = distances(meeting.valid() ? plan.members(meeting)[0] : TaskId(t));
    std::string where;
    for (const Bytes distance : own) {
      where += fmt::format("{}{}", where.empty() ? "" : ", ", to_text(distance));
    }
    keys_[t] = fmt::format("{}; operands {} away", key_of(plan, TaskId(t), cluster), where);
  }
}

}  // namespace baton::cost
