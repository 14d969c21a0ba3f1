#include "baton/strategy/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "baton/base/error.h"
#include "baton/op/gradient.h"
#include "baton/op/traits.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/table.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Draft;
using plan::Phase;
using plan::Role;
using schedule::Action;

/// A run of indices of one axis.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Range part_of(std::int64_t total, std::int64_t parts, std::size_t index) {
  const std::vector<std::int64_t> sizes = even_split(total, parts);
  const auto begin = std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(index), std::int64_t{0});
  return {begin, begin + sizes[index]};
}

class Writer {
 public:
  Writer(const model::Model& model, const Step& step, const Placement& placement)
      : model_(model),
        step_(step),
        placement_(placement),
        blocks_of_stage_(placement.blocks_of_stage.empty()
                             ? std::vector<std::int64_t>{static_cast<std::int64_t>(model.blocks().size())}
                             : placement.blocks_of_stage),
        layouts_(model, placement.table, placement.shards) {
    draft_.devices = placement.devices;
    for (std::size_t stage = 0; stage < blocks_of_stage_.size(); ++stage) {
      stage_of_block_.insert(stage_of_block_.end(), static_cast<std::size_t>(blocks_of_stage_[stage]),
                             static_cast<std::int32_t>(stage));
    }
    for (std::size_t r = 0; r < placement.replicas.size(); ++r) {
      for (std::size_t shard = 0; shard < static_cast<std::size_t>(placement.shards); ++shard) {
        shards_.emplace_back(r, shard, model, placement.replicas[r].rows, placement.micro_batches);
      }
    }
    find_homes();
    find_trained();
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
    return std::move(draft_);
  }

 private:
  /// A gradient of parameters that a schedule put off.
  struct Deferred {
    op::Op op;
    std::vector<BufferId> reads;
    std::vector<BufferId> writes;
    std::size_t block;
  };

  /// The buffers of one micro-batch as they come to be.
  struct MicroBatch {
    plan::BatchRows rows;
    std::vector<std::vector<BufferId>> values;     // by block and value, as they are kept
    std::vector<std::vector<BufferId>> gradients;  // of them, as far as their readers have given any
    BufferId target;
    std::vector<Deferred> deferred;

    std::int64_t row_count() const { return rows.end - rows.begin; }
  };

  /// What one device, or one device per stage, holds of a replica: all of it, or its part of each divided tensor.
  struct Shard {
    Shard(std::size_t replica_, std::size_t index_, const model::Model& model, plan::BatchRows rows, std::int64_t micro_batches)
        : replica(replica_), index(index_), parameters(model.blocks().size()), gradients(model.blocks().size()) {
      std::vector<std::vector<BufferId>> none;
      for (std::size_t b = 0; b < model.blocks().size(); ++b) {
        gradients[b].resize(model.blocks()[b].parameters.size());
        none.emplace_back(model.blocks()[b].values.size());
      }
      std::int64_t begin = rows.begin;
      for (const std::int64_t count : even_split(rows.end - rows.begin, micro_batches)) {
        micro.push_back({{begin, begin + count}, none, none, {}, {}});
        begin += count;
      }
    }
    std::size_t replica;
    std::size_t index;
    std::vector<std::vector<BufferId>> parameters;  // by block
    std::vector<std::vector<BufferId>> gradients;   // of them, at their homes
    std::vector<MicroBatch> micro;
  };

  /// A parameter of a block, by numbers.
  struct Home {
    std::size_t block;
    std::size_t parameter;
  };

  std::size_t first_block(std::size_t stage) const {
    return static_cast<std::size_t>(
        std::accumulate(blocks_of_stage_.begin(), blocks_of_stage_.begin() + static_cast<std::ptrdiff_t>(stage), std::int64_t{0}));
  }
  /// The shards of one replica.
  std::span<Shard> group(std::size_t replica) {
    const auto count = static_cast<std::size_t>(placement_.shards);
    return std::span(shards_).subspan(replica * count, count);
  }
  std::size_t replica_count() const { return placement_.replicas.size(); }

