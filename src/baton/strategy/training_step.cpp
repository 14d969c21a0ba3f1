#include "baton/strategy/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "baton/base/divide.h"
#include "baton/base/error.h"
#include "baton/op/gradient.h"
#include "baton/op/traits.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/step_tensors.h"

namespace baton::strategy {
namespace {

using plan::Draft;
using plan::Phase;
using plan::Role;
using schedule::Action;

/// Writes the tasks, action by action.
class Writer : private StepTensors {
 public:
  Writer(const model::Model& model, const Step& step, const Placement& placement) : StepTensors(model, step, placement) {
    find_trained();
    for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
      terms_.push_back(terms_of(b));
      light_.push_back(light_nodes(b));
    }
    reserve();
  }

  Draft write() {
    for (Shard& shard : shards_) {
      open(shard);
    }
    const schedule::Grid grid = placement_.grid ? *placement_.grid
                                                : schedule::schedule_by_name("naive").grid(
                                                      {.devices = static_cast<std::int64_t>(blocks_of_stage_.size()),
                                                       .micro_batches = placement_.micro_batches});
    for (const Action& action : schedule::sequence(grid)) {
      act(action);
    }
    if (placement_.recompute == Recompute::alternate || placement_.recompute == Recompute::all) {
      drop_unread();
    }
    return std::move(draft_);
  }

 private:
  /// Leaves out recomputed values that nothing reads: the last values of a block whose reader's backward needs its output's
  /// gradient alone.
  void drop_unread() {
    std::vector<std::size_t> readers(draft_.buffers.size(), 0);
    for (const plan::Task& task : draft_.tasks) {
      for (const BufferId id : task.reads) {
        ++readers[id.index()];
      }
    }
    const auto unread = [&](const plan::Task& task) {
      return task.labels.phase == Phase::backward && std::all_of(task.writes.begin(), task.writes.end(), [&](BufferId id) {
               const auto own = std::count(task.reads.begin(), task.reads.end(), id);
               return draft_[id].role == Role::activation && readers[id.index()] == static_cast<std::size_t>(own);
             });
    };
    std::vector<bool> dropped(draft_.tasks.size(), false);
    for (bool again = true; again;) {
      again = false;
      std::map<MeetingId, bool> meetings;  // whether all members write buffers that nothing reads
      for (const plan::Task& task : draft_.tasks) {
        if (const MeetingId meeting = plan::meeting_of(task); meeting.valid()) {
          meetings.try_emplace(meeting, true).first->second &= unread(task);
        }
      }
      for (std::size_t i = draft_.tasks.size(); i-- > 0;) {
        const plan::Task& task = draft_.tasks[i];
        const MeetingId meeting = plan::meeting_of(task);
        if (dropped[i] || !(meeting.valid() ? meetings.at(meeting) : unread(task))) {
          continue;
        }
        dropped[i] = true;
        again = true;
        for (const BufferId id : task.reads) {
          --readers[id.index()];
        }
      }
    }
    if (std::find(dropped.begin(), dropped.end(), true) == dropped.end()) {
      return;
    }
    draft_.rearrange(dropped, std::vector<std::vector<plan::Task>>(draft_.tasks.size() + 1));
    std::map<MeetingId, MeetingId> numbers;
    for (plan::Task& task : draft_.tasks) {
      if (auto* collective = std::get_if<plan::Collective>(&task.action)) {
        collective->meeting = numbers.try_emplace(collective->meeting, MeetingId(numbers.size())).first->second;
      }
    }
    draft_.meetings = static_cast<std::uint32_t>(numbers.size());
  }

  /// Makes room for about as many tasks and buffers as there will be.
  void reserve() {
    std::size_t tasks = model_.blocks().size();
    std::size_t buffers = 0;
    for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
      buffers += 2 * model_.blocks()[b].parameters.size();
      for (std::size_t n = 0; n < model_.blocks()[b].nodes.size(); ++n) {
        tasks += layouts_.node(b, n).forward.size() + layouts_.node(b, n).backward.size();
        buffers += 2 * model_.blocks()[b].nodes[n].writes.size();
      }
    }
    draft_.tasks.reserve(shards_.size() * tasks * static_cast<std::size_t>(placement_.micro_batches));
    draft_.buffers.reserve(shards_.size() * buffers * static_cast<std::size_t>(placement_.micro_batches));
  }

