#include "baton/strategy/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "baton/base/error.h"
#include "baton/op/gradient.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/tensor_split.h"

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
        splits_(tensor_splits(model, blocks_of_stage_, placement.shards)) {
    draft_.devices = placement.devices;
    for (std::size_t stage = 0; stage < blocks_of_stage_.size(); ++stage) {
      stage_of_block_.insert(stage_of_block_.end(), static_cast<std::size_t>(blocks_of_stage_[stage]),
                             static_cast<std::int32_t>(stage));
    }
    for (std::size_t r = 0; r < placement.replicas.size(); ++r) {
      for (std::size_t shard = 0; shard < static_cast<std::size_t>(placement.shards); ++shard) {
        shards_.emplace_back(r, shard, model.blocks().size(), placement.replicas[r].rows, placement.micro_batches);
      }
    }
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
    op::BackwardCall call;
    std::vector<BufferId> reads;
    std::vector<BufferId> writes;
    std::size_t block;
  };

  /// The buffers of one micro-batch as they come to be.
  struct MicroBatch {
    plan::BatchRows rows;
    std::vector<std::vector<BufferId>> values;  // by block: its input, then what each node wrote
    BufferId target;
    BufferId gradient;  // of the last value whose backward is not written yet
    std::vector<Deferred> deferred;

    std::int64_t row_count() const { return rows.end - rows.begin; }
  };

  /// What one device, or one device a stage, holds of a replica: all of it, or its part of each divided tensor.
  struct Shard {
    Shard(std::size_t replica_, std::size_t index_, std::size_t blocks, plan::BatchRows rows, std::int64_t micro_batches)
        : replica(replica_), index(index_), parameters(blocks), gradients(blocks) {
      std::int64_t begin = rows.begin;
      for (const std::int64_t count : even_split(rows.end - rows.begin, micro_batches)) {
        micro.push_back({{begin, begin + count}, std::vector<std::vector<BufferId>>(blocks), {}, {}, {}});
        begin += count;
      }
    }
    std::size_t replica;
    std::size_t index;
    std::vector<std::vector<BufferId>> parameters;  // by block
    std::vector<std::vector<BufferId>> gradients;   // of them
    std::vector<MicroBatch> micro;
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
          for (Shard& shard : shards_) {
            loss(shard, m);
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

  /// The sum over a replica's shards, each of which holds a term of it, in place.
  void sum_over_shards(std::size_t r, Phase phase, std::size_t block, std::size_t micro, const std::vector<BufferId>& terms) {
    const MeetingId meeting = draft_.new_meeting();
    for (const Shard& shard : group(r)) {
      const BufferId term = terms[shard.index];
      task(plan::Collective{plan::Collective::Kind::all_reduce, meeting, static_cast<std::uint32_t>(shard.index),
                            static_cast<std::uint32_t>(terms.size())},
           draft_[term].device, phase, block, micro, {term}, {term}, plan::Lane::communication);
    }
  }

  /// Inputs, targets and parameters: what is there before the step begins.
  void open(Shard& shard) {
    const std::size_t blocks = model_.blocks().size();
    const DeviceId first = placement_.owner.value_or(device_of(shard, 0));
    const DeviceId last = placement_.owner.value_or(device_of(shard, blocks - 1));
    const bool labels = step_.loss == Loss::cross_entropy;
    for (MicroBatch& micro : shard.micro) {
      const std::int64_t rows = micro.row_count();
      const BufferId input = add(first, Role::input, model_.input().batched(rows), "x");
      draft_.buffers[input.index()].persistent = true;
      draft_.buffers[input.index()].content = micro.rows;
      micro.values[0].push_back(input);
      micro.target = add(last, Role::target, labels ? Shape{rows} : model_.output().batched(rows), labels ? "labels" : "target");
      Buffer& target = draft_.buffers[micro.target.index()];
      target.persistent = true;
      target.content = micro.rows;
      target.dtype = labels ? DType::i32 : parameter_type(step_.precision);
    }
    for (std::size_t b = 0; b < blocks; ++b) {
      shard.gradients[b].resize(model_.blocks()[b].parameters.size());
      if (placement_.owner && shard.replica > 0) {
        shard.parameters[b] = shards_[0].parameters[b];
        continue;
      }
      for (std::size_t p = 0; p < model_.blocks()[b].parameters.size(); ++p) {
        shard.parameters[b].push_back(
            parameter_buffer(shard, b, p, placement_.owner.value_or(device_of(shard, b)), Role::parameter, ""));
        draft_.buffers.back().persistent = true;
      }
    }
  }

  NodeSplit split_of_parameter(std::size_t b, std::size_t p) const {
    const std::vector<model::Node>& nodes = model_.blocks()[b].nodes;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (std::find(nodes[n].parameters.begin(), nodes[n].parameters.end(), p) != nodes[n].parameters.end()) {
        return splits_[b][n];
      }
    }
    return NodeSplit::whole;
  }

  BufferId parameter_buffer(const Shard& shard, std::size_t b, std::size_t p, DeviceId device, Role role, std::string_view prefix) {
    const model::Parameter& parameter = model_.blocks()[b].parameters[p];
    plan::ParameterPart part{.name = parameter.name,
                             .ordinal = static_cast<std::uint32_t>(model_.first_parameter(b) + p),
                             .fan_in = parameter.fan_in,
                             .whole = parameter.shape,
                             .end = parameter.shape[0]};
    const NodeSplit split = split_of_parameter(b, p);
    if (split == NodeSplit::column || (split == NodeSplit::row && parameter.shape.rank() == 2)) {
      part.axis = split == NodeSplit::row ? 1 : 0;
      const Range range = part_of(parameter.shape[part.axis], placement_.shards, shard.index);
      part.begin = range.begin;
      part.end = range.end;
    }
    const BufferId id = add(device, role, part.shape(), fmt::format("{}{}", prefix, parameter.name));
    draft_.buffers[id.index()].content = std::move(part);
    return id;
  }

  /// The shape that a node gives for a micro-batch's rows on one shard.
  Shape output_shape(const model::Node& node, NodeSplit split, const Shard& shard, std::int64_t rows) const {
    if (split != NodeSplit::column && split != NodeSplit::follow) {
      return node.output.batched(rows);
    }
    const Range range = part_of(node.output[0], placement_.shards, shard.index);
    return Shape{rows, range.end - range.begin};
  }

  void forward(std::size_t r, std::size_t m, std::size_t b, Phase phase) {
    const model::Block& block = model_.blocks()[b];
    for (Shard& shard : group(r)) {
      MicroBatch& micro = shard.micro[m];
      const BufferId input = b == 0 ? micro.values[0][0] : micro.values[b - 1].back();
      micro.values[b].assign(1, input);
    }
    for (std::size_t n = 0; n < block.nodes.size(); ++n) {
      const model::Node& node = block.nodes[n];
      const NodeSplit split = splits_[b][n];
      std::vector<BufferId> outputs;
      for (Shard& shard : group(r)) {
        MicroBatch& micro = shard.micro[m];
        std::vector<BufferId> reads{micro.values[b].back()};
        for (const std::size_t p : node.parameters) {
          reads.push_back(shard.parameters[b][p]);
        }
        op::Op op = node.op;
        if (split == NodeSplit::row) {
          op = op::divided_sum(op)->term;
          reads.pop_back();  // the bias is added to the sum
        }
        outputs.push_back(add(device_of(shard, b), Role::activation, output_shape(node, split, shard, micro.row_count()),
                              fmt::format("{}.{}", block.name, op::name(node.op))));
        task(plan::Compute{op}, device_of(shard, b), phase, b, m, std::move(reads), {outputs.back()});
      }
      if (split == NodeSplit::row) {
        sum_over_shards(r, phase, b, m, outputs);
      }
      for (Shard& shard : group(r)) {
        BufferId output = outputs[shard.index];
        if (split == NodeSplit::row) {
          const BufferId sum = output;
          output = add(device_of(shard, b), Role::activation, draft_[sum].shape, fmt::format("{}.add_bias", block.name));
          task(plan::Compute{op::AddBias{}}, device_of(shard, b), phase, b, m, {sum, shard.parameters[b][node.parameters[1]]},
               {output});
        }
        shard.micro[m].values[b].push_back(output);
      }
    }
  }

  void loss(Shard& shard, std::size_t m) {
    MicroBatch& micro = shard.micro[m];
    const std::size_t last = model_.blocks().size() - 1;
    const DeviceId device = placement_.owner.value_or(device_of(shard, last));
    const BufferId loss = add(device, Role::loss, Shape{micro.row_count()}, "loss");
    draft_.buffers[loss.index()].dtype = DType::f64;
    draft_.buffers[loss.index()].content = micro.rows;
    micro.gradient = add(device, Role::gradient, model_.output().batched(micro.row_count()), "d output");
    const std::int64_t elements = step_.global_batch * model_.output().elements();
    const op::Op op = step_.loss == Loss::mean_squared_error ? op::Op(op::MeanSquaredError{elements})
                                                             : op::Op(op::CrossEntropy{step_.global_batch});
    task(plan::Compute{op}, device, Phase::forward, last, m, {micro.values[last].back(), micro.target}, {loss, micro.gradient});
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
      shard.micro[m].values[b][0] = shard.micro[m].values[b - 1].back();
    }
  }

  void parameter_gradient(std::size_t m, const Deferred& deferred) {
    std::vector<BufferId> reads = deferred.reads;
    const bool adds = !written_.insert(deferred.writes[0]).second;
    if (adds) {
      reads.insert(reads.end(), deferred.writes.begin(), deferred.writes.end());
    }
    task(plan::Compute{adds ? op::accumulating(deferred.call.op) : deferred.call.op}, draft_[deferred.writes[0]].device,
         Phase::backward, deferred.block, m, std::move(reads), deferred.writes);
  }

  void backward(std::size_t r, std::size_t m, std::size_t b, bool put_off) {
    const model::Block& block = model_.blocks()[b];
    for (std::size_t n = block.nodes.size(); n-- > 0;) {
      op::Op op = block.nodes[n].op;
      if (splits_[b][n] == NodeSplit::row) {
        op = op::divided_sum(op)->term;
      }
      std::vector<BufferId> input_gradients(group(r).size());
      for (const op::BackwardCall& call : op::gradient(op)) {
        if (b == 0 && n == 0 && !call.of_parameters) {
          continue;  // nobody asks for the gradient of the data
        }
        for (Shard& shard : group(r)) {
          Deferred resolved = resolve(shard, m, b, n, call, input_gradients[shard.index]);
          if (!call.of_parameters) {
            task(plan::Compute{call.op}, device_of(shard, b), Phase::backward, b, m, std::move(resolved.reads),
                 std::move(resolved.writes));
          } else if (put_off) {
            shard.micro[m].deferred.push_back(std::move(resolved));
          } else {
            parameter_gradient(m, resolved);
          }
        }
        if (!call.of_parameters && splits_[b][n] == NodeSplit::column) {
          sum_over_shards(r, Phase::backward, b, m, input_gradients);
        }
      }
      for (Shard& shard : group(r)) {
        shard.micro[m].gradient = input_gradients[shard.index];
      }
    }
  }

  /// Which buffers a call of the backward of a node reads and writes.
  Deferred resolve(Shard& shard, std::size_t m, std::size_t b, std::size_t n, const op::BackwardCall& call,
                   BufferId& input_gradient) {
    const model::Node& node = model_.blocks()[b].nodes[n];
    MicroBatch& micro = shard.micro[m];
    const DeviceId device = device_of(shard, b);
    const BufferId input = micro.values[b][n];
    const auto buffer_of = [&](const op::Ref& ref) {
      switch (ref.kind) {
        case op::Ref::Kind::input:
          return input;
        case op::Ref::Kind::output:
          return micro.values[b][n + 1];
        case op::Ref::Kind::parameter:
          return shard.parameters[b][node.parameters[ref.index]];
        case op::Ref::Kind::output_gradient:
          return micro.gradient;
        case op::Ref::Kind::input_gradient:
          if (!input_gradient.valid()) {
            input_gradient = add(device, Role::gradient, draft_[input].shape, fmt::format("d {}", draft_[input].label));
          }
          return input_gradient;
        case op::Ref::Kind::parameter_gradient: {
          BufferId& gradient = shard.gradients[b][node.parameters[ref.index]];
          if (!gradient.valid()) {
            gradient = parameter_buffer(shard, b, node.parameters[ref.index], device, Role::gradient, "d ");
          }
          return gradient;
        }
      }
      throw BugError("a reference of no kind");
    };
    Deferred resolved{call, {}, {}, b};
    for (const op::Ref& ref : call.reads) {
      resolved.reads.push_back(buffer_of(ref));
    }
    for (const op::Ref& ref : call.writes) {
      resolved.writes.push_back(buffer_of(ref));
    }
    return resolved;
  }

  const model::Model& model_;
  const Step& step_;
  const Placement& placement_;
  std::vector<std::int64_t> blocks_of_stage_;
  std::vector<std::int32_t> stage_of_block_;
  std::vector<std::vector<NodeSplit>> splits_;
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
