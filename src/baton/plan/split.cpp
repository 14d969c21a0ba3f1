#include "baton/plan/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "baton/op/signature.h"
#include "baton/op/traits.h"
#include "baton/plan/meaning.h"
#include "baton/plan/terms.h"
#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Kind = Thing::Kind;

/// What a buffer is said to hold.
struct Held {
  Thing thing;
  std::vector<Range> at;  // by dimension of the whole
  Range piece;            // elements of that, as they lie in memory; empty: all
  bool operator==(const Held&) const = default;
};

/// What it holds at one point of the plan.
struct State {
  bool written = false;
  bool complete = true;
  bool updated = false;  // a parameter, by this step
  Terms terms;           // where it is not complete
};

/// The indices that an op's letters stand for in one task.
class Indices {
 public:
  struct Bound {
    Range range;
    std::int64_t extent = 0;
  };

  /// False where a letter already stands for other indices.
  bool bind(const op::Axes& axes, const std::vector<Range>& at, const Shape& whole) {
    const bool leading = axes.letters.starts_with('*');
    const std::size_t own = axes.letters.size() - (leading ? 1 : 0);
    if (at.size() != whole.rank() || (leading ? at.size() <= own : at.size() != own)) {
      return false;
    }
    const std::size_t first = at.size() - own;
    if (leading && leading_.empty()) {
      for (std::size_t d = 0; d < first; ++d) {
        leading_.push_back({at[d], whole[d]});
      }
    } else if (leading) {
      for (std::size_t d = 0; d < first; ++d) {
        if (leading_.size() != first || !same(leading_[d], {at[d], whole[d]})) {
          return false;
        }
      }
    }
    for (std::size_t i = 0; i < own; ++i) {
      const char letter = axes.letters[axes.letters.size() - own + i];
      const Bound bound{at[first + i], whole[first + i]};
      const auto known = std::find_if(letters_.begin(), letters_.end(), [&](const auto& one) { return one.first == letter; });
      if (known == letters_.end()) {
        letters_.emplace_back(letter, bound);
      } else if (!same(known->second, bound)) {
        return false;
      }
    }
    return true;
  }

  /// Calls `visit(letter, bounds)` for each letter, the leading dimensions as one.
  template <typename Visit>
  void each(Visit visit) const {
    if (!leading_.empty()) {
      visit('*', std::span<const Bound>(leading_));
    }
    for (const auto& [letter, bound] : letters_) {
      visit(letter, std::span<const Bound>(&bound, 1));
    }
  }

 private:
  static bool same(const Bound& a, const Bound& b) { return a.range == b.range && a.extent == b.extent; }

  std::vector<Bound> leading_;
  std::vector<std::pair<char, Bound>> letters_;
};

bool is_whole(std::span<const Indices::Bound> bounds) {
  return std::all_of(bounds.begin(), bounds.end(), [](const auto& bound) { return bound.range == Range{0, bound.extent}; });
}

std::string list(const std::vector<Range>& at) {
  std::string text;
  for (const Range& range : at) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", range.begin, range.end);
  }
  return text;
}

class Split {
 public:
  Split(const Plan& plan, const Ordering& ordering, const Report& report)
      : plan_(plan), ordering_(ordering), report_(report), graph_(plan.graph()), meaning_(find_shapes()) {}

