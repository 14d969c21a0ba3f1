#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>

#include "baton/op/traits.h"
#include "baton/strategy/passes.h"

namespace baton::strategy {
namespace {

using plan::Compute;
using plan::Draft;
using plan::Task;

/// Null for a task that computes nothing.
const op::Op* op_of(const Task& task) {
  const auto* compute = std::get_if<Compute>(&task.action);
  return compute == nullptr ? nullptr : &compute->op;
}

/// By buffer: the tasks that read it, or those that write it, in the draft's order. A task that has it twice is there twice.
class TasksOfBuffers {
 public:
  TasksOfBuffers(const Draft& draft, std::vector<BufferId> Task::*operands) : begin_(draft.buffers.size() + 1, 0) {
    for (const Task& task : draft.tasks) {
      for (const BufferId id : task.*operands) {
        ++begin_[id.index() + 1];
      }
    }
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    tasks_.resize(begin_.back());
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
      for (const BufferId id : draft.tasks[i].*operands) {
        tasks_[next[id.index()]++] = i;
      }
    }
  }
  std::span<const std::size_t> operator[](BufferId id) const {
    return {tasks_.data() + begin_[id.index()], tasks_.data() + begin_[id.index() + 1]};
  }

 private:
  std::vector<std::size_t> begin_;
  std::vector<std::size_t> tasks_;
};

/// The tasks that touch each buffer. Rebuilt after each fusion pass.
struct Uses {
  explicit Uses(const Draft& draft) : readers(draft, &Task::reads), writers(draft, &Task::writes) {}
  /// The one task that reads it, if the buffer is written once, read once and not persistent.
  const std::size_t* only_reader(const Draft& draft, BufferId id) const {
    return readers[id].size() == 1 && writers[id].size() == 1 && !draft[id].persistent ? readers[id].data() : nullptr;
  }

  TasksOfBuffers readers;
  TasksOfBuffers writers;
};

void erase_marked(Draft& draft, const std::vector<bool>& gone) {
  if (std::find(gone.begin(), gone.end(), true) != gone.end()) {
    draft.rearrange(gone, std::vector<std::vector<Task>>(draft.tasks.size() + 1));
  }
}

/// True if a task between two others writes the buffer.
bool is_written_between(const Uses& uses, BufferId id, std::size_t first, std::size_t last) {
  const std::span<const std::size_t> writers = uses.writers[id];
  return std::any_of(writers.begin(), writers.end(), [&](std::size_t writer) { return writer > first && writer < last; });
}

/// A task that a backend can do together with the one before it, and the op that does both.
struct Partner {
  std::size_t task;
  op::Joined both;
};

/// The task of the same phase that reads what task `at` writes first, and that one of the known ops does together with it. If other
/// tasks read that too, the op writes it; if none does, it does not, since nobody would read it.
std::optional<Partner> partner_of(const Draft& draft, const Uses& uses, std::size_t at, const std::vector<op::Op>& known) {
  const Task& task = draft.tasks[at];
  const op::Op* first = op_of(task);
  if (first == nullptr || uses.writers[task.writes[0]].size() != 1 || draft[task.writes[0]].persistent) {
    return std::nullopt;
  }
  const std::span<const std::size_t> readers = uses.readers[task.writes[0]];
  for (const std::size_t reader : readers) {
    const Task& next = draft.tasks[reader];
    const op::Op* second = op_of(next);
    if (second == nullptr || next.device != task.device || next.labels.phase != task.labels.phase ||
        next.reads[0] != task.writes[0]) {
      continue;
    }
    std::optional<op::Joined> both = op::joined(*first, *second);
    if (both && both->keeps_first == (readers.size() > 1) &&
        std::any_of(known.begin(), known.end(), [&](const op::Op& one) { return op::same_form(one, both->op); })) {
      return Partner{reader, *std::move(both)};
    }
  }
  return std::nullopt;
}

/// Two ops become the one that does the work of both, if all operands of the second are there when the first begins: recomputed
/// values between the two are not.
void fuse_pairs(Draft& draft, const std::vector<op::Op>& known) {
  const Uses uses(draft);
  std::vector<bool> gone(draft.tasks.size(), false);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    const std::optional<Partner> partner = gone[i] ? std::nullopt : partner_of(draft, uses, i, known);
    if (!partner || gone[partner->task]) {
      continue;
    }
    Task& task = draft.tasks[i];
    const Task& next = draft.tasks[partner->task];
    const bool too_early = std::any_of(partner->both.reads.begin(), partner->both.reads.end(), [&](std::size_t operand) {
      return is_written_between(uses, next.reads[operand], i, partner->task);
    });
    if (too_early) {
      continue;
    }
    const BufferId kept = task.writes[0];
    task.action = Compute{partner->both.op};
    for (const std::size_t operand : partner->both.reads) {
      task.reads.push_back(next.reads[operand]);
    }
    task.writes = next.writes;
    if (partner->both.keeps_first) {
      task.writes.push_back(kept);
    }
    gone[partner->task] = true;
  }
  erase_marked(draft, gone);
}

