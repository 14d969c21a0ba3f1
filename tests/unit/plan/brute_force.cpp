#include "unit/plan/brute_force.h"

#include <algorithm>
#include <map>
#include <set>

namespace baton::plan::test {
namespace {

using Edges = std::vector<std::vector<std::size_t>>;

/// What can be reached from each node in one step or more.
std::vector<std::vector<bool>> closure(const Edges& next) {
  std::vector<std::vector<bool>> reaches(next.size(), std::vector<bool>(next.size(), false));
  for (std::size_t from = 0; from < next.size(); ++from) {
    std::vector<std::size_t> stack = next[from];
    while (!stack.empty()) {
      const std::size_t at = stack.back();
      stack.pop_back();
      if (!reaches[from][at]) {
        reaches[from][at] = true;
        stack.insert(stack.end(), next[at].begin(), next[at].end());
      }
    }
  }
  return reaches;
}

bool is_real(DType type) { return type != DType::i32; }

class Judge {
 public:
  Judge(const Plan& plan, const Limits& limits) : plan_(plan), limits_(limits) {}

  Judgement judge() {
    for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
      place(i);
      if (!shapes_suit(plan_.tasks()[i])) {
        blame(Rule::shape, {i});
      }
      if (limits_.has_kernel && !limits_.has_kernel(plan_.tasks()[i])) {
        blame(Rule::kernel, {i});
      }
    }
    meetings();
    if (found_.right()) {
      circles();
    }
    if (found_.right()) {
      buffers();
    }
    return found_;
  }

 private:
  void blame(Rule rule, const std::vector<std::size_t>& tasks) {
    found_.broken.insert(rule);
    for (const std::size_t task : tasks) {
      found_.guilty.emplace(rule, task);
    }
  }

  void place(std::size_t i) {
    const Task& task = plan_.tasks()[i];
    for (const auto* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        if (plan_[id].device != task.device) {
          blame(Rule::place, {i});
        }
      }
    }
    for (const TaskId other : task.after) {
      if (plan_[other].device != task.device) {
        blame(Rule::place, {i, other.index()});
      }
    }
  }

  // ---- shape: each op's law as op.h tells it

  const Buffer& buffer(BufferId id) const { return plan_[id]; }

  bool same(BufferId a, BufferId b) const { return buffer(a).shape == buffer(b).shape && buffer(a).dtype == buffer(b).dtype; }
  bool like(BufferId a, BufferId b) const { return same(a, b) && buffer(a).layout == buffer(b).layout; }
  bool is(BufferId id, const std::vector<std::int64_t>& extents, DType type) const {
    return buffer(id).shape == Shape(extents) && buffer(id).dtype == type;
  }

  bool shapes_suit(const Task& task) const {
    if (const auto* compute = std::get_if<Compute>(&task.action)) {
      return op_suits(compute->op, task.reads, task.writes);
    }
    if (const auto* update = std::get_if<Update>(&task.action)) {
      return update_suits(op::state_slots(update->optimizer), op::clip_of(update->optimizer) > 0, update->scaled, update->copies,
                          task);
    }
    return !std::holds_alternative<Delay>(task.action) || (task.reads.empty() && task.writes.empty());
  }