  void check() {
    if (!graph_is_sound_) {
      return report_(Rule::value, {}, "the plan's graph names a parameter that no buffer holds");
    }
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      if (!hold(BufferId(b))) {
        return;  // what follows would rest on it
      }
    }
    std::vector<bool> met(plan_.meeting_count(), false);
    for (const TaskId id : ordering_.sequence) {
      const MeetingId meeting = meeting_of(plan_[id]);
      if (!meeting.valid()) {
        judge(id);
      } else if (!met[meeting.index()]) {
        met[meeting.index()] = true;
        meet(plan_.members(meeting));
      }
      if (broken_) {
        return;
      }
    }
    check_end();
  }

 private:
  Meaning find_shapes() {
    std::size_t count = 0;
    for (const Buffer& buffer : plan_.buffers()) {
      if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
        count = std::max<std::size_t>(count, std::size_t{part->ordinal} + 1);
      }
      if (std::holds_alternative<LossScaler>(buffer.content)) {
        scaled_ = true;
        scalers_.push_back(buffer.device);
      }
    }
    for (const Graph::Node& node : graph_.nodes) {
      for (const std::uint32_t parameter : node.parameters) {
        graph_is_sound_ = graph_is_sound_ && parameter < count;
      }
    }
    parameters_.resize(count);
    return graph_is_sound_ ? Meaning(graph_, count) : Meaning(no_graph_, 0);
  }

  void broken(Rule rule, std::vector<TaskId> tasks, std::string text) {
    broken_ = true;
    report_(rule, std::move(tasks), std::move(text));
  }

  // ---- names for people

  std::string name(const Thing& thing) const {
    switch (thing.kind) {
      case Kind::value:
        return graph_.values[thing.id].name;
      case Kind::unfinished:
        return fmt::format("the sum of {}", graph_.values[thing.id].name);
      case Kind::gradient:
        return fmt::format("the gradient of {}", graph_.values[thing.id].name);
      case Kind::parameter:
        return parameters_[thing.id].name;
      case Kind::parameter_gradient:
        return fmt::format("the gradient of {}", parameters_[thing.id].name);
      case Kind::state:
        return fmt::format("state {} of {}", thing.slot, parameters_[thing.id].name);
      case Kind::scaler:
        return "the loss scale";
      case Kind::non_finite:
        return "the count of gradients that are not finite";
      case Kind::none:
        break;
    }
    return "nothing that the plan computes";
  }
  std::string name(BufferId id) const {
    const Held& held = held_[id.index()];
    std::string text = fmt::format("b{} ({}", id.value, name(held.thing));
    text += held.at.empty() ? "" : fmt::format(" at {}", list(held.at));
    return text + (held.piece.size() > 0 ? fmt::format(", elements {}:{})", held.piece.begin, held.piece.end) : ")");
  }

  // ---- what buffers hold

  const Shape& whole(const Thing& thing) const {
    return thing.kind == Kind::parameter || thing.kind == Kind::parameter_gradient || thing.kind == Kind::state
               ? parameters_[thing.id].whole
               : graph_.values[thing.id].shape;
  }

  /// Reads a buffer's content into `held_`; false where it makes no sense.
  bool hold(BufferId id) {
    const Buffer& buffer = plan_[id];
    Held held;
    if (const auto* part = std::get_if<ParameterPart>(&buffer.content)) {
      ParameterPart& known = parameters_[part->ordinal];
      if (known.name.empty()) {
        known = *part;
      }
      held.thing = {buffer.role == Role::optimizer_state ? Kind::state
                    : buffer.role == Role::gradient      ? Kind::parameter_gradient
                                                         : Kind::parameter,
                    part->ordinal, part->slot};
      for (std::size_t d = 0; d < part->whole.rank(); ++d) {
        held.at.push_back(d == part->axis ? Range{part->begin, part->end} : Range{0, part->whole[d]});
      }
      held.piece = {part->piece_begin, part->piece_end};
      if (part->whole != known.whole || part->name != known.name) {
        broken(Rule::value, {}, fmt::format("b{} is part of another parameter {} than others are", id.value, part->ordinal));
        return false;
      }
    } else if (const auto* value = std::get_if<ValuePart>(&buffer.content)) {
      held.thing = meaning_.canonical({value->gradient     ? Kind::gradient
                                       : value->unfinished ? Kind::unfinished
                                                           : Kind::value,
                                       value->value.value});
      held.at = value->at;
    } else if (const auto* rows = std::get_if<BatchRows>(&buffer.content); rows != nullptr && rows->value.valid()) {
      held.thing = {Kind::value, rows->value.value};
      held.at = ranges_of(*rows, buffer.shape);
    } else if (std::holds_alternative<LossScaler>(buffer.content)) {
      held.thing = {Kind::scaler};
    } else if (std::holds_alternative<NonFiniteCount>(buffer.content)) {
      held.thing = {Kind::non_finite};
    }
    held_.push_back(std::move(held));
    State state;
    state.written = buffer.persistent;
    states_.push_back(std::move(state));
    return fits(id);
  }

  std::vector<Range> ranges_of(const BatchRows& rows, const Shape& shape) const {
    std::vector<Range> at;
    for (std::size_t d = 0; d < shape.rank(); ++d) {
      at.push_back(d == rows.axis  ? Range{rows.begin, rows.end}
                   : d < rows.axis ? Range{rows.first, rows.first + shape[d]}
                                   : Range{0, shape[d]});
    }
    return at;
  }

  /// Whether what it is said to hold has the buffer's shape and lies in the whole.
  bool fits(BufferId id) {
    const Held& held = held_[id.index()];
    if (held.at.empty()) {
      return true;
    }
    const Shape& all = whole(held.thing);
    bool good = held.at.size() == all.rank();
    std::vector<std::int64_t> extents;
    for (std::size_t d = 0; good && d < held.at.size(); ++d) {
      good = held.at[d].begin >= 0 && held.at[d].begin < held.at[d].end && held.at[d].end <= all[d];
      extents.push_back(held.at[d].size());
    }
    if (good && held.piece.size() > 0) {
      good = held.piece.end <= Shape(extents).elements() && plan_[id].shape.elements() == held.piece.size();
    } else {
      good = good && plan_[id].shape == Shape(extents);
    }
    if (!good) {
      broken(Rule::value, {}, fmt::format("{} cannot be held in {}", name(id), to_text(plan_[id].shape)));
    }
    return good;
  }

  // ---- tasks that work alone

  void judge(TaskId id) {
    const Task& task = plan_[id];
    if (const auto* compute = std::get_if<Compute>(&task.action)) {
      judge_compute(id, task, compute->op);
    } else if (const auto* update = std::get_if<Update>(&task.action)) {
      judge_update(id, task, *update);
    }
  }

  /// What is read must be there, whole, and not yet updated.
  bool readable(TaskId id, BufferId buffer) {
    const State& state = states_[buffer.index()];
    if (state.updated) {
      broken(Rule::update, {id}, fmt::format("{} reads {} after it was updated", plan_.describe(id), name(buffer)));
    } else if (!state.complete) {
      broken(Rule::sum, {id}, fmt::format("{} reads {}, which holds some terms of the sum only", plan_.describe(id), name(buffer)));
    }
    return !broken_;
  }

  void judge_compute(TaskId id, const Task& task, const op::Op& op) {
    const Held& first = held_[task.writes[0].index()];
    if (first.thing.kind == Kind::non_finite) {
      return judge_count(id, task);
    }
    if (first.thing.kind == Kind::scaler) {
      return judge_adjustment(id, task);
    }
    const op::Signature& signature = op::signature(op);
    const bool steps = op::takes_step(op);
    const std::size_t behind = (signature.in_place ? task.writes.size() : 0) +
                               (op::is_loss(op) && task.reads.size() == signature.reads.size() && signature.reads.size() > 2 ? 1
                                                                                                                             : 0);
    const std::span<const BufferId> reads(task.reads.data(), task.reads.size() - std::min(task.reads.size(), behind));
    const Making* making = find(task, plain(op), reads, steps);
    if (making == nullptr) {
      if (signature.linear && !signature.in_place) {
        return add_up(id, task);
      }
      return broken(Rule::value, {id},
                    fmt::format("{} makes {} of {}, which is not how the model makes it", plan_.describe(id), name(task.writes[0]),
                                names(reads)));
    }
    if (op::is_loss(op) && (behind > 0) != scaled_) {
      return broken(Rule::value, {id},
                    fmt::format("{} {} its gradient by the loss scale, unlike the updates", plan_.describe(id),
                                behind > 0 ? "multiplies" : "does not multiply"));
    }
    for (const BufferId buffer : reads) {
      if (!readable(id, buffer)) {
        return;
      }
    }
    Indices indices;
    if (!bind(id, task, signature, indices)) {
      return;
    }
    write(id, task, op, signature, *making, indices, steps);
  }

  std::string names(std::span<const BufferId> buffers) const {
    std::string text;
    for (const BufferId buffer : buffers) {
      text += (text.empty() ? "" : " and ") + name(buffer);
    }
    return text.empty() ? "nothing" : text;
  }

  /// The making that a task is; null: there is none.
  const Making* find(const Task& task, const op::Op& op, std::span<const BufferId> reads, bool steps) const {
    Thing first = held_[task.writes[0].index()].thing;
    if (steps) {
      if (first.kind != Kind::parameter) {
        return nullptr;
      }
      first.kind = Kind::parameter_gradient;
    }
    for (const Making& making : meaning_.makings(first)) {
      const auto holds = [&](BufferId buffer, const Thing& thing) { return held_[buffer.index()].thing == thing; };
      const auto writes = [&](BufferId buffer, Thing thing) {
        if (steps && thing.kind == Kind::parameter_gradient) {
          thing.kind = Kind::parameter;
        }
        return holds(buffer, thing);
      };
      if (making.op == op && std::equal(reads.begin(), reads.end(), making.reads.begin(), making.reads.end(), holds) &&
          std::equal(task.writes.begin(), task.writes.end(), making.writes.begin(), making.writes.end(), writes)) {
        return &making;
      }
    }
    return nullptr;
  }

  /// Gives the signature's letters the indices that the operands hold.
  bool bind(TaskId id, const Task& task, const op::Signature& signature, Indices& indices) {
    const auto one = [&](BufferId buffer, const op::Axes& axes) {
      const Held& held = held_[buffer.index()];
      if (held.thing.kind == Kind::scaler) {
        return true;
      }
      if (held.piece.size() > 0 || !indices.bind(axes, held.at, whole(held.thing))) {
        broken(Rule::value, {id},
               fmt::format("{} cannot take {} together with {}", plan_.describe(id), name(buffer), names(task.reads)));
      }
      return !broken_;
    };
    for (std::size_t i = 0; i < task.reads.size(); ++i) {
      if (!one(task.reads[i], signature.reads[i])) {
        return false;
      }
    }
    for (std::size_t i = 0; i < task.writes.size(); ++i) {
      if (!one(task.writes[i], signature.writes[i])) {
        return false;
      }
    }
    return true;
  }

  void write(TaskId id, const Task& task, const op::Op& op, const op::Signature& signature, const Making& making,
             const Indices& indices, bool steps) {
    for (std::size_t w = 0; w < task.writes.size() && !broken_; ++w) {
      TermBox box{making.use[w], {}, {}};
      bool all = true;
      indices.each([&](char letter, std::span<const Indices::Bound> bounds) {
        const op::Along along = op::along(signature, letter, w);
        if (along == op::Along::sum) {
          for (const Indices::Bound& bound : bounds) {
            box.ranges.push_back(bound.range);
            box.extents.push_back(bound.extent);
          }
          all = all && is_whole(bounds);
        } else if ((along == op::Along::merge || along == op::Along::whole) && !is_whole(bounds)) {
          broken(Rule::value, {id}, fmt::format("{} needs all of a dimension that it has in part", plan_.describe(id)));
        }
      });
      if (!all && !signature.once.empty()) {
        return broken(Rule::sum, {id},
                      fmt::format("{} adds {} to a term of a sum, so that it counts once per term", plan_.describe(id),
                                  name(task.reads[signature.once[0]])));
      }
      put(id, task.writes[w], making.writes[w], box, all, signature.in_place && !steps, steps);
    }
    if (steps && !broken_) {
      check_rate(id, op);
    }
  }

  /// Puts terms into a buffer: in place of what it held, or added to it.
  void put(TaskId id, BufferId buffer, const Thing& made, const TermBox& box, bool all, bool adds, bool steps) {
    const std::uint32_t uses = meaning_.uses(made);
    if (steps) {
      if (!all || uses != 1) {
        return broken(Rule::update, {id},
                      fmt::format("{} updates {} by some terms of its gradient only", plan_.describe(id), name(buffer)));
      }
      return update(id, buffer);
    }
    State& state = states_[buffer.index()];
    if (!adds) {
      state = {.written = true, .complete = all && uses == 1};
      if (!state.complete) {
        state.terms = Terms(box);
      }
      return;
    }
    if (state.complete || !state.terms.add(box)) {
      return broken(Rule::sum, {id}, fmt::format("{} adds to {} what it holds already", plan_.describe(id), name(buffer)));
    }
    settle(state, uses);
  }

  static void settle(State& state, std::uint32_t uses) {
    if (state.terms.complete(uses)) {
      state = {.written = true};
    }
  }

  /// A linear op of terms of one sum: a copy, or the sum of several.
  void add_up(TaskId id, const Task& task) {
    const BufferId target = task.writes[0];
    const Held& held = held_[target.index()];
    State sum;
    bool all = false;
    for (std::size_t i = 0; i < task.reads.size(); ++i) {
      const Held& read = held_[task.reads[i].index()];
      State state = states_[task.reads[i].index()];
      if (state.updated) {
        readable(id, task.reads[i]);
        return;
      }
      Held same = read;
      same.thing = held.thing;
      const std::vector<std::uint32_t> passed = meaning_.passed_terms(held.thing, read.thing);
      if (!(same == held) || (read.thing != held.thing && (passed.empty() || !state.complete))) {
        return broken(Rule::value, {id},
                      fmt::format("{} makes {} of {}, which is not how the model makes it", plan_.describe(id), name(target),
                                  names(task.reads)));
      }
      bool added = false;
      if (read.thing != held.thing) {
        // A value that is added to itself gets the same gradient twice.
        added = std::any_of(passed.begin(), passed.end(), [&](std::uint32_t use) { return sum.terms.add(TermBox{use, {}, {}}); });
      } else {
        added = sum.terms.add(state.terms);
        all = all || state.complete;
      }
      if ((i > 0 && all) || !added) {
        return broken(Rule::sum, {id}, fmt::format("{} adds up terms that are the same", plan_.describe(id)));
      }
    }
    sum.written = true;
    sum.complete = all;
    if (!all) {
      settle(sum, meaning_.uses(held.thing));
    }
    states_[target.index()] = std::move(sum);
  }

  void judge_count(TaskId id, const Task& task) {
    for (const BufferId buffer : task.reads) {
      if (!readable(id, buffer)) {
        return;
      }
    }
    counted_[task.device] = task.reads;
    std::sort(counted_[task.device].begin(), counted_[task.device].end());
    const auto at = std::find(scalers_.begin(), scalers_.end(), task.device) - scalers_.begin();
    State& state = states_[task.writes[0].index()];
    state = {.written = true, .complete = false};
    state.terms = Terms(TermBox{0, {{at, at + 1}}, {static_cast<std::int64_t>(scalers_.size())}});
    settle(state, 1);
  }

  /// Whether the count of what is not finite is that of all devices.
  bool counts_all(TaskId id, BufferId buffer) {
    if (held_[buffer.index()].thing.kind != Kind::non_finite || !states_[buffer.index()].complete) {
      broken(Rule::sum, {id}, fmt::format("{} does not read the count of gradients of all devices", plan_.describe(id)));
    }
    return !broken_;
  }

  void judge_adjustment(TaskId id, const Task& task) {
    if (counts_all(id, task.reads[0]) && std::exchange(states_[task.writes[0].index()].updated, true)) {
      broken(Rule::update, {id}, fmt::format("{} adjusts the loss scale a second time", plan_.describe(id)));
    }
  }

  // ---- updates

  void update(TaskId id, BufferId parameter) {
    if (std::exchange(states_[parameter.index()].updated, true)) {
      broken(Rule::update, {id}, fmt::format("{} updates {} a second time", plan_.describe(id), name(parameter)));
    }
  }

  /// A step that is taken at once is the plain one of the plan's optimizer.
  void check_rate(TaskId id, const op::Op& op) {
    double rate = 0;
    op::Op copy = op;
    op::attributes(copy,
                   [&](std::string_view field, auto& value) { rate = field == "sgd_rate" ? static_cast<double>(value) : rate; });
    check_rate(id, rate);
  }
  void check_rate(TaskId id, double rate) {
    const op::Sgd* sgd = graph_.optimizer ? std::get_if<op::Sgd>(&*graph_.optimizer) : nullptr;
    if (sgd == nullptr || *sgd != op::Sgd{.rate = rate} || scaled_) {
      broken(Rule::update, {id}, fmt::format("{} takes another step than the plan's optimizer", plan_.describe(id)));
    }
  }

  void judge_update(TaskId id, const Task& task, const Update& update_) {
    if (graph_.optimizer && update_.optimizer != *graph_.optimizer) {
      return broken(Rule::update, {id}, fmt::format("{} takes another step than the plan's optimizer", plan_.describe(id)));
    }
    if (update_.scaled != scaled_) {
      return broken(
          Rule::update, {id},
          fmt::format("{} {} the loss scale, unlike the losses", plan_.describe(id), update_.scaled ? "takes back" : "keeps"));
    }
    const std::size_t slots = op::state_slots(update_.optimizer);
    const std::size_t n = task.writes.size() / (1 + slots);
    for (std::size_t i = 0; i < task.writes.size() && !broken_; ++i) {
      const std::size_t p = i < n ? i : (i - n) / slots;
      const Held& gradient = held_[task.reads[p].index()];
      Held wanted = gradient;
      wanted.thing.kind = i < n ? Kind::parameter : Kind::state;
      wanted.thing.slot = i < n ? 0 : static_cast<std::uint32_t>((i - n) % slots);
      if (gradient.thing.kind != Kind::parameter_gradient || !(held_[task.writes[i].index()] == wanted)) {
        return broken(Rule::value, {id},
                      fmt::format("{} updates {} by {}", plan_.describe(id), name(task.writes[i]), name(task.reads[p])));
      }
      if (!readable(id, task.reads[p])) {
        return;
      }
      update(id, task.writes[i]);
      const std::vector<BufferId>& counted = counted_[task.device];
      if (!broken_ && update_.scaled && !std::binary_search(counted.begin(), counted.end(), task.reads[p])) {
        broken(
            Rule::update, {id},
            fmt::format("{} reads {}, of which nobody has looked whether it is finite", plan_.describe(id), name(task.reads[p])));
      }
    }
    if (!broken_ && update_.scaled && counts_all(id, task.reads[task.reads.size() - 2]) &&
        (held_[task.reads.back().index()].thing.kind != Kind::scaler || states_[task.reads.back().index()].updated)) {
      broken(Rule::update, {id}, fmt::format("{} does not read this step's loss scale", plan_.describe(id)));
    }
  }

  // ---- meetings

  void meet(std::span<const TaskId> members) {
    const Task& first = plan_[members[0]];
    const auto* collective = std::get_if<Collective>(&first.action);
    std::vector<TaskId> by_rank(members.size());
    for (const TaskId id : members) {
      by_rank[rank_of(plan_[id])] = id;
    }
    const MoveRule& rule = rule_of(move_of(first));
    const std::span<const BufferId> slots = payload(first);
    std::vector<std::size_t> next(members.size(), 0);  // of a rank's pieces
    for (std::size_t slot = 0; slot < slots.size() && !broken_; ++slot) {
      if (rule.owner == MoveRule::Owner::piece) {
        meet_pieces(by_rank, rule, slot, next, collective->accumulate);
      } else {
        meet_whole(by_rank, rule, slot, collective == nullptr ? 0 : collective->sgd_rate);
      }
    }
  }

  /// All members bring, or take, the same part of the same thing.
  bool alike(const std::vector<TaskId>& members, std::size_t slot) {
    const BufferId first = payload(plan_[members[0]])[slot];
    for (const TaskId id : members) {
      const BufferId own = payload(plan_[id])[slot];
      if (!(held_[own.index()] == held_[first.index()])) {
        broken(Rule::value, {members[0], id},
               fmt::format("{} brings {}, but {} has {}", plan_.describe(members[0]), name(first), plan_.describe(id), name(own)));
        return false;
      }
    }
    return true;
  }

  /// The sum of what the members bring; false: something counts twice.
  bool sum_of(const std::vector<TaskId>& members, std::size_t slot, State& sum) {
    for (const TaskId id : members) {
      const BufferId buffer = payload(plan_[id])[slot];
      const State& state = states_[buffer.index()];
      if (state.updated || state.complete || !sum.terms.add(state.terms)) {
        broken(Rule::sum, {members[0], id},
               fmt::format("{} adds up {} although {}", plan_.describe(id), name(buffer),
                           state.complete ? "the sum is complete" : "another member brings the same terms"));
        return false;
      }
    }
    sum.written = true;
    sum.complete = false;
    settle(sum, meaning_.uses(held_[payload(plan_[members[0]])[slot].index()].thing));
    return check_terms(members, slot);
  }

  /// Buffers that say which term of a sum they hold say it as the collective takes them.
  bool check_terms(const std::vector<TaskId>& members, std::size_t slot) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const BufferId buffer = payload(plan_[members[rank]])[slot];
      const auto* part = std::get_if<ValuePart>(&plan_[buffer].content);
      if (part != nullptr && part->terms > 1 && (part->terms != members.size() || part->term != rank)) {
        broken(Rule::sum, {members[rank]},
               fmt::format("{} brings {} as term {} of {}, which is said to be term {} of {}", plan_.describe(members[rank]),
                           name(buffer), rank, members.size(), part->term, part->terms));
        return false;
      }
    }
    return true;
  }

  void meet_whole(const std::vector<TaskId>& members, const MoveRule& rule, std::size_t slot, double rate) {
    if (!alike(members, slot)) {
      return;
    }
    State result = states_[payload(plan_[members[0]])[slot].index()];
    if (rule.sums) {
      result = {};
      if (!sum_of(members, slot, result)) {
        return;
      }
    }
    for (std::size_t rank = 0; rank < members.size() && !broken_; ++rank) {
      const BufferId buffer = payload(plan_[members[rank]])[slot];
      if (rate > 0) {
        apply(members[rank], slot, result, rate);
      } else if (rule.spreads || rank == 0) {
        states_[buffer.index()] = result;
      }
    }
  }

  /// A sum that is applied to a parameter and not kept.
  void apply(TaskId id, std::size_t slot, const State& sum, double rate) {
    const Task& task = plan_[id];
    const BufferId parameter = task.writes[slot];
    Held wanted = held_[task.reads[slot].index()];
    const bool gradient = wanted.thing.kind == Kind::parameter_gradient;
    wanted.thing.kind = Kind::parameter;
    if (!gradient || !(held_[parameter.index()] == wanted)) {
      return broken(Rule::value, {id},
                    fmt::format("{} updates {} by {}", plan_.describe(id), name(parameter), name(task.reads[slot])));
    }
    if (!sum.complete) {
      return broken(Rule::update, {id},
                    fmt::format("{} updates {} by some terms of its gradient only", plan_.describe(id), name(parameter)));
    }
    update(id, parameter);
    if (!broken_) {
      check_rate(id, rate);
    }
  }

  /// Which elements of a whole buffer a piece is, as they lie in memory; none: it is no run of them.
  std::optional<Range> run_of(BufferId piece, BufferId whole) const {
    const Held& part = held_[piece.index()];
    const Held& all = held_[whole.index()];
    if (part.piece.size() > 0 || all.piece.size() > 0) {
      return part.at == all.at && all.piece.size() == 0 ? std::optional(part.piece) : std::nullopt;
    }
    std::int64_t stride = plan_[whole].shape.elements();
    Range run{0, stride};
    bool found = false;
    for (std::size_t d = 0; d < all.at.size(); ++d) {
      stride /= all.at[d].size();
      if (!(part.at[d] == all.at[d])) {
        if (found) {
          return std::nullopt;
        }
        found = true;
        run = {(part.at[d].begin - all.at[d].begin) * stride, (part.at[d].end - all.at[d].begin) * stride};
      } else if (!found && all.at[d].size() > 1 && d + 1 < all.at.size() &&
                 !std::equal(part.at.begin() + static_cast<std::ptrdiff_t>(d), part.at.end(),
                             all.at.begin() + static_cast<std::ptrdiff_t>(d))) {
        return std::nullopt;  // what is divided lies behind a dimension of several indices
      }
    }
    return run;
  }

  void meet_pieces(const std::vector<TaskId>& members, const MoveRule& rule, std::size_t slot, std::vector<std::size_t>& next,
                   bool accumulate) {
    if (!alike(members, slot)) {
      return;
    }
    State sum;
    if (rule.sums && !sum_of(members, slot, sum)) {
      return;
    }
    const auto size = static_cast<std::uint32_t>(members.size());
    for (std::uint32_t rank = 0; rank < size && !broken_; ++rank) {
      const Task& task = plan_[members[rank]];
      const BufferId all = payload(task)[slot];
      const Range own = piece_of(plan_[all].shape.elements(), std::get<Collective>(task.action));
      if (own.size() > 0) {
        const BufferId piece = pieces(task)[next[rank]++];
        if (held_[piece.index()].thing != held_[all.index()].thing || run_of(piece, all) != own) {
          return broken(Rule::value, {members[rank]},
                        fmt::format("{} takes {} for elements {}:{} of {}", plan_.describe(members[rank]), name(piece), own.begin,
                                    own.end, name(all)));
        }
        if (rule.sums) {
          put_piece(members[rank], piece, sum, accumulate);
        } else if (!readable(members[rank], piece)) {
          return;
        }
      }
      if (!rule.sums) {
        states_[all.index()] = {.written = true};
      }
    }
  }

  void put_piece(TaskId id, BufferId piece, const State& sum, bool adds) {
    State& state = states_[piece.index()];
    if (!adds) {
      state = sum;
      return;
    }
    if (state.complete || sum.complete || !state.terms.add(sum.terms)) {
      return broken(Rule::sum, {id}, fmt::format("{} adds to {} what it holds already", plan_.describe(id), name(piece)));
    }
    settle(state, meaning_.uses(held_[piece.index()].thing));
  }

  // ---- the end of the step

  void check_end() {
    Terms losses;
    bool judged = false;
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      const Buffer& buffer = plan_.buffers()[b];
      const Thing& thing = held_[b].thing;
      const bool kept = buffer.persistent &&
                        (thing.kind == Kind::parameter || thing.kind == Kind::state || thing.kind == Kind::scaler);
      if (kept && graph_.optimizer && !states_[b].updated) {
        return broken(Rule::update, {},
                      fmt::format("nothing updates {} on {}", name(BufferId(b)), plan_.devices()[buffer.device.index()]));
      }
      if (buffer.role == Role::loss && thing.kind == Kind::value) {
        if (!states_[b].complete || !states_[b].written) {
          return broken(Rule::sum, {}, fmt::format("{} is not complete at the end", name(BufferId(b))));
        }
        judged = true;
        losses.add(TermBox{0, held_[b].at, whole(thing).extents()});  // several devices may have the same
      }
    }
    if (judged && !losses.complete(1)) {
      broken(Rule::value, {}, "no device computes some of the losses");
    }
  }

  const Plan& plan_;
  const Ordering& ordering_;
  const Report& report_;
  const Graph& graph_;
  const Graph no_graph_ = {};
  bool graph_is_sound_ = true;
  bool scaled_ = false;            // whether the step has a loss scale
  std::vector<DeviceId> scalers_;  // the devices that have one
  bool broken_ = false;
  std::vector<ParameterPart> parameters_;  // by ordinal: the first that was met
  Meaning meaning_;
  std::vector<Held> held_;                             // by buffer
  std::vector<State> states_;                          // likewise
  std::map<DeviceId, std::vector<BufferId>> counted_;  // by a device's check for what is not finite
};

}  // namespace

void check_split(const Plan& plan, const Ordering& ordering, const Report& report) {
  if (!plan.graph().empty()) {
    Split(plan, ordering, report).check();
  }
}

}  // namespace baton::plan