/// Results may lie where an operand does, if the memory's layout finds that nothing needs the operand any more.
void overwrite_operands(Draft& draft) {
  for (Task& task : draft.tasks) {
    const op::Op* op = op_of(task);
    if (const std::optional<op::Op> form = op == nullptr ? std::nullopt : op::overwriting(*op)) {
      task.action = Compute{*form};
    }
  }
}

/// A gradient and the sum of it and another one become one op, if nothing else reads the gradient and the other one is there.
void fuse_sums(Draft& draft) {
  const Uses uses(draft);
  std::vector<bool> gone(draft.tasks.size(), false);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    const op::Op* first = op_of(task);
    const std::optional<op::Op> both = first == nullptr ? std::nullopt : op::adding(*first);
    const std::size_t* reader = both ? uses.only_reader(draft, task.writes[0]) : nullptr;
    const op::Op* second = reader == nullptr ? nullptr : op_of(draft.tasks[*reader]);
    if (second == nullptr || !op::is_sum(*second) || draft.tasks[*reader].device != task.device) {
      continue;
    }
    const Task& sum = draft.tasks[*reader];
    const BufferId other = sum.reads[sum.reads[0] == task.writes[0] ? 1 : 0];
    const BufferId whole = sum.writes[0];
    const bool typed = draft[other].dtype == draft[task.writes[0]].dtype && draft[whole].dtype == draft[task.writes[0]].dtype;
    if (!typed || uses.writers[whole].size() != 1 || is_written_between(uses, other, i, *reader)) {
      continue;
    }
    task.action = Compute{*both};
    task.reads.push_back(other);
    task.writes[0] = whole;
    gone[*reader] = true;
  }
  erase_marked(draft, gone);
}

/// The task that writes a cast's operand writes its result as well, if it can: nothing else writes either, and both have one
/// device.
void fuse_casts(Draft& draft) {
  const Uses uses(draft);
  std::vector<bool> gone(draft.tasks.size(), false);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    const op::Op* cast = op_of(draft.tasks[i]);
    if (cast == nullptr || !op::is_cast(*cast)) {
      continue;
    }
    const BufferId from = draft.tasks[i].reads[0];
    const BufferId to = draft.tasks[i].writes[0];
    if (draft[from].dtype != DType::f32 || !is_narrow(draft[to].dtype) || draft[from].persistent ||
        uses.writers[from].size() != 1 || uses.writers[to].size() != 1 || uses.writers[from][0] > i) {
      continue;
    }
    Task& writer = draft.tasks[uses.writers[from][0]];
    const op::Op* made = op_of(writer);
    const std::optional<op::Op> both = made == nullptr ? std::nullopt : op::with_copies(*made);
    if (both && writer.writes.size() == 1 && writer.device == draft.tasks[i].device &&
        draft[writer.reads[0]].dtype == draft[to].dtype) {
      writer.action = Compute{*both};
      writer.writes.push_back(to);
      gone[i] = true;
    }
  }
  erase_marked(draft, gone);
}

/// The parameters that a task changes, its first outputs; none for a task that changes none, or writes copies already.
std::span<const BufferId> stepped_parameters(const Task& task) {
  if (const auto* update = std::get_if<plan::Update>(&task.action)) {
    return std::span(task.writes).first(update->copies ? 0 : plan::updated_count(task));
  }
  const op::Op* op = op_of(task);
  return op != nullptr && op::takes_step(*op) && op::with_copies(*op) ? std::span(task.writes) : std::span<const BufferId>();
}