  /// Finds the values that depend on a parameter.
  void find_trained() {
    for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
      const model::Block& block = model_.blocks()[b];
      std::vector<bool> trained(block.values.size(), false);
      trained[0] = b > 0 && trained_[b - 1][model_.blocks()[b - 1].out];
      for (const model::Node& node : block.nodes) {
        const bool touched = !node.parameters.empty() ||
                             std::any_of(node.reads.begin(), node.reads.end(), [&](std::size_t v) { return trained[v]; });
        for (const std::size_t v : node.writes) {
          trained[v] = touched;
        }
      }
      trained_.push_back(std::move(trained));
    }
  }

  std::size_t first_block(std::size_t stage) const {
    return static_cast<std::size_t>(
        std::accumulate(blocks_of_stage_.begin(), blocks_of_stage_.begin() + static_cast<std::ptrdiff_t>(stage), std::int64_t{0}));
  }
  void act(const Action& action) {
    const auto stage = static_cast<std::size_t>(action.stage);
    const auto m = static_cast<std::size_t>(action.micro_batch);
    const std::size_t begin = first_block(stage);
    const std::size_t end = begin + static_cast<std::size_t>(blocks_of_stage_[stage]);
    switch (action.kind) {
      case schedule::Computation::forward:
        for (std::size_t b = begin; b < end; ++b) {
          for (std::size_t r = 0; r < replica_count(); ++r) {
            forward(r, m, b, Phase::forward);
          }
        }
        if (end == model_.blocks().size()) {
          for (std::size_t r = 0; r < replica_count(); ++r) {
            loss(r, m);
          }
        }
        break;
      case schedule::Computation::backward:
      case schedule::Computation::backward_input:
        if (step_.forward_only) {
          break;
        }
        // Block by block over all replicas, so that a gradient's last copy comes soon after its first.
        for (std::size_t b = end; b-- > begin;) {
          remake(m, b, begin, end);
          for (std::size_t r = 0; r < replica_count(); ++r) {
            backward(r, m, b, action.kind == schedule::Computation::backward_input);
          }
        }
        break;
      case schedule::Computation::backward_weight:
        for (std::size_t b = end; b-- > begin;) {
          for (std::size_t r = 0; r < replica_count(); ++r) {
            write_deferred(r, m, b);
          }
        }
        break;
    }
  }

  /// The postponed gradients of a block's parameters: each on all parts, as the others.
  void write_deferred(std::size_t r, std::size_t m, std::size_t b) {
    for (std::size_t i = 0; i < group(r)[0].micro[m].deferred.size(); ++i) {
      for (Shard& shard : group(r)) {
        if (Deferred& deferred = shard.micro[m].deferred[i]; deferred.block == b) {
          parameter_gradient(m, std::move(deferred));
        }
      }
    }
    for (Shard& shard : group(r)) {
      std::erase_if(shard.micro[m].deferred, [&](const Deferred& deferred) { return deferred.block == b; });
    }
  }

  /// The buffers that the shards hold of a tensor, and those that they hold after it was gathered, which the calls of one block
  /// share.
  using Gathered = std::vector<std::pair<std::vector<BufferId>, std::vector<BufferId>>>;

  /// By value of a block: the node that makes it, if it is freed after the forward and recomputed where the backward reads it.
  std::vector<std::optional<std::size_t>> light_nodes(std::size_t b) const {
    const model::Block& block = model_.blocks()[b];
    std::vector<std::optional<std::size_t>> nodes(block.values.size());
    for (std::size_t n = 0; n < block.nodes.size() && placement_.recompute == Recompute::light; ++n) {
      if (is_recomputed_light(block, block.nodes[n])) {
        nodes[block.nodes[n].writes[0]] = n;
      }
    }
    return nodes;
  }

  /// Before a call of the backward: recomputes those values that it reads and that were freed.
  void remake_light(std::size_t r, std::size_t m, std::size_t b, const model::Node& node, const Call& call, Gathered& gathered,
                    std::vector<std::optional<std::size_t>>& freed) {
    for (const op::Ref& ref : call.reads) {
      if (ref.kind == op::Ref::Tensor::input || ref.kind == op::Ref::Tensor::output) {
        remake_light(r, m, b, value_number(node, ref), gathered, freed);
      }
    }
  }
  void remake_light(std::size_t r, std::size_t m, std::size_t b, std::size_t v, Gathered& gathered,
                    std::vector<std::optional<std::size_t>>& freed) {
    if (const auto node = std::exchange(freed[v], std::nullopt)) {
      for (const std::size_t input : model_.blocks()[b].nodes[*node].reads) {
        remake_light(r, m, b, input, gathered, freed);
      }
      forward_node(r, m, b, *node, Phase::backward, gathered);
    }
  }

  /// The number of the value in its block that a reference means.
  std::size_t value_number(const model::Node& node, const op::Ref& ref) const {
    const bool input = ref.kind == op::Ref::Tensor::input || ref.kind == op::Ref::Tensor::input_gradient;
    return (input ? node.reads : node.writes)[ref.index];
  }

  /// The buffer of a shard that a reference in a call means.
  BufferId held_by(const Shard& shard, std::size_t m, std::size_t b, const model::Node& node, const op::Ref& ref) const {
    using Tensor = op::Ref::Tensor;
    return ref.kind == Tensor::parameter         ? shard.parameters[b][node.parameters[ref.index]]
           : ref.kind == Tensor::output_gradient ? shard.micro[m].gradients[b][value_number(node, ref)]
                                                 : shard.micro[m].values[b][value_number(node, ref)];
  }

  /// The same of all shards of a replica, converted as the call needs it; `gathered` keeps the converted ones.
  const std::vector<BufferId>& converted_operand(std::size_t r, std::size_t m, std::size_t b, const model::Node& node,
                                                 const op::Ref& ref, Conversion conversion, Phase phase, Gathered& gathered) {
    std::vector<BufferId> held;
    for (const Shard& shard : group(r)) {
      held.push_back(held_by(shard, m, b, node, ref));
    }
    for (const auto& [known, buffers] : gathered) {
      if (known == held) {
        return buffers;
      }
    }
    const Role role = ref.kind == op::Ref::Tensor::output_gradient ? Role::gradient : Role::activation;
    gathered.emplace_back(held, converted(conversion, r, m, b, value_number(node, ref), phase, role, held));
    return gathered.back().second;
  }

  /// By shard: the buffers that a call reads.
  std::vector<std::vector<BufferId>> reads_of(std::size_t r, std::size_t m, std::size_t b, const model::Node& node,
                                              const Call& call, Phase phase, Gathered& gathered) {
    std::vector<std::vector<BufferId>> by_shard(group(r).size());
    for (std::vector<BufferId>& reads : by_shard) {
      reads.reserve(call.reads.size());
    }
    for (std::size_t i = 0; i < call.reads.size(); ++i) {
      const bool as_held = call.before[i] == Conversion::none;
      const std::vector<BufferId>* converted = as_held ? nullptr
                                                       : &converted_operand(r, m, b, node, call.reads[i], call.before[i], phase,
                                                                            gathered);
      for (const Shard& shard : group(r)) {
        by_shard[shard.index].push_back(as_held ? held_by(shard, m, b, node, call.reads[i]) : (*converted)[shard.index]);
      }
    }
    return by_shard;
  }

  /// Forgets the buffers that the shards added in the call before.
  void begin_call(const Call& call) {
    made_.resize(std::max(made_.size(), call.writes.size()));
    for (std::vector<BufferId>& by_shard : made_) {
      by_shard.clear();
    }
  }

  /// The op of a call as one shard runs it.
  op::Op part_op(const Call& call, const Shard& shard) const {
    return call.numbered ? op::for_part(call.op, first_index(*call.shared, call.extent, shard), call.extent) : call.op;
  }

  void forward(std::size_t r, std::size_t m, std::size_t b, Phase phase) {
    const model::Block& block = model_.blocks()[b];
    if (b > 0) {
      for (Shard& shard : group(r)) {
        shard.micro[m].values[b][0] = shard.micro[m].values[b - 1][model_.blocks()[b - 1].out];
      }
    }
    Gathered gathered;
    for (std::size_t n = 0; n < block.nodes.size(); ++n) {
      if (op::tracks(block.nodes[n].op) && phase == Phase::forward) {  // a recomputed value was counted before
        track(r, m, b, block.nodes[n]);
      }
      forward_node(r, m, b, n, phase, gathered);
    }
  }

  void forward_node(std::size_t r, std::size_t m, std::size_t b, std::size_t n, Phase phase, Gathered& gathered) {
    const model::Block& block = model_.blocks()[b];
    const model::Node& node = block.nodes[n];
    for (const Call& call : layouts_.node(b, n).forward) {
      std::vector<std::vector<BufferId>> reads = reads_of(r, m, b, node, call, phase, gathered);
      begin_call(call);
      for (Shard& shard : group(r)) {
        std::vector<BufferId> writes;
        writes.reserve(call.writes.size());
        for (std::size_t i = 0; i < call.writes.size(); ++i) {
          const std::size_t v = value_number(node, call.writes[i]);
          const bool again = &call != &layouts_.node(b, n).forward.front();
          plan::ValuePart content = part(b, v, call, i, shard, m, Role::activation);
          content.unfinished = &call != &layouts_.node(b, n).forward.back();
          writes.push_back(add(device_of(shard, b), Role::activation, std::move(content),
                               again ? fmt::format("{}.{}", block.name, op::name(call.op)) : value_of(b, v).name,
                               value_of(b, v).statistics));
          made_[i].push_back(writes.back());
          shard.micro[m].values[b][v] = writes.back();
        }
        task(plan::Compute{part_op(call, shard)}, device_of(shard, b), phase, b, m, std::move(reads[shard.index]),
             std::move(writes));
      }
      for (std::size_t i = 0; i < call.writes.size(); ++i) {
        if (call.after[i] == Conversion::none) {
          continue;
        }
        const std::size_t v = value_number(node, call.writes[i]);
        const std::vector<BufferId> kept = converted(call.after[i], r, m, b, v, phase, Role::activation, made_[i]);
        for (Shard& shard : group(r)) {
          shard.micro[m].values[b][v] = kept[shard.index];
        }
      }
    }
  }

  /// Keeps statistics of a value. If one device owns all that persists, it has those of its own replica, as PyTorch's DataParallel.
  void track(std::size_t r, std::size_t m, std::size_t b, const model::Node& node) {
    if (placement_.owner && r > 0) {
      return;
    }
    for (const Shard& shard : group(r)) {
      std::vector<BufferId> kept;
      for (const std::size_t p : node.parameters) {
        kept.push_back(shard.parameters[b][p]);
      }
      std::vector<BufferId> reads{shard.micro[m].values[b][node.reads[0]]};
      reads.insert(reads.end(), kept.begin(), kept.end());
      task(plan::Compute{node.op}, device_of(shard, b), Phase::forward, b, m, std::move(reads), std::move(kept));
    }
  }

  void loss(std::size_t r, std::size_t m) {
    const std::size_t last = model_.blocks().size() - 1;
    const std::size_t out = model_.blocks()[last].out;
    const op::Op op = loss_op();
    const Names& names = layouts_.value(last, out);
    if (layouts_.kept_value(last, out) != names.back()) {
      for (Shard& shard : group(r)) {
        loss_of(shard, m, op, {});
      }
      return;
    }
    const std::optional<op::MergedLoss> merged = op::merged(op, placement_.shards);
    if (!merged) {
      throw usage_error(
          "{} needs all of dimension {}, along which the output of {} is divided over {} devices: take another --loss",
          op::name(op), names.back(), model_.name(), placement_.shards);
    }
    std::vector<BufferId> own;
    std::vector<BufferId> all;
    for (Shard& shard : group(r)) {
      Shape::Extents extents = rows_of(kept_shape(last, out, shard, shard.micro[m].row_count())).extents();
      extents.push_back(merged->terms_per_row);
      own.push_back(add(device_of(shard, last), Role::communication, Shape(extents), "terms of the loss"));
      draft_.buffers.back().dtype = DType::f64;
      draft_.buffers.back().content = loss_terms(shard, m, 1);
      task(plan::Compute{output_part(merged->terms, shard)}, device_of(shard, last), Phase::forward, last, m,
           {shard.micro[m].values[last][out], shard.micro[m].target}, {own.back()});
    }
    for (const Shard& shard : group(r)) {
      Shape::Extents extents = draft_[own[shard.index]].shape.extents();
      extents[0] *= placement_.shards;
      all.push_back(add(device_of(shard, last), Role::communication, Shape(extents), "terms of the loss, of all parts"));
      draft_.buffers.back().dtype = DType::f64;
      draft_.buffers.back().content = loss_terms(shard, m, placement_.shards);
    }
    meet(r, plan::Move::all_gather, Phase::forward, last, m, own, all);
    for (Shard& shard : group(r)) {
      loss_of(shard, m, output_part(merged->loss, shard), {all[shard.index]});
    }
  }

  /// The content of a buffer with terms of the loss of this many parts.
  plan::LossTerms loss_terms(const Shard& shard, std::size_t m, std::int64_t parts) const {
    plan::LossTerms terms{.loss = loss_id_,
                          .at = kept_part(model_.blocks().size() - 1, model_.blocks().back().out, shard, m, Role::activation).at,
                          .parts = parts};
    terms.at.pop_back();  // there are some for each row
    return terms;
  }

  /// An op for the part of the model's output that a shard holds.
  op::Op output_part(const op::Op& op, const Shard& shard) const {
    const model::Dim& last = model_.output_value().dims.back();
    return op::for_part(op, first_index(last.name, last.extent, shard), last.extent);
  }

  void loss_of(Shard& shard, std::size_t m, const op::Op& op, const std::vector<BufferId>& terms) {
    MicroBatch& micro = shard.micro[m];
    const std::size_t last = model_.blocks().size() - 1;
    const std::size_t out = model_.blocks()[last].out;
    const DeviceId device = placement_.owner.value_or(device_of(shard, last));
    const Shape outputs = kept_shape(last, out, shard, micro.row_count());
    const BufferId loss = add(device, Role::loss, rows_of(outputs), "loss");
    draft_.buffers[loss.index()].dtype = DType::f64;
    draft_.buffers[loss.index()].content = content_of(last, out, shard, micro.rows, loss_id_);
    micro.gradients[last][out] = add(device, Role::gradient, kept_part(last, out, shard, m, Role::gradient), "d output");
    draft_.buffers[micro.values[last][out].index()].persistent |= step_.forward_only;
    std::vector<BufferId> reads{micro.values[last][out], micro.target};
    reads.insert(reads.end(), terms.begin(), terms.end());
    task(plan::Compute{op}, device, Phase::forward, last, m, std::move(reads), {loss, micro.gradients[last][out]});
  }

  /// True if a block of a stage keeps its input from the forward; the inputs of the others are recomputed.
  bool keeps_input(std::size_t b, std::size_t begin, std::size_t end) const {
    const auto count = static_cast<double>(end - begin);
    const std::size_t stride = placement_.recompute == Recompute::alternate ? 2
                               : placement_.recompute == Recompute::all     ? static_cast<std::size_t>(std::ceil(std::sqrt(count)))
                                                                            : 1;
    return (b - begin) % stride == 0;
  }

  /// Before the backward of the last block of a run whose inputs were freed: recomputes them from the kept one.
  void remake(std::size_t m, std::size_t b, std::size_t begin, std::size_t end) {
    if (placement_.recompute == Recompute::full) {
      for (std::size_t r = 0; r < replica_count() && b > 0 && b + 1 < model_.blocks().size(); ++r) {
        forward(r, m, b, Phase::backward);
      }
      return;
    }
    if (keeps_input(b, begin, end) || (b + 1 < end && !keeps_input(b + 1, begin, end))) {
      return;
    }
    std::size_t kept = b;
    while (!keeps_input(kept, begin, end)) {
      --kept;
    }
    for (std::size_t again = kept; again < b; ++again) {
      for (std::size_t r = 0; r < replica_count(); ++r) {
        forward(r, m, again, Phase::backward);
      }
    }
    for (Shard& shard : shards_) {
      shard.micro[m].values[b][0] = shard.micro[m].values[b - 1][model_.blocks()[b - 1].out];
    }
  }

  void parameter_gradient(std::size_t m, Deferred deferred) {
    written_.resize(draft_.buffers.size(), false);
    const bool adds = written_[deferred.writes[0].index()];
    written_[deferred.writes[0].index()] = true;
    if (adds) {
      deferred.reads.insert(deferred.reads.end(), deferred.writes.begin(), deferred.writes.end());
    }
    const DeviceId device = draft_[deferred.writes[0]].device;
    task(plan::Compute{adds ? op::accumulating(deferred.op) : deferred.op}, device, Phase::backward, deferred.block, m,
         std::move(deferred.reads), std::move(deferred.writes));
  }

  /// True if some task reads the gradient of a value: not if it depends on no parameter, as the data.
  bool wants_gradient(std::size_t b, std::size_t v) const { return trained_[b][v]; }

  /// One more reader of a value has given its gradient. The first one's is taken as it is, others are added in the order in which
  /// they come.
  void add_gradient(std::size_t r, std::size_t m, std::size_t b, std::size_t v, const std::vector<BufferId>& given) {
    for (Shard& shard : group(r)) {
      BufferId& known = shard.micro[m].gradients[b][v];
      const BufferId one = given[shard.index];
      if (!known.valid()) {
        known = one;
        continue;
      }
      plan::ValuePart content = kept_part(b, v, shard, m, Role::gradient);
      const BufferId sum = add(device_of(shard, b), Role::gradient, std::move(content), draft_[one].label);
      task(plan::Compute{op::Add{}}, device_of(shard, b), Phase::backward, b, m, {known, one}, {sum});
      known = sum;
    }
  }

  /// Terms of a value's gradient that its readers give: each device adds up its own, and their sum is converted.
  struct Terms {
    std::size_t to_come = 0;
    std::vector<BufferId> sum;  // by shard
  };

  void backward(std::size_t r, std::size_t m, std::size_t b, bool postponed) {
    const model::Block& block = model_.blocks()[b];
    Gathered gathered;
    std::map<std::size_t, Terms> terms = terms_[b];
    std::vector<std::optional<std::size_t>> freed = light_[b];
    for (std::size_t n = block.nodes.size(); n-- > 0;) {
      const model::Node& node = block.nodes[n];
      for (const Call& call : layouts_.node(b, n).backward) {
        const bool wanted = call.of_parameters || std::any_of(call.writes.begin(), call.writes.end(), [&](const op::Ref& ref) {
                              return wants_gradient(b, value_number(node, ref));
                            });
        if (wanted) {
          remake_light(r, m, b, node, call, gathered, freed);
          backward_call(r, m, b, node, call, postponed, gathered, terms);
        }
      }
      for (const std::size_t input : layouts_.node(b, n).passed_on) {
        if (wants_gradient(b, node.reads[input])) {
          std::vector<BufferId> given;
          for (Shard& shard : group(r)) {
            given.push_back(shard.micro[m].gradients[b][node.writes[0]]);
            if (is_mixed(step_.precision) && value_of(b, node.writes[0]).wide && !value_of(b, node.reads[input]).wide) {
              given.back() = cast(shard, m, b, node.reads[input], given.back());
            }
          }
          add_gradient(r, m, b, node.reads[input], given);
        }
      }
    }
    if (b > 0) {
      for (Shard& shard : group(r)) {
        shard.micro[m].gradients[b - 1][model_.blocks()[b - 1].out] = shard.micro[m].gradients[b][0];
      }
    }
  }

  /// The gradient of the stream as that of the term that was added to it, which has 16 bits.
  BufferId cast(const Shard& shard, std::size_t m, std::size_t b, std::size_t v, BufferId gradient) {
    const BufferId narrow = add(device_of(shard, b), Role::gradient, kept_part(b, v, shard, m, Role::gradient),
                                fmt::format("d {}", value_of(b, v).name));
    task(plan::Compute{op::Cast{}}, device_of(shard, b), Phase::backward, b, m, {gradient}, {narrow});
    return narrow;
  }

  void backward_call(std::size_t r, std::size_t m, std::size_t b, const model::Node& node, const Call& call, bool postponed,
                     Gathered& gathered, std::map<std::size_t, Terms>& terms) {
    std::vector<std::vector<BufferId>> reads = reads_of(r, m, b, node, call, Phase::backward, gathered);
    begin_call(call);
    for (Shard& shard : group(r)) {
      Deferred one{part_op(call, shard), std::move(reads[shard.index]), {}, b};
      one.writes.reserve(call.writes.size());
      for (std::size_t i = 0; i < call.writes.size(); ++i) {
        one.writes.push_back(gradient_buffer(shard, m, b, node, call, call.writes[i]));
        made_[i].push_back(one.writes.back());
      }
      if (!call.of_parameters) {
        task(plan::Compute{one.op}, device_of(shard, b), Phase::backward, b, m, std::move(one.reads), std::move(one.writes));
      } else if (postponed) {
        shard.micro[m].deferred.push_back(std::move(one));
      } else {
        parameter_gradient(m, std::move(one));
      }
    }
    for (std::size_t i = 0; i < call.writes.size() && !call.of_parameters; ++i) {
      const std::size_t v = value_number(node, call.writes[i]);
      if (!wants_gradient(b, v)) {
        continue;
      }
      if (call.after[i] == Conversion::none) {
        add_gradient(r, m, b, v, made_[i]);
        continue;
      }
      Terms& own = terms.at(v);
      add_terms(r, m, b, own, made_[i]);
      if (--own.to_come == 0) {
        add_gradient(r, m, b, v, converted(call.after[i], r, m, b, v, Phase::backward, Role::gradient, own.sum));
      }
    }
  }

  /// By value of a block: how many of its readers give such terms.
  std::map<std::size_t, Terms> terms_of(std::size_t b) const {
    std::map<std::size_t, Terms> terms;
    for (std::size_t n = 0; n < model_.blocks()[b].nodes.size(); ++n) {
      for (const Call& call : layouts_.node(b, n).backward) {
        for (std::size_t i = 0; i < call.writes.size(); ++i) {
          if (call.after[i] != Conversion::none) {
            ++terms[value_number(model_.blocks()[b].nodes[n], call.writes[i])].to_come;
          }
        }
      }
    }
    return terms;
  }

  void add_terms(std::size_t r, std::size_t m, std::size_t b, Terms& terms, const std::vector<BufferId>& given) {
    if (terms.sum.empty()) {
      terms.sum = given;
      return;
    }
    for (const Shard& shard : group(r)) {
      BufferId& known = terms.sum[shard.index];
      const BufferId sum = draft_.add(plan::Buffer(draft_[known]));
      task(plan::Compute{op::Add{}}, device_of(shard, b), Phase::backward, b, m, {known, given[shard.index]}, {sum});
      known = sum;
    }
  }

  /// The buffer into which a call of the backward writes: the gradient of a parameter, or one more of a value.
  BufferId gradient_buffer(Shard& shard, std::size_t m, std::size_t b, const model::Node& node, const Call& call,
                           const op::Ref& ref) {
    if (ref.kind == op::Ref::Tensor::parameter_gradient) {
      return parameter_gradient_buffer(shard, b, node.parameters[ref.index]);
    }
    const std::size_t v = value_number(node, ref);
    const BufferId value = shard.micro[m].values[b][v];
    const auto operand = static_cast<std::size_t>(&ref - call.writes.data());
    return add(device_of(shard, b), Role::gradient, part(b, v, call, operand, shard, m, Role::gradient),
               "d " + draft_[value].label);
  }

  std::vector<std::vector<bool>> trained_;                      // by block and value
  std::vector<std::map<std::size_t, Terms>> terms_;             // by block: before anything is added to them
  std::vector<std::vector<std::optional<std::size_t>>> light_;  // by block and value
  std::vector<std::vector<BufferId>> made_;                     // by operand and shard: what a call writes
  std::vector<bool> written_;  // by buffer: gradients of parameters, to which further ones are added
};

