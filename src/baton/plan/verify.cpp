#include "baton/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "baton/base/error.h"
#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"
#include "baton/plan/split.h"

namespace baton::plan {
namespace {

class Judge {
 public:
  Judge(const Plan& plan, const Limits& limits)
      : plan_(plan),
        limits_(limits),
        forward_only_(!plan.graph().empty() && std::none_of(plan.tasks().begin(), plan.tasks().end(),
                                                            [](const Task& task) { return task.labels.phase != Phase::forward; })) {
  }

  Verdict judge() {
    for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
      check_place(TaskId(i));
      check_shape(TaskId(i));
      check_kernel(TaskId(i));
    }
    check_meetings();
    std::stable_sort(verdict_.violations.begin(), verdict_.violations.end(),
                     [](const Violation& a, const Violation& b) { return a.rule < b.rule; });
    if (verdict_.holds()) {
      verdict_.ordering = order(plan_);
      check_waiting();
    }
    if (verdict_.holds()) {
      check_buffers();
    }
    if (verdict_.holds() && !limits_.slice) {
      check_split(plan_, verdict_.ordering, limits_.alike_parts,
                  [&](Rule rule, std::vector<TaskId> tasks, std::string text) { report(rule, std::move(tasks), std::move(text)); });
    }
    if (verdict_.holds()) {
      verdict_.memory = plan_memory(plan_, verdict_.ordering);
      check_memory();
    }
    return std::move(verdict_);
  }

 private:
  /// True if members of a collective may be missing.
  bool is_slice() const { return limits_.slice || limits_.alike_parts > 2; }

  void report(Rule rule, std::vector<TaskId> tasks, std::string text) {
    if (verdict_.violations.size() < Verdict::max_violations) {
      verdict_.violations.push_back({rule, std::move(tasks), std::move(text)});
    }
  }

  std::string name(BufferId id) const {
    const Buffer& buffer = plan_[id];
    return fmt::format("b{} ({})", id.value, buffer.label.empty() ? "unnamed" : buffer.label);
  }