/// 16-bit copies of parameters live on from step to step, written by the task that changes the parameters instead of by a cast at
/// the start of each step: if one task changes a parameter, on the device of the copy and after all that read the copy. If that
/// does not hold for one of the parameters that a task changes, all of them are cast as before.
void keep_copies(Draft& draft) {
  const Uses uses(draft);
  std::map<BufferId, std::size_t> casts;  // by parameter
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    const op::Op* op = op_of(draft.tasks[i]);
    const Task& task = draft.tasks[i];
    if (op != nullptr && op::is_cast(*op) && draft[task.reads[0]].persistent &&
        draft[task.reads[0]].role == plan::Role::parameter && draft[task.reads[0]].dtype == DType::f32 &&
        is_narrow(draft[task.writes[0]].dtype) && uses.writers[task.writes[0]].size() == 1) {
      casts.emplace(task.reads[0], i);
    }
  }
  std::vector<bool> gone(draft.tasks.size(), false);
  for (std::size_t i = 0; i < draft.tasks.size() && !casts.empty(); ++i) {
    Task& task = draft.tasks[i];
    std::vector<BufferId> copies;
    const std::span<const BufferId> parameters = stepped_parameters(task);
    for (const BufferId parameter : parameters) {
      const auto cast = casts.find(parameter);
      if (cast == casts.end() || uses.writers[parameter].size() != 1) {
        break;
      }
      const BufferId copy = draft.tasks[cast->second].writes[0];
      const std::span<const std::size_t> readers = uses.readers[copy];
      if (draft[copy].device != task.device || std::any_of(readers.begin(), readers.end(), [&](std::size_t r) { return r > i; })) {
        break;
      }
      copies.push_back(copy);
    }
    if (copies.empty() || copies.size() != parameters.size()) {
      continue;
    }
    for (std::size_t p = 0; p < copies.size(); ++p) {
      gone[casts.at(parameters[p])] = true;
      draft.buffers[copies[p].index()].persistent = true;
    }
    if (auto* update = std::get_if<plan::Update>(&task.action)) {
      update->copies = true;
    } else {
      task.action = Compute{*op::with_copies(*op_of(task))};
    }
    task.writes.insert(task.writes.end(), copies.begin(), copies.end());
  }
  erase_marked(draft, gone);
}

/// The plain SGD step of an update, on gradients that it does not scale; null for any other. `narrow`: they may have 16 bits where
/// the parameters have 32.
const op::Sgd* plain_sgd(const Draft& draft, const Task& task, bool narrow = false) {
  const auto* update = std::get_if<plan::Update>(&task.action);
  const bool plain = update != nullptr && !update->scaled && (narrow || draft[task.reads[0]].dtype == draft[task.writes[0]].dtype);
  const auto* sgd = plain ? std::get_if<op::Sgd>(&update->optimizer) : nullptr;
  return sgd != nullptr && *sgd == op::Sgd{.rate = sgd->rate} && sgd->rate > 0 ? sgd : nullptr;
}

/// True if one task reads all that another writes, in that order and before anything else, and nobody else does.
bool is_only_reader(const Draft& draft, const Uses& uses, const Task& writer, std::size_t reader) {
  const Task& task = draft.tasks[reader];
  for (std::size_t i = 0; i < writer.writes.size(); ++i) {
    const std::size_t* only = uses.only_reader(draft, writer.writes[i]);
    if (only == nullptr || *only != reader || i >= task.reads.size() || task.reads[i] != writer.writes[i]) {
      return false;
    }
  }
  return true;
}

/// Gradients → sgd becomes one op that takes the step, if nothing else reads the gradients and nothing reads the parameters between
/// the two.
void fuse_sgd(Draft& draft, const std::vector<DType>& narrow) {
  const Uses uses(draft);
  const auto mixes = [&](DType operands) { return std::find(narrow.begin(), narrow.end(), operands) != narrow.end(); };
  std::vector<bool> gone(draft.tasks.size(), false);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    Task& task = draft.tasks[i];
    const op::Op* gradient = op_of(task);
    const std::size_t* reader = gradient == nullptr ? nullptr : uses.only_reader(draft, task.writes[0]);
    const op::Sgd* sgd = reader == nullptr ? nullptr : plain_sgd(draft, draft.tasks[*reader], mixes(draft[task.reads[0]].dtype));
    const std::optional<op::Op> step = sgd == nullptr ? std::nullopt : op::with_sgd(*gradient, sgd->rate);
    if (!step || !is_only_reader(draft, uses, task, *reader)) {
      continue;
    }
    const Task& update = draft.tasks[*reader];
    if (update.writes.size() != task.writes.size() ||
        (draft[task.reads[0]].dtype != draft[update.writes[0]].dtype && !mixes(draft[task.reads[0]].dtype))) {
      continue;
    }
    const bool read_between = std::any_of(update.writes.begin(), update.writes.end(), [&](BufferId id) {
      const std::span<const std::size_t> readers = uses.readers[id];
      return std::any_of(readers.begin(), readers.end(), [&](std::size_t r) { return r > i && r < *reader; });
    });
    if (read_between) {
      continue;
    }
    task.action = Compute{*step};
    task.writes = update.writes;
    task.reads.insert(task.reads.end(), update.writes.begin(), update.writes.end());
    gone[*reader] = true;
  }
  erase_marked(draft, gone);
}

