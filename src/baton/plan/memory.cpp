#include "baton/plan/memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "baton/op/traits.h"

namespace baton::plan {
namespace {

struct Placed {
  std::int64_t begin;
  std::int64_t end;
  VectorClock last;  // by lane: how many of its tasks must be done before the place is free
};

std::int64_t aligned(std::int64_t size) { return (size + Memory::alignment - 1) / Memory::alignment * Memory::alignment; }

/// True if a buffer keeps its place to the end of the step: also losses, which are read once it is over.
bool lives_on(const Buffer& buffer) { return buffer.persistent || buffer.role == Role::loss; }

/// Addresses by the number of buffers that hold them: runs of equal count, in order, the last without end. Finds the lowest gap of
/// a size by looking at one run after the other while they are few; then in logarithmic time unless many gaps are nearly as large.
class Addresses {
 public:
  explicit Addresses(std::int64_t base) : runs_{{base, 0}} {}

  /// This many buffers more hold [begin, end).
  void change(std::int64_t begin, std::int64_t end, int more) {
    auto run = split(begin);
    const auto behind = split(end);
    for (; run != behind; ++run) {
      run->second += more;
    }
    if (gaps_.empty() && runs_.size() > few_runs) {
      gaps_.resize(class_count);
      for (auto one = runs_.begin(); one != runs_.end(); ++one) {
        remember(one);
      }
    }
    run = join(runs_.find(begin));
    if (run != runs_.begin()) {
      remember(std::prev(run));  // it may have been longer
    }
    remember(run);
    for (; run != runs_.end() && run->first < end; ++run) {
      remember(join(std::next(run)));  // the last of them may be joined to what follows
    }
  }

  std::int64_t lowest_gap(std::int64_t size) {
    if (gaps_.empty()) {
      auto run = runs_.begin();
      while (run->second != 0 || length(run) < size) {
        ++run;
      }
      return run->first;
    }
    std::int64_t lowest = runs_.rbegin()->first;
    for (std::uint64_t left = classes_ >> class_of(size) << class_of(size); left != 0; left &= left - 1) {
      const auto k = static_cast<std::size_t>(std::countr_zero(left));
      for (auto gap = gaps_[k].begin(); gap != gaps_[k].end() && *gap < lowest;) {
        const auto run = runs_.find(*gap);
        if (run == runs_.end() || run->second != 0 || class_of(length(run)) != k) {
          gap = gaps_[k].erase(gap);  // it is no longer there, or has another size
          continue;
        }
        if (length(run) >= size) {
          lowest = *gap;
        }
        ++gap;
      }
      if (gaps_[k].empty()) {
        classes_ &= ~(std::uint64_t{1} << k);
      }
    }
    return lowest;
  }

 private:
  using Runs = std::map<std::int64_t, int>;  // by where they begin
  static constexpr std::size_t few_runs = 64;
  static constexpr std::size_t class_count = 64;  // for all lengths that are not negative

  static std::size_t class_of(std::int64_t size) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size)));
  }
  std::int64_t length(Runs::const_iterator run) const {
    const auto next = std::next(run);
    return (next == runs_.end() ? std::numeric_limits<std::int64_t>::max() : next->first) - run->first;
  }
  /// The run that begins there, which is made if there is none.
  Runs::iterator split(std::int64_t at) {
    const auto behind = runs_.upper_bound(at);
    const auto run = std::prev(behind);
    return run->first == at ? run : runs_.emplace_hint(behind, at, run->second);
  }
  /// Joins a run to the one before it, if both have one count.
  Runs::iterator join(Runs::iterator run) {
    if (run == runs_.begin() || std::prev(run)->second != run->second) {
      return run;
    }
    return std::prev(runs_.erase(run));
  }
  void remember(Runs::const_iterator run) {
    if (run->second == 0 && !gaps_.empty()) {
      gaps_[class_of(length(run))].insert(run->first);
      classes_ |= std::uint64_t{1} << class_of(length(run));
    }
  }

  Runs runs_;
  std::vector<std::set<std::int64_t>> gaps_;  // the beginnings of gaps, by the class of their length; some no longer exist
  std::uint64_t classes_ = 0;                 // bits of the classes that have any
};

/// The buffers that may still be in use for one lane of a device: those whose tasks its next task is not certain to come after. Its
/// certainty only grows, so that a buffer leaves once.
class View {
 public:
  View(std::int64_t base, const std::array<std::size_t, lane_count>& lengths) : held_(base) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      waiting_[lane].assign(lengths[lane] + 1, none);
    }
  }

  void add(std::uint32_t number, const Placed& placed) {
    next_.resize(number + 1, none);
    if (wait(number, placed)) {
      held_.change(placed.begin, placed.end, 1);
    }
  }

  /// Removes the buffers whose tasks come before the lane's next task, by its clock.
  void advance(const VectorClock& start, const std::vector<Placed>& all) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      while (done_[lane] < start[lane]) {
        std::uint32_t number = std::exchange(waiting_[lane][++done_[lane]], none);
        while (number != none) {
          const std::uint32_t next = next_[number];
          if (!wait(number, all[number])) {
            held_.change(all[number].begin, all[number].end, -1);
          }
          number = next;
        }
      }
    }
  }

  std::int64_t lowest_gap(std::int64_t size) { return held_.lowest_gap(size); }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Lists it under a task that is not certain to be done; returns false if all are.
  bool wait(std::uint32_t number, const Placed& placed) {
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (placed.last[lane] > done_[lane]) {
        next_[number] = std::exchange(waiting_[lane][placed.last[lane]], number);
        return true;
      }
    }
    return false;
  }

  Addresses held_;
  VectorClock done_{};
  std::array<std::vector<std::uint32_t>, lane_count> waiting_;  // by how many tasks of the lane must be done: the first buffer
  std::vector<std::uint32_t> next_;                             // by buffer: another that waits for the same
};