  /// In what order a computation wants its weights to lie is for the backend to say, by whether it has a
  /// kernel.
  bool op_suits(const op::Op& op, const std::vector<BufferId>& in, const std::vector<BufferId>& out) const {
    const std::string_view name = op::name(op);
    if (name == "check_finite") {
      return out.size() == 1 && is_flag(out[0]) &&
             std::all_of(in.begin(), in.end(), [&](BufferId id) { return is_real(buffer(id).dtype); });
    }
    if (name == "squared_sum") {
      return out.size() == 1 && is(out[0], {1}, DType::f64) &&
             std::all_of(in.begin(), in.end(), [&](BufferId id) { return is_real(buffer(id).dtype); });
    }
    if (in.empty() || out.empty() || !is_real(buffer(in[0]).dtype)) {
      return false;
    }
    const DType type = buffer(in[0]).dtype;
    const Shape::Extents& extents = buffer(in[0]).shape.extents();
    const std::vector<std::int64_t> first(extents.begin(), extents.end());
    if (name == "relu") {
      return in.size() == 1 && out.size() == 1 && same(in[0], out[0]);
    }
    if (name == "add") {  // any of them may be float32 together with one 16-bit type
      std::set<DType> types;
      for (const auto* list : {&in, &out}) {
        for (const BufferId id : *list) {
          types.insert(buffer(id).dtype);
        }
      }
      types.erase(types.size() == 2 && (types.contains(DType::bf16) || types.contains(DType::f16)) ? DType::f32 : DType::i32);
      return in.size() == 2 && out.size() == 1 && types.size() == 1 && is_real(*types.begin()) &&
             buffer(in[1]).shape == buffer(in[0]).shape && buffer(out[0]).shape == buffer(in[0]).shape;
    }
    if (name == "relu_backward") {
      return in.size() == 2 && out.size() == 1 && same(in[0], in[1]) && same(in[0], out[0]);
    }
    if (name == "cast") {
      return in.size() == 1 && out.size() == 1 && is_real(buffer(out[0]).dtype) && buffer(out[0]).dtype != type &&
             buffer(in[0]).shape == buffer(out[0]).shape;
    }
    if (name == "adjust_scale") {
      return in.size() == 2 && out.size() == 1 && is_flag(in[0]) && is_state(in[1]) && in[1] == out[0] &&
             std::get<op::AdjustScale>(op).growth_interval >= 0;
    }
    if (name == "mean_squared_error") {
      const bool scaled = std::get<op::MeanSquaredError>(op).scaled;
      return in.size() == (scaled ? 3U : 2U) && (!scaled || is_state(in[2])) && out.size() == 2 && !first.empty() &&
             same(in[0], in[1]) && same(in[0], out[1]) && is(out[0], {first[0]}, DType::f64) &&
             std::get<op::MeanSquaredError>(op).elements >= buffer(in[0]).shape.elements();
    }
    if (name == "cross_entropy") {
      const bool scaled = std::get<op::CrossEntropy>(op).scaled;
      return in.size() == (scaled ? 3U : 2U) && (!scaled || is_state(in[2])) && out.size() == 2 && first.size() == 2 &&
             is(in[1], {first[0]}, DType::i32) && same(in[0], out[1]) && is(out[0], {first[0]}, DType::f64) &&
             std::get<op::CrossEntropy>(op).rows >= first[0];
    }
    if (first.size() != 2) {
      return false;  // the rest are products of matrices
    }
    const std::int64_t rows = first[0];
    if (name == "matrix_product") {
      return in.size() == 2 && out.size() == 1 && buffer(in[1]).shape.rank() == 2 &&
             is(in[1], {first[1], buffer(in[1]).shape[1]}, type) && is(out[0], {rows, buffer(in[1]).shape[1]}, type);
    }
    if (name == "add_bias") {
      return in.size() == 2 && out.size() == 1 && is(in[1], {first[1]}, type) && same(in[0], out[0]);
    }
    if (name == "add_bias_backward") {
      const bool adds = std::get<op::AddBiasBackward>(op).accumulate;
      return in.size() == (adds ? 2U : 1U) && out.size() == 1 && is_gradient(out[0], {first[1]}, type) &&
             (!adds || in[1] == out[0]);
    }
    if (name == "linear") {
      const op::Linear& linear = std::get<op::Linear>(op);
      if (in.size() != (linear.partial ? 2U : 3U) || (linear.partial && linear.relu) || out.size() != 1 ||
          buffer(out[0]).shape.rank() != 2) {
        return false;
      }
      const std::int64_t outputs = buffer(out[0]).shape[1];
      return is(in[1], {outputs, first[1]}, type) && (linear.partial || is(in[2], {outputs}, type)) &&
             is(out[0], {rows, outputs}, type);
    }
    if (name == "linear_backward_input") {
      const auto& backward = std::get<op::LinearBackwardInput>(op);
      const bool third = backward.mask || backward.gelu || backward.adds;
      if (in.size() != (third ? 3U : 2U) || out.size() != 1 || buffer(out[0]).shape.rank() != 2) {
        return false;
      }
      const std::int64_t inputs = buffer(out[0]).shape[1];
      return backward.mask + backward.gelu + backward.adds < 2 && is(in[1], {first[1], inputs}, type) &&
             is(out[0], {rows, inputs}, type) && (!third || same(in[2], out[0]));
    }
    if (name == "linear_backward_weight") {
      const auto& weight = std::get<op::LinearBackwardWeight>(op);
      const bool adds = weight.accumulate || weight.sgd_rate > 0;
      const std::size_t count = weight.partial ? 1 : 2;
      if (in.size() != (adds ? 2 + count : 2) || out.size() != (weight.copies ? 2 * count : count) ||
          buffer(in[1]).shape.rank() != 2 || (weight.copies && (weight.sgd_rate == 0 || weight.partial || !is_narrow(type)))) {
        return false;
      }
      for (std::size_t i = count; i < out.size(); ++i) {  // copies have the type of what is computed with
        if (buffer(out[i]).dtype != type || buffer(out[i]).shape != buffer(out[i - count]).shape) {
          return false;
        }
      }
      const std::int64_t outputs = buffer(in[1]).shape[1];
      return is(in[1], {rows, outputs}, type) && is_gradient(out[0], {outputs, first[1]}, type) &&
             (weight.partial || is(out[1], {outputs}, buffer(out[0]).dtype)) &&
             (!adds || (in[2] == out[0] && (weight.partial || in[3] == out[1])));  // it adds to what it writes
    }
    return false;
  }

