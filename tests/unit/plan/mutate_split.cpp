#include "unit/plan/mutate_split.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "baton/op/traits.h"

namespace baton::plan::test {
namespace {

class SplitMutator {
 public:
  SplitMutator(const Plan& plan, std::mt19937& random) : random_(random) {
    draft_.title = plan.title();
    draft_.devices = plan.devices();
    draft_.buffers = plan.buffers();
    draft_.tasks = plan.tasks();
    draft_.graph = plan.graph();
    draft_.meetings = static_cast<std::uint32_t>(plan.meeting_count());
    for (Task& task : draft_.tasks) {
      task.after.clear();
    }
  }

  std::optional<Plan> apply(SplitMutation mutation) {
    if (!change(mutation)) {
      return std::nullopt;
    }
    return finish(std::move(draft_));
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  template <typename Suits>
  std::optional<std::size_t> pick(Suits suits) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < draft_.tasks.size(); ++i) {
      if (suits(draft_.tasks[i])) {
        list.push_back(i);
      }
    }
    return list.empty() ? std::nullopt : std::optional(list[below(list.size())]);
  }
  template <typename Suits>
  std::optional<BufferId> pick_buffer(Suits suits) {
    std::vector<BufferId> list;
    for (std::size_t b = 0; b < draft_.buffers.size(); ++b) {
      if (suits(BufferId(b))) {
        list.push_back(BufferId(b));
      }
    }
    return list.empty() ? std::nullopt : std::optional(list[below(list.size())]);
  }

  std::vector<Task>& tasks() { return draft_.tasks; }
  Buffer& at(BufferId id) { return draft_.buffers[id.index()]; }
  bool alike(BufferId a, BufferId b) {
    return a != b && at(a).device == at(b).device && at(a).shape == at(b).shape && at(a).dtype == at(b).dtype &&
           at(a).layout == at(b).layout;
  }
  static const Collective* collective(const Task& task) { return std::get_if<Collective>(&task.action); }

  void remove(MeetingId meeting) {
    std::erase_if(tasks(), [&](const Task& task) { return meeting_of(task) == meeting; });
  }

  /// Two buffers trade their contents, where those have one size.
  bool trade(std::optional<BufferId> a, auto suits) {
    if (!a) {
      return false;
    }
    const auto b = pick_buffer([&](BufferId id) {
      return id != *a && at(id).shape == at(*a).shape && at(id).dtype == at(*a).dtype && !(at(id).content == at(*a).content) &&
             suits(id);
    });
    if (!b) {
      return false;
    }
    std::swap(at(*a).content, at(*b).content);
    return true;
  }

  bool redirect(std::vector<BufferId> Task::*list, auto suits) {
    const auto task = pick([&](const Task& one) { return !(one.*list).empty(); });
    if (!task) {
      return false;
    }
    std::vector<BufferId>& ids = (tasks()[*task].*list);
    BufferId& id = ids[below(ids.size())];
    const auto other = pick_buffer([&](BufferId one) { return alike(one, id) && suits(id, one); });
    id = other.value_or(id);
    return other.has_value();
  }

