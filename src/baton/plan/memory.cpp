#include "baton/plan/memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::plan {
namespace {

struct Placed {
  std::int64_t begin;
  std::int64_t end;
  Clock last;  // by lane: the position of the last task that touches it
};

std::int64_t aligned(std::int64_t size) { return (size + Memory::alignment - 1) / Memory::alignment * Memory::alignment; }

/// Whether a buffer keeps its place to the end of the step: also losses, which are read once it is over.
bool lives_on(const Buffer& buffer) { return buffer.persistent || buffer.role == Role::loss; }

bool within(const Clock& last, const Clock& done) {
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    if (last[lane] > done[lane]) {
      return false;
    }
  }
  return true;
}

/// The temporary buffers of one device, placed in the order in which they are first written.
class Arena {
 public:
  explicit Arena(std::int64_t base) : base_(base), end_(base) {}

  /// Finds the lowest gap among the buffers that may still be in use when a task with this clock starts.
  std::int64_t place(std::int64_t size, const Clock& start, const Clock& last) {
    const std::size_t solid = solid_prefix(start);
    std::int64_t offset = solid > 0 ? placed_[solid - 1].end : base_;
    for (std::size_t i = solid; i < placed_.size(); ++i) {  // sorted by address
      const Placed& other = placed_[i];
      if (within(other.last, start)) {
        continue;
      }
      if (offset + size <= other.begin) {
        break;
      }
      offset = std::max(offset, other.end);
    }
    const Placed entry{offset, offset + size, last};
    const auto at = std::upper_bound(placed_.begin(), placed_.end(), entry,
                                     [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    const auto index = static_cast<std::size_t>(at - placed_.begin());
    placed_.insert(at, entry);
    least_last_.resize(std::min(least_last_.size(), index));
    extend_prefix();
    end_ = std::max(end_, offset + size);
    return offset;
  }

  /// Forgets buffers that no later task can meet in use; looks only now and then, so that looking costs little a task.
  void forget(const Clock& earliest) {
    // Between two looks the dead pile up and are passed over one by one: the root balances the two costs.
    if (++tasks_ < 64 + static_cast<std::size_t>(std::sqrt(placed_.size()))) {
      return;
    }
    tasks_ = 0;
    if (std::erase_if(placed_, [&](const Placed& entry) { return within(entry.last, earliest); }) > 0) {
      least_last_.clear();
      extend_prefix();
    }
  }

  std::int64_t end() const { return end_; }

 private:
  static constexpr std::size_t lane = static_cast<std::size_t>(Lane::compute);

  /// How many of the lowest buffers lie without a gap and are all in use at `start`: a backward finds thousands of
  /// activations there, and need not look at each.
  std::size_t solid_prefix(const Clock& start) const {
    const auto end = std::partition_point(least_last_.begin(), least_last_.end(),
                                          [&](std::uint32_t least) { return least > start[lane]; });
    return static_cast<std::size_t>(end - least_last_.begin());
  }

  void extend_prefix() {
    while (least_last_.size() < placed_.size()) {
      const std::size_t next = least_last_.size();
      if (placed_[next].begin != (next == 0 ? base_ : placed_[next - 1].end)) {
        return;
      }
      const std::uint32_t last = placed_[next].last[lane];
      least_last_.push_back(next == 0 ? last : std::min(last, least_last_.back()));
    }
  }

  std::int64_t base_;
  std::int64_t end_;
  std::size_t tasks_ = 0;  // since it last looked for what can be forgotten
  std::vector<Placed> placed_;
  /// For the buffers that lie from the base on without a gap: the least of their and all lower ones' last touches.
  std::vector<std::uint32_t> least_last_;
};

}  // namespace

Memory plan_memory(const Plan& plan, const Ordering& ordering) {
  const std::size_t devices = plan.devices().size();
  Memory memory{std::vector<std::int64_t>(plan.buffers().size(), 0), std::vector<std::int64_t>(plan.tasks().size(), 0),
                std::vector<Bytes>(devices)};

  std::vector<std::int64_t> base(devices, 0);
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    if (lives_on(buffer)) {
      memory.offset[b] = base[buffer.device.index()];
      base[buffer.device.index()] += aligned(buffer.size().count);
    }
  }

  std::vector<Clock> last(plan.buffers().size(), Clock{});
  std::vector<TaskId> first(plan.buffers().size());
  for (const TaskId id : ordering.sequence) {
    const Task& task = plan[id];
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId buffer : *list) {
        if (!first[buffer.index()].valid()) {
          first[buffer.index()] = id;
        }
        std::uint32_t& position = last[buffer.index()][static_cast<std::size_t>(task.lane)];
        position = std::max(position, ordering.position[id.index()]);
      }
    }
  }

  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  // For each task in sequence, the least its device's later tasks are certain of: what may be forgotten then.
  std::vector<Clock> ahead(devices, Clock{most, most, most});
  std::vector<Clock> earliest(plan.tasks().size());
  for (auto id = ordering.sequence.rbegin(); id != ordering.sequence.rend(); ++id) {
    Clock& clock = ahead[plan[*id].device.index()];
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      clock[lane] = std::min(clock[lane], ordering.start[id->index()][lane]);
    }
    earliest[id->index()] = clock;
  }

  std::vector<Arena> arenas;
  for (const std::int64_t start : base) {
    arenas.emplace_back(start);
  }
  for (const TaskId id : ordering.sequence) {
    const Task& task = plan[id];
    Arena& arena = arenas[task.device.index()];
    const Clock& start = ordering.start[id.index()];
    for (const BufferId buffer : task.writes) {
      if (first[buffer.index()] == id && !lives_on(plan[buffer])) {
        first[buffer.index()] = TaskId();  // placed
        memory.offset[buffer.index()] = arena.place(aligned(plan[buffer].size().count), start, last[buffer.index()]);
      }
    }
    if (task.workspace.count > 0) {
      Clock only_this{};
      only_this[static_cast<std::size_t>(task.lane)] = ordering.position[id.index()];
      memory.workspace[id.index()] = arena.place(aligned(task.workspace.count), start, only_this);
    }
    arena.forget(earliest[id.index()]);
  }
  for (std::size_t d = 0; d < devices; ++d) {
    memory.peak[d] = Bytes(arenas[d].end());
  }
  return memory;
}

}  // namespace baton::plan