/// A member of an all-reduce that applies its sums: the parameters of its gradients, and the updates that it replaces.
struct AppliedSum {
  double rate = 0;
  std::vector<BufferId> parameters;
  std::vector<std::size_t> updates;
};

/// Returns nullopt if something else reads a gradient, if an update needs more than this sum, or if a parameter is read in between.
std::optional<AppliedSum> applied_sum(const Draft& draft, const Uses& uses, std::size_t at) {
  const Task& task = draft.tasks[at];
  AppliedSum applied;
  for (const BufferId gradient : task.reads) {
    const std::span<const std::size_t> readers = uses.readers[gradient];
    if (readers.size() != 2 || readers[0] != at || uses.writers[gradient].size() != 2) {
      return std::nullopt;
    }
    const Task& update = draft.tasks[readers[1]];
    const op::Sgd* sgd = plain_sgd(draft, update);
    if (sgd == nullptr || (applied.rate > 0 && applied.rate != sgd->rate)) {
      return std::nullopt;
    }
    applied.rate = sgd->rate;
    const std::size_t place = static_cast<std::size_t>(std::find(update.reads.begin(), update.reads.end(), gradient) -
                                                       update.reads.begin());
    applied.parameters.push_back(update.writes[place]);
    if (std::find(applied.updates.begin(), applied.updates.end(), readers[1]) == applied.updates.end()) {
      applied.updates.push_back(readers[1]);
    }
    for (const std::size_t reader : uses.readers[applied.parameters.back()]) {
      if (reader > at && reader != readers[1]) {
        return std::nullopt;
      }
    }
  }
  std::size_t updated = 0;
  for (const std::size_t update : applied.updates) {
    updated += draft.tasks[update].writes.size();
  }
  return updated == task.reads.size() ? std::optional(applied) : std::nullopt;
}

/// all_reduce → sgd becomes all_reduce with a rate, if all members can.
void fuse_all_reduce(Draft& draft) {
  const Uses uses(draft);
  std::vector<std::vector<std::size_t>> meetings(draft.meetings);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    const auto* collective = std::get_if<plan::Collective>(&draft.tasks[i].action);
    if (collective != nullptr && collective->kind == plan::Move::all_reduce && collective->sgd_rate == 0) {
      meetings[collective->meeting.index()].push_back(i);
    }
  }
  std::vector<bool> gone(draft.tasks.size(), false);
  for (const std::vector<std::size_t>& members : meetings) {
    std::vector<AppliedSum> sums;
    for (const std::size_t member : members) {
      if (std::optional<AppliedSum> sum = applied_sum(draft, uses, member)) {
        sums.push_back(std::move(*sum));
      }
    }
    if (sums.size() != members.size()) {
      continue;
    }
    for (std::size_t m = 0; m < members.size(); ++m) {
      Task& task = draft.tasks[members[m]];
      std::get<plan::Collective>(task.action).sgd_rate = sums[m].rate;
      task.reads.insert(task.reads.end(), sums[m].parameters.begin(), sums[m].parameters.end());
      task.writes = sums[m].parameters;
      for (const std::size_t update : sums[m].updates) {
        gone[update] = true;
      }
    }
  }
  erase_marked(draft, gone);
}

/// Removes buffers that no task touches and renumbers the rest.
void drop_unused_buffers(Draft& draft) {
  std::vector<bool> used(draft.buffers.size(), false);
  for (const Task& task : draft.tasks) {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        used[id.index()] = true;
      }
    }
  }
  std::vector<BufferId> renamed(draft.buffers.size());
  std::size_t kept = 0;
  for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
    if (used[b]) {
      renamed[b] = BufferId(kept);
      if (kept != b) {
        draft.buffers[kept] = std::move(draft.buffers[b]);
      }
      ++kept;
    }
  }
  draft.buffers.resize(kept);
  for (Task& task : draft.tasks) {
    for (std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (BufferId& id : *list) {
        id = renamed[id.index()];
      }
    }
  }
}

}  // namespace

plan::Draft fuse(plan::Draft draft, const plan::Target& target) {
  if (!target.joined.empty()) {
    fuse_pairs(draft, target.joined);
  }
  if (target.gradient_with_sgd) {
    fuse_sgd(draft, target.narrow_gradient_with_sgd);
  }
  if (target.all_reduce_with_sgd) {
    fuse_all_reduce(draft);
  }
  if (target.adds) {
    fuse_sums(draft);
  }
  if (target.copies) {
    fuse_casts(draft);
    keep_copies(draft);
  }
  if (target.overwrites) {
    overwrite_operands(draft);
  }
  drop_unused_buffers(draft);
  return draft;
}

}  // namespace baton::strategy