  DeviceId device_of(const Shard& shard, std::size_t b) const {
    return DeviceId(placement_.replicas[shard.replica].device_of_block[b].index() + shard.index);
  }

  /// Blocks of one device that share a parameter share its buffers: those of the first of them.
  void find_homes() {
    std::map<std::pair<DeviceId, std::size_t>, Home> homes;  // by device and ordinal
    for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
      homes_.emplace_back();
      for (std::size_t p = 0; p < model_.blocks()[b].parameters.size(); ++p) {
        const DeviceId device = placement_.owner.value_or(placement_.replicas[0].device_of_block[b]);
        homes_.back().push_back(homes.try_emplace({device, model_.ordinal(b, p)}, Home{b, p}).first->second);
      }
    }
  }
  /// Which values depend on a parameter.
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
  BufferId& gradient_of(Shard& shard, std::size_t b, std::size_t p) const {
    return shard.gradients[homes_[b][p].block][homes_[b][p].parameter];
  }

  void act(const Action& action) {
    const auto stage = static_cast<std::size_t>(action.stage);
    const auto m = static_cast<std::size_t>(action.micro_batch);
    const std::size_t begin = first_block(stage);
    const std::size_t end = begin + static_cast<std::size_t>(blocks_of_stage_[stage]);
    switch (action.kind) {
      case schedule::Kind::forward:
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
      case schedule::Kind::backward:
      case schedule::Kind::backward_input:
        // Block by block over all replicas, so that a gradient's last copy comes soon after its first.
        for (std::size_t b = end; b-- > begin;) {
          remake(m, b, begin, end);
          for (std::size_t r = 0; r < replica_count(); ++r) {
            backward(r, m, b, action.kind == schedule::Kind::backward_input);
          }
        }
        break;
      case schedule::Kind::backward_weight:
        for (std::size_t b = end; b-- > begin;) {
          for (Shard& shard : shards_) {
            for (const Deferred& deferred : shard.micro[m].deferred) {
              if (deferred.block == b) {
                parameter_gradient(m, deferred);
              }
            }
            std::erase_if(shard.micro[m].deferred, [&](const Deferred& deferred) { return deferred.block == b; });
          }
        }
        break;
    }
  }

  BufferId add(DeviceId device, Role role, Shape shape, std::string label) {
    return draft_.add({.device = device,
                       .role = role,
                       .dtype = parameter_type(step_.precision),
                       .shape = std::move(shape),
                       .content = {},
                       .label = std::move(label)});
  }

  void task(plan::Action action, DeviceId device, Phase phase, std::size_t block, std::size_t micro, std::vector<BufferId> reads,
            std::vector<BufferId> writes, plan::Lane lane = plan::Lane::compute) {
    draft_.tasks.push_back({.action = action,
                            .device = device,
                            .lane = lane,
                            .labels = {.phase = phase,
                                       .block = static_cast<std::int32_t>(block),
                                       .micro_batch = placement_.micro_batches > 1 ? static_cast<std::int32_t>(micro) : -1,
                                       .stage = blocks_of_stage_.size() > 1 ? stage_of_block_[block] : -1},
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .after = {}});
  }

  /// A value's shape for a shard's rows of a micro-batch, in part along `divided` where it has that dimension.
  Shape shape_of(const model::Value& value, std::optional<char> divided, const Shard& shard, std::int64_t rows) const {
    std::vector<std::int64_t> extents;
    for (const model::Dim& dim : value.dims) {
      const std::int64_t extent = dim.name == model::batch.name ? rows : dim.extent;
      const Range range = divided == dim.name ? part_of(extent, placement_.shards, shard.index) : Range{0, extent};
      extents.push_back(range.end - range.begin);
    }
    return Shape(std::move(extents));
  }
  const model::Value& value_of(std::size_t b, std::size_t v) const { return model_.blocks()[b].values[v]; }
  Shape kept_shape(std::size_t b, std::size_t v, const Shard& shard, std::int64_t rows) const {
    return shape_of(value_of(b, v), layouts_.kept(layouts_.value(b, v)), shard, rows);
  }

  /// Rows of the batch as a value of the model's holds them on a shard.
  plan::BatchRows content_of(const model::Value& value, std::size_t b, std::size_t v, const Shard& shard,
                             plan::BatchRows rows) const {
    rows.axis = static_cast<std::uint32_t>(value.batch_axis());
    if (rows.axis == 1 && layouts_.kept(layouts_.value(b, v)) == value.dims[0].name) {
      rows.first = part_of(value.dims[0].extent, placement_.shards, shard.index).begin;
    }
    return rows;
  }

  /// Inputs, targets and parameters: what is there before the step begins.
  void open(Shard& shard) {
    const std::size_t blocks = model_.blocks().size();
    const DeviceId first = placement_.owner.value_or(device_of(shard, 0));
    const DeviceId last = placement_.owner.value_or(device_of(shard, blocks - 1));
    const bool labels = step_.loss == Loss::cross_entropy;
    const model::Value& data = value_of(0, 0);
    const std::size_t out = model_.blocks().back().out;
    for (MicroBatch& micro : shard.micro) {
      const std::int64_t rows = micro.row_count();
      const BufferId input = add(first, Role::input, kept_shape(0, 0, shard, rows), "x");
      draft_.buffers[input.index()].persistent = true;
      draft_.buffers[input.index()].content = content_of(data, 0, 0, shard, micro.rows);
      draft_.buffers[input.index()].dtype = data.integers ? DType::i32 : parameter_type(step_.precision);
      micro.values[0][0] = input;
      const Shape outputs = kept_shape(blocks - 1, out, shard, rows);
      micro.target = add(last, Role::target, labels ? rows_of(outputs) : outputs, labels ? "labels" : "target");
      Buffer& target = draft_.buffers[micro.target.index()];
      target.persistent = true;
      target.content = content_of(model_.output_value(), blocks - 1, out, shard, micro.rows);
      target.dtype = labels ? DType::i32 : parameter_type(step_.precision);
    }
    for (std::size_t b = 0; b < blocks; ++b) {
      if (placement_.owner && shard.replica > 0) {
        shard.parameters[b] = shards_[0].parameters[b];
        continue;
      }
      for (std::size_t p = 0; p < model_.blocks()[b].parameters.size(); ++p) {
        const Home& home = homes_[b][p];
        if (home.block != b || home.parameter != p) {
          shard.parameters[b].push_back(shard.parameters[home.block][home.parameter]);
          continue;
        }
        shard.parameters[b].push_back(
            parameter_buffer(shard, b, p, placement_.owner.value_or(device_of(shard, b)), Role::parameter, ""));
        draft_.buffers.back().persistent = true;
      }
    }
  }

  /// The shape of one element per row of a tensor.
  static Shape rows_of(const Shape& shape) {
    return Shape(std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end() - 1));
  }

  BufferId parameter_buffer(const Shard& shard, std::size_t b, std::size_t p, DeviceId device, Role role, std::string_view prefix) {
    const model::Parameter& parameter = model_.blocks()[b].parameters[p];
    plan::ParameterPart part{.name = parameter.name,
                             .ordinal = static_cast<std::uint32_t>(model_.ordinal(b, p)),
                             .fan_in = parameter.fan_in,
                             .whole = parameter.shape,
                             .end = parameter.shape[0]};
    if (const std::optional<char> divided = layouts_.kept(layouts_.parameter(b, p))) {
      part.axis = static_cast<std::uint32_t>(layouts_.parameter(b, p).find(*divided));
      const Range range = part_of(parameter.shape[part.axis], placement_.shards, shard.index);
      part.begin = range.begin;
      part.end = range.end;
    }
    const BufferId id = add(device, role, part.shape(), fmt::format("{}{}", prefix, parameter.name));
    draft_.buffers[id.index()].content = std::move(part);
    return id;
  }

  /// One task for each shard of a replica, of a collective among them.
  void meet(std::size_t r, plan::Collective::Kind kind, Phase phase, std::size_t b, std::size_t m,
            const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
    const MeetingId meeting = draft_.new_meeting();
    for (const Shard& shard : group(r)) {
      task(plan::Collective{kind, meeting, static_cast<std::uint32_t>(shard.index), static_cast<std::uint32_t>(reads.size())},
           device_of(shard, b), phase, b, m, {reads[shard.index]}, {writes[shard.index]}, plan::Lane::communication);
    }
  }

  /// Of buffers that the shards of a replica hold of one value: those that hold it after the conversion. `v` is the value's number.
  std::vector<BufferId> converted(Conversion conversion, std::size_t r, std::size_t m, std::size_t b, std::size_t v, Phase phase,
                                  Role role, std::vector<BufferId> held) {
    using Kind = plan::Collective::Kind;
    if (conversion == Conversion::none) {
      return held;
    }
    if (conversion == Conversion::all_reduce) {
      meet(r, Kind::all_reduce, phase, b, m, held, held);
      return held;
    }
    std::vector<BufferId> made;
    for (const Shard& shard : group(r)) {
      const std::int64_t rows = shard.micro[m].row_count();
      made.push_back(add(device_of(shard, b), role,
                         conversion == Conversion::all_gather ? value_of(b, v).shape(rows) : kept_shape(b, v, shard, rows),
                         draft_[held[shard.index]].label));
      draft_.buffers.back().dtype = draft_[held[shard.index]].dtype;
    }
    meet(r, conversion == Conversion::all_gather ? Kind::all_gather : Kind::reduce_scatter, phase, b, m, held, made);
    return made;
  }

  /// Buffers by reference and shard, made for the calls of one node.
  using Found = std::vector<std::pair<op::Ref, std::vector<BufferId>>>;

  /// The number of the value in its block that a reference means.
  std::size_t value_number(const model::Node& node, const op::Ref& ref) const {
    const bool input = ref.kind == op::Ref::Kind::input || ref.kind == op::Ref::Kind::input_gradient;
    return (input ? node.reads : node.writes)[ref.index];
  }

  /// What the shards of a replica read of a reference in a call, converted as the call needs it; `gathered` keeps what was.
  std::vector<BufferId> read(std::size_t r, std::size_t m, std::size_t b, const model::Node& node, const op::Ref& ref,
                             Conversion conversion, Phase phase, Found& gathered) {
    using Kind = op::Ref::Kind;
    if (conversion != Conversion::none) {
      for (const auto& [known, buffers] : gathered) {
        if (known == ref) {
          return buffers;
        }
      }
    }
    std::vector<BufferId> held;
    for (Shard& shard : group(r)) {
      held.push_back(ref.kind == Kind::parameter         ? shard.parameters[b][node.parameters[ref.index]]
                     : ref.kind == Kind::output_gradient ? shard.micro[m].gradients[b][value_number(node, ref)]
                                                         : shard.micro[m].values[b][value_number(node, ref)]);
    }
    if (conversion == Conversion::none) {
      return held;
    }
    const Role role = ref.kind == Kind::output_gradient ? Role::gradient : Role::activation;
    gathered.emplace_back(ref, converted(conversion, r, m, b, value_number(node, ref), phase, role, std::move(held)));
    return gathered.back().second;
  }

  /// By shard: the buffers that a call reads.
  std::vector<std::vector<BufferId>> reads_of(std::size_t r, std::size_t m, std::size_t b, const model::Node& node,
                                              const Call& call, Phase phase, Found& gathered) {
    std::vector<std::vector<BufferId>> by_shard(group(r).size());
    for (std::size_t i = 0; i < call.reads.size(); ++i) {
      const std::vector<BufferId> held = read(r, m, b, node, call.reads[i], call.before[i], phase, gathered);
      for (std::size_t s = 0; s < held.size(); ++s) {
        by_shard[s].push_back(held[s]);
      }
    }
    return by_shard;
  }

  /// The op of a call as one shard runs it.
  op::Op part_op(const Call& call, const Shard& shard) const {
    return call.numbered ? op::for_part(call.op, part_of(call.extent, placement_.shards, shard.index).begin, call.extent) : call.op;
  }

  void forward(std::size_t r, std::size_t m, std::size_t b, Phase phase) {
    const model::Block& block = model_.blocks()[b];
    if (b > 0) {
      for (Shard& shard : group(r)) {
        shard.micro[m].values[b][0] = shard.micro[m].values[b - 1][model_.blocks()[b - 1].out];
      }
    }
    for (std::size_t n = 0; n < block.nodes.size(); ++n) {
      const model::Node& node = block.nodes[n];
      Found gathered;
      for (const Call& call : layouts_.node(b, n).forward) {
        const std::vector<std::vector<BufferId>> reads = reads_of(r, m, b, node, call, phase, gathered);
        std::vector<std::vector<BufferId>> made(call.writes.size());  // by operand and shard
        for (Shard& shard : group(r)) {
          std::vector<BufferId> writes;
          for (std::size_t i = 0; i < call.writes.size(); ++i) {
            const model::Value& value = value_of(b, value_number(node, call.writes[i]));
            const bool again = &call != &layouts_.node(b, n).forward.front();
            writes.push_back(add(device_of(shard, b), Role::activation,
                                 shape_of(value, call.shared, shard, shard.micro[m].row_count()),
                                 again ? fmt::format("{}.{}", block.name, op::name(call.op)) : value.name));
            made[i].push_back(writes.back());
          }
          task(plan::Compute{part_op(call, shard)}, device_of(shard, b), phase, b, m, reads[shard.index], std::move(writes));
        }
        for (std::size_t i = 0; i < call.writes.size(); ++i) {
          const std::size_t v = value_number(node, call.writes[i]);
          const std::vector<BufferId> kept = converted(call.after[i], r, m, b, v, phase, Role::activation, made[i]);
          for (Shard& shard : group(r)) {
            shard.micro[m].values[b][v] = kept[shard.index];
          }
        }
      }
    }
  }

  void loss(std::size_t r, std::size_t m) {
    const std::size_t last = model_.blocks().size() - 1;
    const std::size_t out = model_.blocks()[last].out;
    const std::int64_t elements = step_.global_batch * model_.output().elements();
    const op::Op op = step_.loss == Loss::mean_squared_error ? op::Op(op::MeanSquaredError{elements})
                                                             : op::Op(op::CrossEntropy{elements / model_.output().last()});
    const Names names = layouts_.value(last, out);
    if (layouts_.kept(names) != names.back()) {
      for (Shard& shard : group(r)) {
        loss_of(shard, m, op, {});
      }
      return;
    }
    const std::optional<op::MergedLoss> merged = op::merged(op, placement_.shards);
    if (!merged) {
      throw usage_error("{} needs all of dimension {}, along which the output of {} is divided over {} devices", op::name(op),
                        names.back(), model_.name(), placement_.shards);
    }
    std::vector<BufferId> own;
    std::vector<BufferId> all;
    for (Shard& shard : group(r)) {
      std::vector<std::int64_t> extents = rows_of(kept_shape(last, out, shard, shard.micro[m].row_count())).extents();
      extents.push_back(merged->terms_per_row);
      own.push_back(add(device_of(shard, last), Role::communication, Shape(extents), "terms of the loss"));
      draft_.buffers.back().dtype = DType::f64;
      task(plan::Compute{output_part(merged->terms, shard)}, device_of(shard, last), Phase::forward, last, m,
           {shard.micro[m].values[last][out], shard.micro[m].target}, {own.back()});
    }
    for (const Shard& shard : group(r)) {
      std::vector<std::int64_t> extents = draft_[own[shard.index]].shape.extents();
      extents[0] *= placement_.shards;
      all.push_back(add(device_of(shard, last), Role::communication, Shape(extents), "terms of the loss, of all parts"));
      draft_.buffers.back().dtype = DType::f64;
    }
    meet(r, plan::Collective::Kind::all_gather, Phase::forward, last, m, own, all);
    for (Shard& shard : group(r)) {
      loss_of(shard, m, output_part(merged->loss, shard), {all[shard.index]});
    }
  }

  /// An op for the part of the model's output that a shard holds.
  op::Op output_part(const op::Op& op, const Shard& shard) const {
    const std::int64_t extent = model_.output().last();
    return op::for_part(op, part_of(extent, placement_.shards, shard.index).begin, extent);
  }

  void loss_of(Shard& shard, std::size_t m, const op::Op& op, const std::vector<BufferId>& terms) {
    MicroBatch& micro = shard.micro[m];
    const std::size_t last = model_.blocks().size() - 1;
    const std::size_t out = model_.blocks()[last].out;
    const DeviceId device = placement_.owner.value_or(device_of(shard, last));
    const Shape outputs = kept_shape(last, out, shard, micro.row_count());
    const BufferId loss = add(device, Role::loss, rows_of(outputs), "loss");
    draft_.buffers[loss.index()].dtype = DType::f64;
    draft_.buffers[loss.index()].content = content_of(model_.output_value(), last, out, shard, micro.rows);
    micro.gradients[last][out] = add(device, Role::gradient, outputs, "d output");
    std::vector<BufferId> reads{micro.values[last][out], micro.target};
    reads.insert(reads.end(), terms.begin(), terms.end());
    task(plan::Compute{op}, device, Phase::forward, last, m, std::move(reads), {loss, micro.gradients[last][out]});
  }

  /// Of a stage's blocks, which keep their input from the forward; the others' inputs are made again.
  bool keeps_input(std::size_t b, std::size_t begin, std::size_t end) const {
    const auto count = static_cast<double>(end - begin);
    const std::size_t stride = placement_.recompute == Recompute::none ? 1
                               : placement_.recompute == Recompute::alternate
                                   ? 2
                                   : static_cast<std::size_t>(std::ceil(std::sqrt(count)));
    return (b - begin) % stride == 0;
  }

  /// Before the backward of the last block of a run whose inputs were let go: makes them again from the kept one.
  void remake(std::size_t m, std::size_t b, std::size_t begin, std::size_t end) {
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

  void parameter_gradient(std::size_t m, const Deferred& deferred) {
    std::vector<BufferId> reads = deferred.reads;
    const bool adds = !written_.insert(deferred.writes[0]).second;
    if (adds) {
      reads.insert(reads.end(), deferred.writes.begin(), deferred.writes.end());
    }
    task(plan::Compute{adds ? op::accumulating(deferred.op) : deferred.op}, draft_[deferred.writes[0]].device, Phase::backward,
         deferred.block, m, std::move(reads), deferred.writes);
  }

  /// Whether anybody asks for the gradient of a value: not where no parameter has touched it, as the data.
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
      const BufferId sum = add(device_of(shard, b), Role::gradient, draft_[one].shape, draft_[one].label);
      task(plan::Compute{op::Add{}}, device_of(shard, b), Phase::backward, b, m, {known, one}, {sum});
      known = sum;
    }
  }

  void backward(std::size_t r, std::size_t m, std::size_t b, bool put_off) {
    const model::Block& block = model_.blocks()[b];
    for (std::size_t n = block.nodes.size(); n-- > 0;) {
      const model::Node& node = block.nodes[n];
      Found gathered;
      for (const Call& call : layouts_.node(b, n).backward) {
        const bool wanted = call.of_parameters || std::any_of(call.writes.begin(), call.writes.end(), [&](const op::Ref& ref) {
                              return wants_gradient(b, value_number(node, ref));
                            });
        if (wanted) {
          backward_call(r, m, b, node, call, put_off, gathered);
        }
      }
      for (const std::size_t input : layouts_.node(b, n).passed_on) {
        if (wants_gradient(b, node.reads[input])) {
          std::vector<BufferId> given;
          for (Shard& shard : group(r)) {
            given.push_back(shard.micro[m].gradients[b][node.writes[0]]);
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

  void backward_call(std::size_t r, std::size_t m, std::size_t b, const model::Node& node, const Call& call, bool put_off,
                     Found& gathered) {
    std::vector<std::vector<BufferId>> reads = reads_of(r, m, b, node, call, Phase::backward, gathered);
    std::vector<std::vector<BufferId>> made(call.writes.size());  // by operand and shard
    for (Shard& shard : group(r)) {
      Deferred one{part_op(call, shard), std::move(reads[shard.index]), {}, b};
      for (std::size_t i = 0; i < call.writes.size(); ++i) {
        one.writes.push_back(gradient_buffer(shard, m, b, node, call, call.writes[i]));
        made[i].push_back(one.writes.back());
      }
      if (!call.of_parameters) {
        task(plan::Compute{one.op}, device_of(shard, b), Phase::backward, b, m, std::move(one.reads), std::move(one.writes));
      } else if (put_off) {
        shard.micro[m].deferred.push_back(std::move(one));
      } else {
        parameter_gradient(m, one);
      }
    }
    for (std::size_t i = 0; i < call.writes.size() && !call.of_parameters; ++i) {
      const std::size_t v = value_number(node, call.writes[i]);
      const std::vector<BufferId> given = converted(call.after[i], r, m, b, v, Phase::backward, Role::gradient, made[i]);
      if (wants_gradient(b, v)) {
        add_gradient(r, m, b, v, given);
      }
    }
  }

  /// Where a call of the backward writes: the gradient of a parameter, or one more of a value.
  BufferId gradient_buffer(Shard& shard, std::size_t m, std::size_t b, const model::Node& node, const Call& call,
                           const op::Ref& ref) {
    if (ref.kind == op::Ref::Kind::parameter_gradient) {
      BufferId& gradient = gradient_of(shard, b, node.parameters[ref.index]);
      if (!gradient.valid()) {
        gradient = parameter_buffer(shard, b, node.parameters[ref.index], device_of(shard, b), Role::gradient, "d ");
      }
      return gradient;
    }
    const std::size_t v = value_number(node, ref);
    const BufferId value = shard.micro[m].values[b][v];
    return add(device_of(shard, b), Role::gradient, shape_of(value_of(b, v), call.shared, shard, shard.micro[m].row_count()),
               fmt::format("d {}", draft_[value].label));
  }

  const model::Model& model_;
  const Step& step_;
  const Placement& placement_;
  std::vector<std::int64_t> blocks_of_stage_;
  std::vector<std::int32_t> stage_of_block_;
  Layouts layouts_;
  std::vector<std::vector<Home>> homes_;    // by block and parameter
  std::vector<std::vector<bool>> trained_;  // by block and value
  std::vector<Shard> shards_;
  std::set<BufferId> written_;  // gradients of parameters: further ones are added
  Draft draft_;
};

}  // namespace

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
  plan::Draft draft = Writer(model, step, placement).write();
  return is_mixed(step.precision) ? narrow_values(std::move(draft), dtype_of(step.precision)) : draft;
}

std::vector<std::int64_t> even_split(std::int64_t total, std::int64_t parts) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), total / parts);
  for (std::int64_t i = 0; i < total % parts; ++i) {
    ++sizes[static_cast<std::size_t>(i)];
  }
  return sizes;
}

}  // namespace baton::strategy
