#include "unit/plan/mutate.h"

#include <algorithm>
#include <array>

namespace baton::plan::test {
namespace {

class Mutator {
 public:
  Mutator(const Plan& plan, const std::vector<Bytes>& peak, std::mt19937& random)
      : peak_(peak),
        random_(random),
        title_(plan.title()),
        devices_(plan.devices()),
        buffers_(plan.buffers()),
        tasks_(plan.tasks()) {}

  std::optional<Mutant> apply(Mutation mutation) {
    if (!change(mutation)) {
      return std::nullopt;
    }
    return Mutant{Plan(title_, devices_, buffers_, tasks_), limits_};
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }  // the same everywhere, unlike a distribution
  bool chance(int percent) { return static_cast<int>(below(100)) < percent; }

  /// One of the tasks that `suits`, if any does.
  template <typename Suits>
  std::optional<std::size_t> pick(Suits suits) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (suits(tasks_[i])) {
        list.push_back(i);
      }
    }
    return list.empty() ? std::nullopt : std::optional(list[below(list.size())]);
  }

  static bool is_transfer(const Task& task) { return std::holds_alternative<Transfer>(task.action); }
  static bool is_collective(const Task& task) { return std::holds_alternative<Collective>(task.action); }

  /// Removes tasks; edges to them go with them, and the others keep pointing at the same tasks.
  void remove(const std::vector<std::size_t>& gone) {
    std::vector<TaskId> renamed(tasks_.size());
    std::vector<Task> kept;
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (std::find(gone.begin(), gone.end(), i) == gone.end()) {
        renamed[i] = TaskId(kept.size());
        kept.push_back(tasks_[i]);
      }
    }
    for (Task& task : kept) {
      std::vector<TaskId> after;
      for (const TaskId id : task.after) {
        if (renamed[id.index()].valid()) {
          after.push_back(renamed[id.index()]);
        }
      }
      task.after = after;
    }
    tasks_ = kept;
  }

  /// Two tasks change places in the plan's order; edges follow the tasks.
  void swap(std::size_t a, std::size_t b) {
    std::swap(tasks_[a], tasks_[b]);
    for (Task& task : tasks_) {
      for (TaskId& id : task.after) {
        id = id.index() == a ? TaskId(b) : id.index() == b ? TaskId(a) : id;
      }
    }
  }

  std::optional<BufferId> other_buffer(BufferId than) {
    const bool alike = chance(80);  // else any buffer at all
    std::vector<BufferId> list;
    for (std::size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer& now = buffers_[than.index()];
      if (BufferId(b) != than && (!alike || (buffers_[b].shape == now.shape && buffers_[b].dtype == now.dtype &&
                                             buffers_[b].layout == now.layout && buffers_[b].device == now.device))) {
        list.push_back(BufferId(b));
      }
    }
    return list.empty() ? std::nullopt : std::optional(list[below(list.size())]);
  }

  bool redirect(std::vector<BufferId> Task::*list) {
    const auto at = pick([&](const Task& task) { return !(task.*list).empty(); });
    if (!at) {
      return false;
    }
    BufferId& id = (tasks_[*at].*list)[below((tasks_[*at].*list).size())];
    const std::optional<BufferId> other = other_buffer(id);
    id = other.value_or(id);
    return other.has_value();
  }

  bool change(Mutation mutation) {
    switch (mutation) {
      case Mutation::drop_edge:
      case Mutation::reverse_edge: {
        const auto at = pick([](const Task& task) { return !task.after.empty(); });
        if (!at) {
          return false;
        }
        std::vector<TaskId>& after = tasks_[*at].after;
        const auto edge = after.begin() + static_cast<std::ptrdiff_t>(below(after.size()));
        const TaskId before = *edge;
        after.erase(edge);
        if (mutation == Mutation::reverse_edge) {
          tasks_[before.index()].after.push_back(TaskId(*at));
        }
        return true;
      }
      case Mutation::add_edge: {
        const std::size_t to = below(tasks_.size());
        const bool anywhere = chance(15);
        const auto from = pick([&](const Task& task) { return anywhere || task.device == tasks_[to].device; });
        tasks_[to].after.push_back(TaskId(*from));
        return true;
      }
      case Mutation::swap_meetings: {
        const auto a = pick([](const Task& task) { return task.lane == Lane::communication; });
        if (!a) {
          return false;
        }
        const auto b = pick([&](const Task& task) {
          return task.lane == Lane::communication && task.device == tasks_[*a].device && &task != &tasks_[*a];
        });
        if (!b) {
          return false;
        }
        swap(*a, *b);
        return true;
      }
      case Mutation::redirect_read:
        return redirect(&Task::reads);
      case Mutation::redirect_write:
        return redirect(&Task::writes);
      case Mutation::drop_transfer: {
        const auto at = pick(is_transfer);
        if (!at) {
          return false;
        }
        std::vector<std::size_t> ends;
        for (std::size_t i = 0; i < tasks_.size(); ++i) {
          if (meeting_of(tasks_[i]) == meeting_of(tasks_[*at])) {
            ends.push_back(i);
          }
        }
        remove(ends);
        return true;
      }
      case Mutation::drop_transfer_end: {
        const auto at = pick(is_transfer);
        if (at) {
          remove({*at});
        }
        return at.has_value();
      }
      case Mutation::change_transfer: {
        const auto at = pick(is_transfer);
        if (!at) {
          return false;
        }
        auto& transfer = std::get<Transfer>(tasks_[*at].action);
        switch (below(3)) {
          case 0:
            transfer.peer = DeviceId(below(devices_.size()));
            break;
          case 1:
            transfer.end = transfer.end == Transfer::End::send ? Transfer::End::receive : Transfer::End::send;
            break;
          default: {
            const auto other = pick([](const Task& task) { return meeting_of(task).valid(); });
            transfer.meeting = chance(80) ? meeting_of(tasks_[*other]) : MeetingId(tasks_.size());
          }
        }
        return true;
      }
      case Mutation::drop_member: {
        const auto at = pick(is_collective);
        if (at) {
          remove({*at});
        }
        return at.has_value();
      }
      case Mutation::change_collective: {
        const auto at = pick(is_collective);
        if (!at) {
          return false;
        }
        auto& collective = std::get<Collective>(tasks_[*at].action);
        switch (below(5)) {
          case 0:
            collective.rank = static_cast<std::uint32_t>(below(collective.size + 1));
            break;
          case 1:
            collective.size = static_cast<std::uint32_t>(below(collective.size + 2));
            break;
          case 2:
            collective.kind = static_cast<Move>(below(5));
            break;
          case 3: {  // two members trade ranks
            const auto other = pick([&](const Task& task) { return meeting_of(task) == collective.meeting; });
            std::swap(collective.rank, std::get<Collective>(tasks_[*other].action).rank);
            break;
          }
          default: {
            const auto other = pick([](const Task& task) { return meeting_of(task).valid(); });
            collective.meeting = meeting_of(tasks_[*other]);
          }
        }
        return true;
      }
      case Mutation::move_task: {
        if (devices_.size() < 2) {
          return false;
        }
        Task& task = tasks_[below(tasks_.size())];
        task.device = DeviceId((task.device.index() + 1 + below(devices_.size() - 1)) % devices_.size());
        return true;
      }
      case Mutation::change_lane: {
        Task& task = tasks_[below(tasks_.size())];
        task.lane = static_cast<Lane>((static_cast<std::size_t>(task.lane) + 1 + below(lane_count - 1)) % lane_count);
        return true;
      }
      case Mutation::delete_task:
        remove({below(tasks_.size())});
        return true;
      case Mutation::change_buffer: {
        Buffer& buffer = buffers_[below(buffers_.size())];
        switch (below(4)) {
          case 0: {
            Shape::Extents extents = buffer.shape.extents();
            extents[below(extents.size())] += 1;
            buffer.shape = Shape(extents);
            break;
          }
          case 1:
            buffer.dtype = all_dtypes[(static_cast<std::size_t>(buffer.dtype) + 1 + below(4)) % 5];
            break;
          case 2:
            buffer.layout = buffer.layout.empty() ? "tiled" : "";
            break;
          default:
            buffer.persistent = !buffer.persistent;
        }
        return true;
      }
      case Mutation::change_scaling: {
        const auto op = [](Task& task) { return std::get_if<Compute>(&task.action); };
        const auto loss = [&](Task& task) -> bool* {
          Compute* compute = op(task);
          auto* squares = compute == nullptr ? nullptr : std::get_if<op::MeanSquaredError>(&compute->op);
          auto* entropy = compute == nullptr ? nullptr : std::get_if<op::CrossEntropy>(&compute->op);
          return squares != nullptr ? &squares->scaled : entropy != nullptr ? &entropy->scaled : nullptr;
        };
        const auto at = pick([&](Task& task) {
          return std::holds_alternative<Update>(task.action) || loss(task) != nullptr || verb(task) == "adjust_scale";
        });
        if (!at) {
          return false;
        }
        Task& task = tasks_[*at];
        if (bool* scaled = loss(task)) {
          *scaled = !*scaled;
        } else if (auto* update = std::get_if<Update>(&task.action)) {
          update->scaled = !update->scaled;
        } else {
          std::get<op::AdjustScale>(op(task)->op).growth_interval = chance(50) ? -1 : 1;
        }
        return true;
      }
      case Mutation::lose_kernel: {
        const std::string_view lost = chance(10) ? std::string_view("softmax") : verb(tasks_[below(tasks_.size())]);
        limits_.has_kernel = [lost](const Task& task) { return verb(task) != lost; };
        return true;
      }
      case Mutation::shrink_memory: {
        limits_.memory = peak_;
        Bytes& limit = limits_.memory[below(peak_.size())];
        const std::int64_t step = std::array<std::int64_t, 5>{0, -1, 1, -64, -limit.count}[below(5)];
        limit = std::max(Bytes(0), limit + Bytes(step));
        return true;
      }
    }
    return false;
  }

  const std::vector<Bytes>& peak_;
  std::mt19937& random_;
  std::string title_;
  std::vector<std::string> devices_;
  std::vector<Buffer> buffers_;
  std::vector<Task> tasks_;
  Limits limits_;
};

}  // namespace

std::string_view to_text(Mutation mutation) {
  constexpr std::array<std::string_view, mutation_count> names{
      "drop_edge",     "reverse_edge",      "add_edge",        "swap_meetings",  "redirect_read",     "redirect_write",
      "drop_transfer", "drop_transfer_end", "change_transfer", "drop_member",    "change_collective", "move_task",
      "change_lane",   "delete_task",       "change_buffer",   "change_scaling", "lose_kernel",       "shrink_memory"};
  return names[static_cast<std::size_t>(mutation)];
}

std::optional<Mutant> mutate(const Plan& plan, const std::vector<Bytes>& peak, Mutation mutation, std::mt19937& random) {
  return Mutator(plan, peak, random).apply(mutation);
}

}  // namespace baton::plan::test