/// A micro-batch may hold no part of a group of samples that an op takes together.
void refuse_divided_groups(const model::Model& model, const Placement& placement) {
  const std::int64_t together = samples_together(model);
  for (const Placement::Replica& replica : placement.replicas) {
    for (const std::int64_t rows : even_split(replica.rows.end - replica.rows.begin, placement.micro_batches)) {
      if (rows % together != 0) {
        throw usage_error(
            "{} takes {} samples together in its norms, but a micro-batch of a replica would have {}: choose a batch of which each "
            "of "
            "the {} micro-batches is a multiple of {}",
            model.name(), together, rows, static_cast<std::int64_t>(placement.replicas.size()) * placement.micro_batches, together);
      }
    }
  }
}

}  // namespace

bool is_recomputed_light(const model::Block& block, const model::Node& node) {
  return op::is_light(node.op) && node.writes[0] != block.out;
}

bool has_light_results(const model::Model& model) {
  return std::any_of(model.blocks().begin(), model.blocks().end(), [](const model::Block& block) {
    return std::any_of(block.nodes.begin(), block.nodes.end(),
                       [&](const model::Node& node) { return is_recomputed_light(block, node); });
  });
}

plan::Draft training_step(const model::Model& model, const Step& step, const Placement& placement) {
  std::int64_t covered = 0;
  for (const Placement::Replica& replica : placement.replicas) {
    check(replica.rows.begin == covered && replica.rows.end > replica.rows.begin, "a replica has rows {} to {} where {} come next",
          replica.rows.begin, replica.rows.end, covered);
    check(replica.device_of_block.size() == model.blocks().size(), "{} blocks are placed, but there are {}",
          replica.device_of_block.size(), model.blocks().size());
    check(replica.rows.end - replica.rows.begin >= placement.micro_batches, "{} rows in {} micro-batches",
          replica.rows.end - replica.rows.begin, placement.micro_batches);
    covered = replica.rows.end;
  }
  check(covered == step.global_batch, "replicas cover {} of {} rows", covered, step.global_batch);
  check(placement.shards == 1 || !placement.owner, "{} shards of what one device owns", placement.shards);
  if (placement.grid) {
    check(schedule::micro_batches(*placement.grid) == placement.micro_batches &&
              schedule::stages(*placement.grid) ==
                  static_cast<std::int64_t>(std::max<std::size_t>(1, placement.blocks_of_stage.size())),
          "a grid of {} stages and {} micro-batches", schedule::stages(*placement.grid), schedule::micro_batches(*placement.grid));
  }
  refuse_divided_groups(model, placement);
  plan::Draft draft = Writer(model, step, placement).write();
  return is_mixed(step.precision) ? narrow_values(std::move(draft), step) : std::move(draft);
}

std::int64_t samples_together(const model::Model& model) {
  std::int64_t together = 1;
  for (const model::Block& block : model.blocks()) {
    for (const model::Node& node : block.nodes) {
      together = std::lcm(together, std::max<std::int64_t>(1, op::samples_together(node.op)));
    }
  }
  return together;
}

}  // namespace baton::strategy