  /// Gradients of parameters may be float32 where what is computed with has 16 bits.
  bool is_gradient(BufferId id, const std::vector<std::int64_t>& extents, DType type) const {
    return is(id, extents, type) || ((type == DType::bf16 || type == DType::f16) && is(id, extents, DType::f32));
  }
  bool is_flag(BufferId id) const { return is(id, {1}, DType::f32); }
  bool is_state(BufferId id) const { return is(id, {4}, DType::f32); }

  /// Reads n gradients, then the n parameters and all states, which are what it writes; last, where it is scaled, a flag and
  /// the scaler's state. Gradients may be of 16 bits where the rest is float32.
  bool update_suits(std::size_t slots, bool clips, bool scaled, bool copies, Task task) const {
    if (copies) {
      const std::size_t n = task.writes.size() / (2 + slots);
      if (n * (2 + slots) != task.writes.size()) {
        return false;
      }
      for (std::size_t p = 0; p < n; ++p) {
        const Buffer& parameter = buffer(task.writes[p]);
        const Buffer& copy = buffer(task.writes[task.writes.size() - n + p]);
        if (parameter.dtype != DType::f32 || !is_narrow(copy.dtype) || copy.shape != parameter.shape ||
            copy.dtype != buffer(task.writes[task.writes.size() - n]).dtype || copy.layout != parameter.layout) {
          return false;
        }
      }
      task.writes.resize(task.writes.size() - n);
    }
    if (scaled) {
      if (task.reads.size() < 2 || !is_state(task.reads.back()) || !is_flag(task.reads[task.reads.size() - 2])) {
        return false;
      }
      task.reads.resize(task.reads.size() - 2);
    }
    if (clips) {
      if (task.reads.empty() || !is(task.reads.back(), {1}, DType::f64)) {
        return false;
      }
      task.reads.pop_back();
    }
    std::size_t n = 0;
    while (n * (1 + slots) < task.writes.size()) {
      ++n;
    }
    if (n == 0 || n * (1 + slots) != task.writes.size() || task.reads.size() != n + task.writes.size()) {
      return false;
    }
    for (std::size_t p = 0; p < n; ++p) {
      const Buffer& gradient = buffer(task.reads[p]);
      const bool narrower = (gradient.dtype == DType::bf16 || gradient.dtype == DType::f16) &&
                            buffer(task.writes[p]).dtype == DType::f32 && gradient.shape == buffer(task.writes[p]).shape &&
                            gradient.layout == buffer(task.writes[p]).layout;
      if (!like(task.reads[p], task.writes[p]) && !narrower) {
        return false;
      }
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (!like(task.writes[p], task.writes[n + p * slots + slot])) {
          return false;
        }
      }
    }
    return std::vector<BufferId>(task.reads.begin() + static_cast<std::ptrdiff_t>(n), task.reads.end()) == task.writes;
  }

  // ---- meet

  void meetings() {
    std::map<std::uint32_t, std::vector<std::size_t>> all;
    for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
      const Action& action = plan_.tasks()[i].action;
      if (const auto* transfer = std::get_if<Transfer>(&action)) {
        all[transfer->meeting.value].push_back(i);
      } else if (const auto* collective = std::get_if<Collective>(&action)) {
        all[collective->meeting.value].push_back(i);
      }
    }
    for (const auto& [meeting, members] : all) {
      if (!transfer_meets(members) && !collective_meets(members)) {
        blame(Rule::meet, members);
      }
    }
  }

  bool transfer_meets(const std::vector<std::size_t>& members) const {
    if (members.size() != 2) {
      return false;
    }
    for (const auto& [from, to] : {std::pair{members[0], members[1]}, std::pair{members[1], members[0]}}) {
      const Task& a = plan_.tasks()[from];
      const Task& b = plan_.tasks()[to];
      const auto* send = std::get_if<Transfer>(&a.action);
      const auto* receive = std::get_if<Transfer>(&b.action);
      if (send != nullptr && receive != nullptr && send->end == Transfer::End::send && receive->end == Transfer::End::receive &&
          send->peer == b.device && receive->peer == a.device && a.device != b.device && a.reads.size() == 1 && a.writes.empty() &&
          b.reads.empty() && b.writes.size() == 1 && like(a.reads[0], b.writes[0])) {
        return true;
      }
    }
    return false;
  }

  /// Element by element: the one whose rank is the largest with rank · elements / size at most the element's number holds it.
  bool are_pieces(const std::vector<BufferId>& held, const std::vector<BufferId>& whole, const Collective& member) const {
    std::vector<std::pair<std::int64_t, BufferId>> due;
    for (const BufferId id : whole) {
      const std::int64_t elements = buffer(id).shape.elements();
      if (member.row < 1 || elements % member.row != 0) {
        return false;
      }
      std::int64_t count = 0;
      for (std::int64_t e = 0; e < elements; ++e) {
        std::uint32_t owner = 0;
        for (std::uint32_t rank = 0; rank < member.size; ++rank) {
          owner = rank * (elements / member.row) / member.size <= e / member.row ? rank : owner;
        }
        count += owner == member.rank ? 1 : 0;
      }
      if (count > 0) {
        due.emplace_back(count, id);
      }
    }
    if (held.size() != due.size()) {
      return false;
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!is(held[i], {due[i].first}, buffer(due[i].second).dtype) || buffer(held[i]).layout != buffer(due[i].second).layout) {
        return false;
      }
    }
    return true;
  }

  bool collective_meets(const std::vector<std::size_t>& members) const {
    std::set<std::uint32_t> ranks;
    std::set<DeviceId> devices;
    const std::vector<BufferId>* pattern = nullptr;
    std::vector<BufferId> first;
    std::vector<BufferId> whole;
    for (const std::size_t i : members) {
      const Task& task = plan_.tasks()[i];
      const auto* member = std::get_if<Collective>(&task.action);
      const auto* leader = std::get_if<Collective>(&plan_.tasks()[members[0]].action);
      if (member == nullptr || leader == nullptr || member->kind != leader->kind || member->size != members.size() ||
          member->rank >= member->size) {
        return false;
      }
      ranks.insert(member->rank);
      devices.insert(task.device);
      const bool root = member->rank == 0;
      const std::vector<BufferId>* brings = &task.reads;
      switch (member->kind) {
        case Move::copy:
          return false;
        case Move::all_reduce:
          if (task.reads != task.writes) {
            return false;
          }
          break;
        case Move::broadcast:
          brings = root ? &task.reads : &task.writes;
          if (!(root ? task.writes : task.reads).empty()) {
            return false;
          }
          break;
        case Move::reduce:
          if (root ? task.writes != task.reads : !task.writes.empty()) {
            return false;
          }
          break;
        case Move::reduce_scatter: {
          const std::size_t adds = member->accumulate ? task.writes.size() : 0;
          if (task.reads.size() < adds || !std::equal(task.writes.begin(), task.writes.begin() + static_cast<std::ptrdiff_t>(adds),
                                                      task.reads.end() - static_cast<std::ptrdiff_t>(adds))) {
            return false;
          }
          whole.assign(task.reads.begin(), task.reads.end() - static_cast<std::ptrdiff_t>(adds));
          brings = &whole;
          if (!are_pieces(task.writes, whole, *member)) {
            return false;
          }
          break;
        }
        case Move::all_gather:
          brings = &task.writes;
          if (!are_pieces(task.reads, task.writes, *member)) {
            return false;
          }
          break;
      }
      if (member->row != leader->row || member->accumulate != leader->accumulate ||
          (member->accumulate && member->kind != Move::reduce_scatter)) {
        return false;
      }
      if (brings->empty() || (pattern != nullptr && pattern->size() != brings->size())) {
        return false;
      }
      if (pattern == nullptr) {
        first = *brings;
        pattern = &first;
      }
      for (std::size_t b = 0; b < brings->size(); ++b) {
        if (!like((*pattern)[b], (*brings)[b])) {
          return false;
        }
      }
    }
    return ranks.size() == members.size() && devices.size() == members.size();
  }

  // ---- waiting

  void circles() {
    const std::vector<std::size_t> node = waiting_nodes(plan_);
    Edges next(plan_.tasks().size());
    for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
      for (const std::size_t before : waits_for(plan_, i)) {
        next[node[before]].push_back(node[i]);
      }
    }
    const std::vector<std::vector<bool>> reaches = closure(next);
    for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
      if (reaches[node[i]][node[i]]) {
        blame(Rule::waiting, {i});
      }
    }
  }

  // ---- written, read, ordered

  void buffers() {
    const Before before(plan_);
    for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
      std::vector<std::size_t> readers;
      std::vector<std::size_t> writers;
      for (std::size_t i = 0; i < plan_.tasks().size(); ++i) {
        const auto touches = [&](const std::vector<BufferId>& list) {
          return std::find(list.begin(), list.end(), BufferId(b)) != list.end();
        };
        if (touches(plan_.tasks()[i].reads)) {
          readers.push_back(i);
        }
        if (touches(plan_.tasks()[i].writes)) {
          writers.push_back(i);
        }
      }
      bool sure = true;
      for (const std::size_t writer : writers) {
        for (const auto* others : {&readers, &writers}) {
          for (const std::size_t other : *others) {
            if (other != writer && !before(other, writer) && !before(writer, other)) {
              sure = false;
              blame(Rule::ordered, {other, writer});
              found_.unordered.insert({other, writer});
              found_.unordered.insert({writer, other});
            }
          }
        }
      }
      if (!sure) {
        found_.unsure.insert(readers.begin(), readers.end());
        found_.unsure.insert(writers.begin(), writers.end());
        continue;
      }
      for (const std::size_t reader : readers) {
        if (!plan_.buffers()[b].persistent &&
            std::none_of(writers.begin(), writers.end(), [&](std::size_t w) { return before(w, reader); })) {
          blame(Rule::written, {reader});
        }
      }
      for (const std::size_t writer : writers) {
        // Read before the write after it, or by it; or nothing is written after it and it lives on.
        const auto overwritten_before = [&](std::size_t task) {
          return std::any_of(writers.begin(), writers.end(),
                             [&](std::size_t w) { return w != task && before(writer, w) && before(w, task); });
        };
        const bool is_read = std::any_of(readers.begin(), readers.end(),
                                         [&](std::size_t reader) { return before(writer, reader) && !overwritten_before(reader); });
        const bool last = std::none_of(writers.begin(), writers.end(), [&](std::size_t w) { return before(writer, w); });
        const bool lives_on = plan_.buffers()[b].persistent || plan_.buffers()[b].role == Role::loss;
        const std::vector<BufferId>& writes = plan_.tasks()[writer].writes;
        const bool writes_twice = std::count(writes.begin(), writes.end(), BufferId(b)) > 1;  // one of them for nothing
        if ((!is_read && !(last && lives_on) && !made_again(b, writer)) || writes_twice) {
          blame(Rule::read, {writer});
        }
      }
    }
  }

  /// An activation of the backward that a forward of the same device makes too.
  bool made_again(std::size_t buffer, std::size_t writer) const {
    const auto value_of = [&](std::size_t b) { return std::get_if<ValuePart>(&plan_.buffers()[b].content); };
    const Task& task = plan_.tasks()[writer];
    if (value_of(buffer) == nullptr || plan_.buffers()[buffer].role != Role::activation || task.labels.phase != Phase::backward) {
      return false;
    }
    return std::any_of(plan_.tasks().begin(), plan_.tasks().end(), [&](const Task& other) {
      return other.device == task.device && other.labels.phase == Phase::forward &&
             std::any_of(other.writes.begin(), other.writes.end(), [&](BufferId written) {
               return plan_[written].role == Role::activation && value_of(written.index()) != nullptr &&
                      value_of(written.index())->value == value_of(buffer)->value;
             });
    });
  }

  const Plan& plan_;
  const Limits& limits_;
  Judgement found_;
};

}  // namespace

std::vector<std::size_t> waits_for(const Plan& plan, std::size_t id) {
  const Task& task = plan.tasks()[id];
  std::vector<std::size_t> list;
  for (std::size_t i = id; i-- > 0;) {
    if (plan.tasks()[i].device == task.device && plan.tasks()[i].lane == task.lane) {
      list.push_back(i);
      break;
    }
  }
  for (const TaskId other : task.after) {
    list.push_back(other.index());
  }
  return list;
}

std::vector<std::size_t> waiting_nodes(const Plan& plan) {
  std::map<std::uint32_t, std::size_t> first_member;
  std::vector<std::size_t> node;
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    const MeetingId meeting = meeting_of(plan.tasks()[i]);
    node.push_back(meeting.valid() ? first_member.try_emplace(meeting.value, i).first->second : i);
  }
  return node;
}

Before::Before(const Plan& plan) {
  Edges next(plan.tasks().size());
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    for (const std::size_t before : waits_for(plan, i)) {
      if (plan.tasks()[before].device == plan.tasks()[i].device) {
        next[before].push_back(i);
      }
    }
  }
  reaches_ = closure(next);
}

Judgement judge(const Plan& plan, const Limits& limits) { return Judge(plan, limits).judge(); }

}  // namespace baton::plan::test