  bool change(SplitMutation mutation) {
    switch (mutation) {
      case SplitMutation::missing_sum: {
        const auto i = pick([](const Task& t) { return collective(t) && rule_of(collective(t)->kind).sums; });
        if (i) {
          remove(meeting_of(tasks()[*i]));
        }
        return i.has_value();
      }
      case SplitMutation::doubled_sum: {
        const auto i = pick([](const Task& t) { return collective(t) && collective(t)->kind == Move::all_reduce; });
        if (!i) {
          return false;
        }
        const MeetingId meeting = meeting_of(tasks()[*i]);
        std::vector<Task> again;
        std::size_t last = 0;
        for (std::size_t t = 0; t < tasks().size(); ++t) {
          if (meeting_of(tasks()[t]) == meeting) {
            again.push_back(tasks()[t]);
            std::get<Collective>(again.back().action).meeting = MeetingId(draft_.meetings);
            last = t;
          }
        }
        ++draft_.meetings;
        tasks().insert(tasks().begin() + static_cast<std::ptrdiff_t>(last) + 1, again.begin(), again.end());
        return true;
      }
      case SplitMutation::wrong_piece: {
        const auto piece = [&](BufferId id) {
          const auto* part = std::get_if<ParameterPart>(&at(id).content);
          return part != nullptr && part->piece_end > 0;
        };
        const auto a = pick_buffer(piece);
        return trade(a, [&](BufferId id) {
          return piece(id) && at(id).role == at(*a).role &&
                 std::get<ParameterPart>(at(id).content).ordinal == std::get<ParameterPart>(at(*a).content).ordinal;
        });
      }
      case SplitMutation::wrong_reader:
        return redirect(&Task::reads, [](BufferId, BufferId) { return true; });
      case SplitMutation::wrong_writer:
        return redirect(&Task::writes, [](BufferId, BufferId) { return true; });
      case SplitMutation::bias_twice: {
        const auto i = pick([](const Task& t) {
          const auto* compute = std::get_if<Compute>(&t.action);
          const auto* linear = compute == nullptr ? nullptr : std::get_if<op::Linear>(&compute->op);
          return linear != nullptr && linear->partial;
        });
        if (!i) {
          return false;
        }
        Task& task = tasks()[*i];
        const auto bias = pick_buffer([&](BufferId id) {
          return at(id).device == task.device && at(id).role == Role::parameter && at(id).dtype == at(task.reads[1]).dtype &&
                 at(id).shape == Shape{at(task.reads[1]).shape[0]};
        });
        if (!bias) {
          return false;
        }
        task.reads.push_back(*bias);
        std::get<op::Linear>(std::get<Compute>(task.action).op).partial = false;
        return true;
      }
      case SplitMutation::swapped_rows: {
        const auto rows = [&](BufferId id) { return at(id).role == Role::input || at(id).role == Role::target; };
        const auto a = pick_buffer(rows);
        return trade(a, [&](BufferId id) { return at(id).role == at(*a).role; });
      }
      case SplitMutation::wrong_part: {
        const auto parameter = [&](BufferId id) { return at(id).role == Role::parameter && at(id).persistent; };
        return trade(pick_buffer(parameter), parameter);
      }
      case SplitMutation::wrong_micro_batch:
        return redirect(&Task::reads, [&](BufferId a, BufferId b) {
          const auto* one = std::get_if<ValuePart>(&at(a).content);
          const auto* other = std::get_if<ValuePart>(&at(b).content);
          return (at(a).role == Role::input && at(b).role == Role::input) ||
                 (one != nullptr && other != nullptr && one->value == other->value && one->gradient == other->gradient);
        });
      case SplitMutation::missing_addition: {
        const auto i = pick([](const Task& t) {
          const auto* compute = std::get_if<Compute>(&t.action);
          return (collective(t) && collective(t)->accumulate) ||
                 (compute != nullptr && op::can_accumulate(compute->op) && op::accumulating(compute->op) == compute->op);
        });
        if (!i) {
          return false;
        }
        if (collective(tasks()[*i]) != nullptr) {
          const MeetingId meeting = meeting_of(tasks()[*i]);
          for (Task& task : tasks()) {
            if (meeting_of(task) == meeting) {
              task.reads.resize(task.reads.size() - task.writes.size());
              std::get<Collective>(task.action).accumulate = false;
            }
          }
        } else {
          Task& task = tasks()[*i];
          task.reads.resize(task.reads.size() - task.writes.size());
          op::Op& op = std::get<Compute>(task.action).op;
          op = op::accumulating(op, false);
        }
        return true;
      }
      case SplitMutation::wrong_scale: {
        const auto i = pick([](const Task& t) {
          const auto* compute = std::get_if<Compute>(&t.action);
          return std::holds_alternative<Update>(t.action) ||
                 (compute != nullptr && (op::is_loss(compute->op) || op::takes_step(compute->op)));
        });
        if (!i) {
          return false;
        }
        if (auto* update = std::get_if<Update>(&tasks()[*i].action)) {
          std::visit([](auto& optimizer) { optimizer.rate *= 2; }, update->optimizer);
          return true;
        }
        op::Op& op = std::get<Compute>(tasks()[*i].action).op;
        if (auto* squares = std::get_if<op::MeanSquaredError>(&op)) {
          squares->elements *= 2;
        } else if (auto* entropy = std::get_if<op::CrossEntropy>(&op)) {
          entropy->rows *= 2;
        } else {
          std::get<op::LinearBackwardWeight>(op).sgd_rate *= 2;
        }
        return true;
      }
      case SplitMutation::swapped_members: {
        const auto brings = [](const Task& t) { return collective(t) && !t.reads.empty() && !t.writes.empty(); };
        const auto a = pick(brings);
        if (!a) {
          return false;
        }
        const auto b = pick([&](const Task& t) {
          return brings(t) && &t != &tasks()[*a] && t.device == tasks()[*a].device && alike(t.reads[0], tasks()[*a].reads[0]) &&
                 collective(t)->kind == collective(tasks()[*a])->kind;
        });
        if (!b) {
          return false;
        }
        std::swap(tasks()[*a].reads, tasks()[*b].reads);
        std::swap(tasks()[*a].writes, tasks()[*b].writes);
        return true;
      }
      case SplitMutation::missing_update: {
        const auto i = pick([](const Task& t) { return std::holds_alternative<Update>(t.action); });
        if (i) {
          tasks().erase(tasks().begin() + static_cast<std::ptrdiff_t>(*i));
        }
        return i.has_value();
      }
      case SplitMutation::early_update: {
        const auto i = pick([](const Task& t) { return std::holds_alternative<Update>(t.action); });
        if (!i || *i == 0) {
          return false;
        }
        const Task task = tasks()[*i];
        tasks().erase(tasks().begin() + static_cast<std::ptrdiff_t>(*i));
        tasks().insert(tasks().begin() + static_cast<std::ptrdiff_t>(below(*i)), task);
        return true;
      }
      case SplitMutation::wrong_rank: {
        const auto a = pick([](const Task& t) { return collective(t) != nullptr; });
        if (!a) {
          return false;
        }
        const auto b = pick([&](const Task& t) { return &t != &tasks()[*a] && meeting_of(t) == meeting_of(tasks()[*a]); });
        if (!b) {
          return false;
        }
        std::swap(std::get<Collective>(tasks()[*a].action).rank, std::get<Collective>(tasks()[*b].action).rank);
        return true;
      }
      case SplitMutation::wrong_number: {
        const auto i = pick([](const Task& t) {
          const auto* compute = std::get_if<Compute>(&t.action);
          return compute != nullptr && op::part_of(compute->op).of > 0;
        });
        if (!i) {
          return false;
        }
        op::Op& op = std::get<Compute>(tasks()[*i].action).op;
        const op::DimensionPart held = op::part_of(op);
        op = op::for_part(op, static_cast<std::int64_t>(below(static_cast<std::size_t>(held.of))),
                          held.of + (below(4) == 0 ? 1 : 0));
        return true;
      }
      case SplitMutation::missing_merge: {
        const auto i = pick([](const Task& t) {
          const auto* compute = std::get_if<Compute>(&t.action);
          const auto* loss = compute == nullptr ? nullptr : std::get_if<op::CrossEntropy>(&compute->op);
          return loss != nullptr && loss->parts > 0;
        });
        if (!i) {
          return false;
        }
        const BufferId all = tasks()[*i].reads[2];
        MeetingId gathered;
        for (const Task& task : tasks()) {
          gathered = task.writes == std::vector{all} ? meeting_of(task) : gathered;
        }
        for (const Task& gather : std::vector<Task>(tasks())) {
          if (meeting_of(gather) == gathered) {
            for (Task& task : tasks()) {
              if (!task.reads.empty() && std::find(task.reads.begin(), task.reads.end(), gather.writes[0]) != task.reads.end()) {
                task.reads[2] = gather.reads[0];
                std::get<op::CrossEntropy>(std::get<Compute>(task.action).op).parts = 1;
              }
            }
          }
        }
        remove(gathered);
        return true;
      }
      case SplitMutation::norm_twice: {
        const auto i = pick([](const Task& t) { return verb(t) == "squared_sum"; });
        // Any gradient that an update of the device takes: its own that it counts already, or one that another device counts.
        const auto update = pick(
            [&](const Task& t) { return i && t.device == tasks()[*i].device && std::holds_alternative<Update>(t.action); });
        if (!update) {
          return false;
        }
        tasks()[*i].reads.push_back(tasks()[*update].reads[0]);
        return true;
      }
      case SplitMutation::norm_missing: {
        const auto i = pick([](const Task& t) { return verb(t) == "squared_sum" && !t.reads.empty(); });
        if (!i) {
          return false;
        }
        std::vector<BufferId>& reads = tasks()[*i].reads;
        reads.erase(reads.begin() + static_cast<std::ptrdiff_t>(below(reads.size())));
        return true;
      }
    }
    return false;
  }

  std::mt19937& random_;
  Draft draft_;
};

}  // namespace

std::string_view to_text(SplitMutation mutation) {
  constexpr std::array<std::string_view, split_mutation_count> names{
      "missing_sum", "doubled_sum",       "wrong_piece",      "wrong_reader", "wrong_writer",    "bias_twice",     "swapped_rows",
      "wrong_part",  "wrong_micro_batch", "missing_addition", "wrong_scale",  "swapped_members", "missing_update", "early_update",
      "wrong_rank",  "wrong_number",      "missing_merge",    "norm_twice",   "norm_missing"};
  return names[static_cast<std::size_t>(mutation)];
}

std::optional<Plan> mutate_split(const Plan& plan, SplitMutation mutation, std::mt19937& random) {
  return SplitMutator(plan, random).apply(mutation);
}

}  // namespace baton::plan::test