  void check_place(TaskId id) {
    const Task& task = plan_[id];
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId buffer : *list) {
        if (plan_[buffer].device != task.device) {
          report(Rule::place, {id},
                 fmt::format("{} touches buffer {} of {}", plan_.describe(id), name(buffer),
                             plan_.devices()[plan_[buffer].device.index()]));
        }
      }
    }
    for (const TaskId other : task.after) {
      if (plan_[other].device != task.device) {
        report(Rule::place, {id, other},
               fmt::format("{} comes after {}, a task of another device, without a transfer between them", plan_.describe(id),
                           plan_.describe(other)));
      }
    }
  }

  /// A task's operands, in a list that is used again for the next task's: that saves most allocations.
  std::span<const op::Operand> operands(const std::vector<BufferId>& ids, std::vector<op::Operand>& list) const {
    list.resize(std::max(list.size(), ids.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      list[i].shape = plan_[ids[i]].shape;
      list[i].dtype = plan_[ids[i]].dtype;
    }
    return std::span(list).first(ids.size());
  }

  bool is(BufferId id, const Shape& shape, DType type = DType::f32) const {
    return plan_[id].shape == shape && plan_[id].dtype == type;
  }

  /// True if an update's operands are right: n gradients, the n parameters with their states, the norm if it clips, and the state
  /// of the loss scaler; copies are only written.
  bool update_fits(const Task& task, const Update& update) const {
    const std::size_t group = 1 + op::state_slots(update.optimizer);
    if (task.writes.empty() || task.writes.size() % (group + (update.copies ? 1 : 0)) != 0) {
      return false;
    }
    const std::size_t n = updated_count(task);
    const std::size_t stepped = n * group;
    const std::size_t own = n + stepped;
    const std::size_t scale = own + (op::clip_of(update.optimizer) > 0 ? 1 : 0);
    if (task.reads.size() != scale + (update.scaled ? 2 : 0) || (scale > own && !is(task.reads[own], {1}, DType::f64)) ||
        (update.scaled && !(is(task.reads[scale], {1}) && is(task.reads[scale + 1], {op::ScaleState::elements}))) ||
        !std::equal(task.writes.begin(), task.writes.begin() + static_cast<std::ptrdiff_t>(stepped),
                    task.reads.begin() + static_cast<std::ptrdiff_t>(n))) {
      return false;
    }
    for (std::size_t i = stepped; i < task.writes.size(); ++i) {
      const Buffer& parameter = plan_[task.writes[i - stepped]];
      const Buffer& copy = plan_[task.writes[i]];
      if (copy.shape != parameter.shape || !is_narrow(copy.dtype) || copy.dtype != plan_[task.writes[stepped]].dtype ||
          parameter.dtype != DType::f32 || copy.layout != parameter.layout) {
        return false;
      }
    }
    for (std::size_t i = 0; i < stepped; ++i) {
      const std::size_t p = i < n ? i : (i - n) / (group - 1);
      const Buffer& gradient = plan_[task.reads[p]];
      const Buffer& written = plan_[task.writes[i]];
      const bool typed = written.dtype == plan_[task.writes[p]].dtype &&
                         (written.dtype == gradient.dtype || (is_narrow(gradient.dtype) && written.dtype == DType::f32));
      if (written.shape != gradient.shape || !typed || written.layout != gradient.layout) {
        return false;
      }
    }
    return true;
  }

  /// True if they are rows of the batch that persist from step to step, loaded for the next one.
  bool are_loaded(std::span<const BufferId> ids) const {
    return !ids.empty() && std::all_of(ids.begin(), ids.end(), [&](BufferId id) {
      return plan_[id].persistent && (plan_[id].role == Role::input || plan_[id].role == Role::target) &&
             std::holds_alternative<BatchRows>(plan_[id].content);
    });
  }
  bool load_fits(const Task& task) const { return task.lane == Lane::host && task.reads.empty() && are_loaded(task.writes); }
  bool take_fits(const Task& task) const {
    return are_loaded(task.reads) && alike(task.reads, task.writes) &&
           std::equal(task.reads.begin(), task.reads.end(), task.writes.begin(), [&](BufferId from, BufferId to) {
             return plan_[from].role == plan_[to].role && plan_[from].content == plan_[to].content;
           });
  }

  /// An op that works in place has its outputs, without copies, as its last operands.
  static bool works_in_place(const op::Op& op, const Task& task) {
    const auto changed = static_cast<std::ptrdiff_t>(task.writes.size() - op::signature(op).copies);
    return !op::signature(op).in_place ||
           std::equal(task.writes.begin(), task.writes.begin() + changed, task.reads.end() - changed, task.reads.end());
  }

  void check_shape(TaskId id) {
    const Task& task = plan_[id];
    if (const auto* compute = std::get_if<Compute>(&task.action)) {
      if (const auto why = op::mismatch(compute->op, operands(task.reads, reads_), operands(task.writes, writes_))) {
        report(Rule::shape, {id}, fmt::format("{}: {}", plan_.describe(id), *why));
      } else if (!works_in_place(compute->op, task)) {
        report(Rule::shape, {id}, fmt::format("{} adds to other buffers than it writes", plan_.describe(id)));
      }
    } else if (const auto* update = std::get_if<Update>(&task.action)) {
      if (!update_fits(task, *update)) {
        report(
            Rule::shape, {id},
            fmt::format("{} does not read one gradient of its shape for each parameter and state it writes", plan_.describe(id)));
      }
    } else if (std::holds_alternative<Delay>(task.action) && !(task.reads.empty() && task.writes.empty())) {
      report(Rule::shape, {id}, fmt::format("{} touches buffers", plan_.describe(id)));
    } else if (std::holds_alternative<Load>(task.action) && !load_fits(task)) {
      report(Rule::shape, {id},
             fmt::format("{} does not fill inputs and targets of a further step, on the host lane", plan_.describe(id)));
    } else if (std::holds_alternative<Take>(task.action) && !take_fits(task)) {
      report(Rule::shape, {id}, fmt::format("{} does not copy inputs and targets, each to one like it", plan_.describe(id)));
    }
  }

  void check_meetings() {
    for (std::size_t m = 0; m < plan_.meeting_count(); ++m) {
      const std::span<const TaskId> members = plan_.members(MeetingId(m));
      if (members.empty()) {
        continue;
      }
      const bool transfer = std::holds_alternative<Transfer>(plan_[members[0]].action);
      if (const std::string why = transfer ? broken_transfer(members) : broken_collective(members); !why.empty()) {
        report(Rule::meet, {members.begin(), members.end()}, fmt::format("{} {}", plan_.describe(members[0]), why));
      }
    }
  }

  bool alike(std::span<const BufferId> a, std::span<const BufferId> b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](BufferId x, BufferId y) {
      return plan_[x].shape == plan_[y].shape && plan_[x].dtype == plan_[y].dtype && plan_[x].layout == plan_[y].layout;
    });
  }

  std::string broken_transfer(std::span<const TaskId> members) const {
    const auto* first = std::get_if<Transfer>(&plan_[members[0]].action);
    const auto* second = members.size() == 2 ? std::get_if<Transfer>(&plan_[members[1]].action) : nullptr;
    if (second == nullptr) {
      return members.size() < 2 ? "has no other end" : "has more than two ends";
    }
    if (first->end == second->end) {
      return first->end == Transfer::End::send ? "meets another send: it needs a receive"
                                               : "meets another receive: it needs a send";
    }
    const Task& send = plan_[members[first->end == Transfer::End::send ? 0 : 1]];
    const Task& receive = plan_[members[first->end == Transfer::End::send ? 1 : 0]];
    if (std::get<Transfer>(send.action).peer != receive.device || std::get<Transfer>(receive.action).peer != send.device ||
        send.device == receive.device) {
      return fmt::format("and {} do not name each other as peers", plan_.describe(members[1]));
    }
    if (send.reads.size() != 1 || !send.writes.empty() || receive.writes.size() != 1 || !receive.reads.empty() ||
        !alike(send.reads, receive.writes)) {
      return fmt::format("and {} do not move one buffer into one like it", plan_.describe(members[1]));
    }
    return {};
  }

  /// An all-reduce that updates reads gradients and the parameters that it writes, one like the other.
  bool applies(const Task& task, const Collective& collective) const {
    return collective.kind == Move::all_reduce && collective.sgd_rate > 0 && !task.writes.empty() &&
           task.reads.size() == 2 * task.writes.size() &&
           std::equal(task.writes.begin(), task.writes.end(),
                      task.reads.begin() + static_cast<std::ptrdiff_t>(task.writes.size())) &&
           alike(payload(task), task.writes);
  }

  /// True if a member of a collective on pieces holds its own pieces and no others.
  bool holds_its_pieces(const Task& task, const Collective& collective) const {
    const std::span<const BufferId> whole = payload(task);
    const std::span<const BufferId> held = pieces(task);
    if (whole.empty() ||
        (collective.accumulate &&
         !std::equal(held.begin(), held.end(), task.reads.begin() + static_cast<std::ptrdiff_t>(whole.size()), task.reads.end()))) {
      return false;
    }
    std::size_t next = 0;
    for (const BufferId id : whole) {
      if (plan_[id].shape.elements() % collective.row != 0) {
        return false;
      }
      const std::int64_t size = piece_of(plan_[id].shape.elements(), collective).size();
      if (size == 0) {
        continue;
      }
      if (next == held.size() || plan_[held[next]].shape.elements() != size || plan_[held[next]].dtype != plan_[id].dtype ||
          plan_[held[next]].layout != plan_[id].layout) {
        return false;
      }
      ++next;
    }
    return next == held.size();
  }

  bool member_fits(const Task& task, const Collective& member) const {
    const MoveRule& rule = rule_of(member.kind);
    if (member.kind == Move::copy || (member.accumulate && !(rule.owner == MoveRule::Owner::piece && rule.sums)) ||
        member.row < 1 || (member.row > 1 && rule.owner != MoveRule::Owner::piece)) {
      return false;
    }
    if (member.sgd_rate != 0) {
      return applies(task, member);
    }
    if (rule.owner == MoveRule::Owner::piece) {
      return holds_its_pieces(task, member);
    }
    const bool owns = rule.owner == MoveRule::Owner::share || member.rank == 0;
    const bool brings = rule.sums || owns;
    const bool takes = rule.sums ? rule.spreads || owns : !owns;
    // A sum takes the place of the member's own term.
    return brings == !task.reads.empty() && takes == !task.writes.empty() && (!(brings && takes) || task.reads == task.writes);
  }

  std::string broken_collective(std::span<const TaskId> members) const {
    const auto* first = std::get_if<Collective>(&plan_[members[0]].action);
    if (first == nullptr || (is_slice() ? members.size() > first->size : members.size() != first->size)) {
      return fmt::format("has {} of its {} members", members.size(), first == nullptr ? 0 : first->size);
    }
    std::vector<bool> ranks(first->size, false);
    std::vector<DeviceId> devices;
    for (const TaskId id : members) {
      const Task& task = plan_[id];
      const auto* member = std::get_if<Collective>(&task.action);
      if (member == nullptr || member->kind != first->kind || member->size != first->size || member->sgd_rate != first->sgd_rate ||
          member->accumulate != first->accumulate || member->row != first->row) {
        return fmt::format("meets {}, which is something else", plan_.describe(id));
      }
      if (member->rank >= first->size || ranks[member->rank]) {
        return fmt::format("has rank {} twice or out of range", member->rank);
      }
      ranks[member->rank] = true;
      devices.push_back(task.device);
      if (!member_fits(task, *member) || !alike(payload(plan_[members[0]]), payload(task))) {
        return fmt::format("and {} do not bring buffers that fit together", plan_.describe(id));
      }
    }
    std::sort(devices.begin(), devices.end());
    if (std::adjacent_find(devices.begin(), devices.end()) != devices.end()) {
      return "has two members on one device";
    }
    return {};
  }

  void check_kernel(TaskId id) {
    if (limits_.has_kernel && !limits_.has_kernel(plan_[id])) {
      report(Rule::kernel, {id}, fmt::format("the backend has no kernel for {}", plan_.describe(id)));
    }
  }

  void check_waiting() {
    const std::vector<TaskId>& circle = verdict_.ordering.circle;
    if (circle.empty()) {
      return;
    }
    std::string text = "these tasks wait for one another and would never start: ";
    for (std::size_t i = 0; i < std::min<std::size_t>(circle.size(), 6); ++i) {
      text += (i == 0 ? "" : ", ") + plan_.describe(circle[i]);
    }
    report(Rule::waiting, circle, text);
  }

  /// True if an op writes this output for its backward alone, in addition to its result. Nobody reads it if the op is run again
  /// before that, or if the plan has no backward: then it may also be the gradient that a loss writes.
  bool is_statistics(const Task& task, std::size_t operand) const {
    const auto* compute = std::get_if<Compute>(&task.action);
    return compute != nullptr && operand > 0 &&
           (op::signature(compute->op).writes[operand].type == op::Type::state || (forward_only_ && op::is_loss(compute->op)));
  }

  /// True if the backward recomputes an activation that the forward computed on this device: a block that is recomputed as a whole
  /// writes its output again, and the backward need not read that.
  bool is_made_again(BufferId id, TaskId writer) {
    const auto* part = std::get_if<ValuePart>(&plan_[id].content);
    if (part == nullptr || plan_[id].role != Role::activation || plan_[writer].labels.phase != Phase::backward) {
      return false;
    }
    if (made_in_forward_.empty()) {
      for (const Task& task : plan_.tasks()) {
        for (const BufferId written : task.writes) {
          const auto* value = std::get_if<ValuePart>(&plan_[written].content);
          if (value != nullptr && task.labels.phase == Phase::forward && plan_[written].role == Role::activation) {
            made_in_forward_.emplace(task.device.index(), value->value.index());
          }
        }
      }
    }
    return made_in_forward_.contains({plan_[writer].device.index(), part->value.index()});
  }

  /// Walks the tasks in order and compares each touch of a buffer with the touches before it. It is enough to
  /// remember the last write and, for each lane, the last read since: older ones come before those.
  void check_buffers() {
    struct Touch {
      TaskId write;
      std::array<TaskId, lane_count> reads;
      bool read_since_write = true;
    };
    std::vector<Touch> touches(plan_.buffers().size());
    const auto unread = [&](BufferId id, const Touch& touch) {
      if (!limits_.unread && touch.write.valid() && !touch.read_since_write && !is_made_again(id, touch.write)) {
        report(Rule::read, {touch.write}, fmt::format("{} writes {}, which nothing reads", plan_.describe(touch.write), name(id)));
      }
    };
    for (const TaskId id : verdict_.ordering.sequence) {
      const Task& task = plan_[id];
      const auto must_follow = [&](TaskId other, BufferId buffer) {
        if (other.valid() && other != id && !verdict_.ordering.ordered(plan_, other, id)) {
          report(Rule::ordered, {other, id},
                 fmt::format("{} and {} both touch {} and nothing says which comes first", plan_.describe(other),
                             plan_.describe(id), name(buffer)));
        }
      };
      for (const BufferId buffer : task.reads) {
        Touch& touch = touches[buffer.index()];
        if (!touch.write.valid() && !plan_[buffer].persistent) {
          report(Rule::written, {id}, fmt::format("{} reads {} before anything has written it", plan_.describe(id), name(buffer)));
        }
        must_follow(touch.write, buffer);
        touch.reads[static_cast<std::size_t>(task.lane)] = id;
        touch.read_since_write = true;
      }
      for (std::size_t i = 0; i < task.writes.size(); ++i) {
        const BufferId buffer = task.writes[i];
        Touch& touch = touches[buffer.index()];
        must_follow(touch.write, buffer);
        for (const TaskId read : touch.reads) {
          must_follow(read, buffer);
        }
        unread(buffer, touch);
        touch = {id, {}, is_statistics(task, i)};
      }
    }
    for (std::size_t b = 0; b < touches.size(); ++b) {
      if (!plan_.buffers()[b].persistent && plan_.buffers()[b].role != Role::loss) {
        unread(BufferId(b), touches[b]);
      }
    }
  }

  void check_memory() {
    for (std::size_t d = 0; d < limits_.memory.size() && d < verdict_.memory.peak.size(); ++d) {
      if (verdict_.memory.peak[d] > limits_.memory[d]) {
        report(Rule::memory, {},
               fmt::format("{} needs {} but has {}: use a smaller model or batch, {}or divide the model ({}pipelines, tensor "
                           "parallelism)",
                           plan_.devices()[d], to_text(verdict_.memory.peak[d]), to_text(limits_.memory[d]),
                           recomputes() ? "" : "recompute activations, ", shards() ? "" : "ZeRO, "));
      }
    }
  }

  /// True if the backward recomputes activations.
  bool recomputes() const {
    return std::any_of(plan_.tasks().begin(), plan_.tasks().end(), [&](const Task& task) {
      const auto* compute = std::get_if<Compute>(&task.action);
      return compute != nullptr && task.labels.phase == Phase::backward && op::is_product(compute->op) &&
             std::any_of(task.writes.begin(), task.writes.end(), [&](BufferId id) {
               const auto* part = std::get_if<ValuePart>(&plan_.buffers()[id.index()].content);
               return part != nullptr && !part->gradient;
             });
    });
  }

  /// True if replicas keep pieces of parameters or of their states.
  bool shards() const {
    return std::any_of(plan_.buffers().begin(), plan_.buffers().end(), [](const Buffer& buffer) {
      const auto* part = std::get_if<ParameterPart>(&buffer.content);
      return part != nullptr && buffer.persistent && part->piece_end > 0;
    });
  }

  const Plan& plan_;
  const Limits& limits_;
  bool forward_only_;
  std::vector<op::Operand> reads_;  // the reads of the task that is checked
  std::vector<op::Operand> writes_;
  Verdict verdict_;
  std::set<std::pair<std::size_t, std::size_t>> made_in_forward_;  // device and value; filled when it is first asked for
};

}  // namespace

std::string_view to_text(Rule rule) {
  constexpr std::array<std::string_view, 12> names{"place",   "shape",  "meet",   "written", "read", "ordered",
                                                   "waiting", "kernel", "memory", "value",   "sum",  "update"};
  return names[static_cast<std::size_t>(rule)];
}

Verdict verify(const Plan& plan, const Limits& limits) { return Judge(plan, limits).judge(); }

void require(const Verdict& verdict) {
  if (!verdict.holds()) {
    throw usage_error("{}", verdict.violations.front().text);
  }
}

}  // namespace baton::plan