/// The temporary buffers of one device, placed in the order in which they are first written.
class Arena {
 public:
  Arena(std::int64_t base, const Plan& plan, DeviceId device) : end_(base) {
    std::array<std::size_t, lane_count> lengths{};
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      lengths[lane] = plan.lane(device, static_cast<Lane>(lane)).size();
    }
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
      if (lengths[lane] > 0) {
        views_[lane].emplace(base, lengths);
      }
    }
  }

  /// Finds the lowest gap among the buffers that may still be in use when a task of the lane with this clock starts.
  std::int64_t place(Lane lane, std::int64_t size, const VectorClock& start, const VectorClock& last) {
    View& own = *views_[static_cast<std::size_t>(lane)];
    own.advance(start, placed_);
    const std::int64_t offset = own.lowest_gap(size);
    hold(offset, size, last);
    end_ = std::max(end_, offset + size);
    return offset;
  }

  /// Holds these addresses, which another buffer may hold too, until `last`.
  void hold(std::int64_t offset, std::int64_t size, const VectorClock& last) {
    placed_.push_back({offset, offset + size, last});
    for (std::optional<View>& view : views_) {
      if (view) {
        view->add(static_cast<std::uint32_t>(placed_.size() - 1), placed_.back());
      }
    }
  }

  std::int64_t end() const { return end_; }

 private:
  std::int64_t end_;
  std::vector<Placed> placed_;
  std::array<std::optional<View>, lane_count> views_;  // views of the lanes that have tasks
};

/// The order in which tasks' first writes place buffers: that of the plan, which each device could follow, so that a device's
/// memory does not depend on what others do. A plan whose tasks come after later ones is taken in the computed order.
std::vector<TaskId> placing_order(const Plan& plan, const Ordering& ordering) {
  std::vector<TaskId> list(plan.tasks().size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = TaskId(i);
    for (const TaskId before : plan.tasks()[i].after) {
      if (before.index() > i) {
        return ordering.sequence;
      }
    }
  }
  return list;
}

/// The operand in whose place a task may put a result that it writes; an invalid id if there is none.
BufferId overwritten_by(const Task& task, BufferId result) {
  const auto* compute = std::get_if<Compute>(&task.action);
  const std::optional<op::Overwritten> pair = compute == nullptr ? std::nullopt : op::overwritten(compute->op);
  return pair && task.writes[pair->written] == result ? task.reads[pair->read] : BufferId();
}

}  // namespace

Memory plan_memory(const Plan& plan, const Ordering& ordering) {
  const std::size_t devices = plan.devices().size();
  Memory memory{std::vector<std::int64_t>(plan.buffers().size(), 0), std::vector<std::int64_t>(plan.tasks().size(), 0),
                std::vector<Bytes>(devices)};

  std::vector<std::int64_t> base(devices, 0);
  std::vector<std::int64_t> size(plan.buffers().size(), 0);  // bytes that have no place yet, by buffer
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    if (lives_on(buffer)) {
      memory.offset[b] = base[buffer.device.index()];
      base[buffer.device.index()] += aligned(buffer.size().count);
    } else {
      size[b] = aligned(buffer.size().count);
    }
  }

  std::vector<VectorClock> last(plan.buffers().size(), VectorClock{});
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    const Task& task = plan.tasks()[i];
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId buffer : *list) {
        std::uint32_t& done = last[buffer.index()][static_cast<std::size_t>(task.lane)];
        done = std::max(done, plan.position(TaskId(i)) + 1);
      }
    }
  }

  std::vector<Arena> arenas;
  arenas.reserve(devices);
  for (std::size_t d = 0; d < devices; ++d) {
    arenas.emplace_back(base[d], plan, DeviceId(d));
  }
  for (const TaskId id : placing_order(plan, ordering)) {
    const Task& task = plan[id];
    Arena& arena = arenas[task.device.index()];
    const VectorClock& start = ordering.start[id.index()];
    // True if no task touches the buffer after this one.
    const auto is_last_touch = [&](BufferId buffer) {
      VectorClock until = start;
      until[static_cast<std::size_t>(task.lane)] = plan.position(id) + 1;
      const VectorClock& touched = last[buffer.index()];
      return std::equal(touched.begin(), touched.end(), until.begin(), std::less_equal());
    };
    for (const BufferId buffer : task.writes) {
      if (const std::int64_t needed = std::exchange(size[buffer.index()], 0); needed > 0) {
        const BufferId place = overwritten_by(task, buffer);
        if (place.valid() && !lives_on(plan[place]) && plan[place].size() == plan[buffer].size() && is_last_touch(place)) {
          memory.offset[buffer.index()] = memory.offset[place.index()];
          arena.hold(memory.offset[buffer.index()], needed, last[buffer.index()]);
        } else {
          memory.offset[buffer.index()] = arena.place(task.lane, needed, start, last[buffer.index()]);
        }
      }
    }
    if (task.workspace.count > 0) {
      VectorClock only_this{};
      only_this[static_cast<std::size_t>(task.lane)] = plan.position(id) + 1;
      memory.workspace[id.index()] = arena.place(task.lane, aligned(task.workspace.count), start, only_this);
    }
  }
  for (std::size_t d = 0; d < devices; ++d) {
    memory.peak[d] = Bytes(arenas[d].end());
  }
  return memory;
}

}  // namespace baton::plan
