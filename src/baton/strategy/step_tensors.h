#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/strategy/placement.h"
#include "baton/strategy/step.h"

namespace baton::strategy {

/// A gradient of parameters that a schedule postponed.
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
  std::vector<std::vector<BufferId>> gradients;  // the gradients of these values, as far as their readers have given any
  BufferId target;
  std::vector<Deferred> deferred;

  std::int64_t row_count() const { return rows.end - rows.begin; }
};

/// The part of a replica on one device, or on one device per stage: all of it, or its part of each divided tensor.
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
  std::vector<std::vector<BufferId>> gradients;   // the gradients of these parameters, at their homes
  std::vector<MicroBatch> micro;
};

/// The buffers of a training step and the tasks between those that hold parts of one value: what `training_step` writes its tasks
/// with.
class StepTensors {
 public:
  StepTensors(const model::Model& model, const Step& step, const Placement& placement);

 protected:
  /// The shards of one replica.
  std::span<Shard> group(std::size_t replica) {
    const std::size_t count = shards_.size() / placement_.replicas.size();
    return std::span(shards_).subspan(replica * count, count);
  }
  std::size_t replica_count() const { return placement_.replicas.size(); }
  DeviceId device_of(const Shard& shard, std::size_t b) const {
    return DeviceId(placement_.replicas[shard.replica].device_of_block[b].index() + shard.index);
  }
  const model::Value& value_of(std::size_t b, std::size_t v) const { return model_.blocks()[b].values[v]; }

  BufferId add(DeviceId device, plan::Role role, Shape shape, std::string label);
  /// A buffer for part of a value or of its gradient; `statistics` are float32 whatever the step computes in.
  BufferId add(DeviceId device, plan::Role role, plan::ValuePart held, std::string label, bool statistics = false);
  void task(plan::Action action, DeviceId device, plan::Phase phase, std::size_t block, std::size_t micro,
            std::vector<BufferId> reads, std::vector<BufferId> writes, plan::Lane lane = plan::Lane::compute);

  /// The part of a value, or of its gradient, that a shard holds for the rows of a micro-batch: its part along `divided` if
  /// the value has that dimension.
  plan::ValuePart part(std::size_t b, std::size_t v, std::optional<char> divided, const Shard& shard, std::size_t m,
                       plan::Role role) const;
  /// The part of a tensor that a call writes, as a shard holds it: one of the terms of a sum over the shards if a
  /// conversion adds them up.
  plan::ValuePart part(std::size_t b, std::size_t v, const Call& call, std::size_t operand, const Shard& shard, std::size_t m,
                       plan::Role role) const;
  /// The part of a value that a shard holds in the layout in which the value is kept.
  plan::ValuePart kept_part(std::size_t b, std::size_t v, const Shard& shard, std::size_t m, plan::Role role) const {
    return part(b, v, layouts_.kept_value(b, v), shard, m, role);
  }
  /// The loss for the whole batch.
  op::Op loss_op() const;

  /// The first of `total` indices of a dimension that a shard holds if they are divided.
  std::int64_t first_index(char dim, std::int64_t total, const Shard& shard) const;
  /// A value's shape for a shard's rows of a micro-batch, in part along `divided` if it has that dimension.
  Shape shape_of(const model::Value& value, std::optional<char> divided, const Shard& shard, std::int64_t rows) const;
  /// The shape of a value for a shard's rows of a micro-batch, in the layout in which the value is kept.
  Shape kept_shape(std::size_t b, std::size_t v, const Shard& shard, std::int64_t rows) const;
  /// The shape of one element per row of a tensor.
  static Shape rows_of(const Shape& shape);
  /// Rows of the batch as a value of the model's holds them on a shard.
  plan::BatchRows content_of(std::size_t b, std::size_t v, const Shard& shard, plan::BatchRows rows, plan::ValueId id) const;

  /// Inputs, targets and parameters: what is there before the step begins.
  void open(Shard& shard);
  /// The gradient of a parameter, made when it is first asked for. Ops of one device that share a parameter share it.
  BufferId parameter_gradient_buffer(Shard& shard, std::size_t b, std::size_t p);

  /// One task for each shard of a replica, of a collective among them.
  void meet(std::size_t r, plan::Move kind, plan::Phase phase, std::size_t b, std::size_t m, const std::vector<BufferId>& reads,
            const std::vector<BufferId>& writes, std::int64_t row = 1);
  /// Converts the buffers that the shards of a replica hold of one value; returns those that hold it afterwards. `v` is the value's
  /// number.
  std::vector<BufferId> converted(Conversion conversion, std::size_t r, std::size_t m, std::size_t b, std::size_t v,
                                  plan::Phase phase, plan::Role role, std::vector<BufferId> held);

  const model::Model& model_;
  const Step& step_;
  const Placement& placement_;
  std::vector<std::int64_t> blocks_of_stage_;
  Layouts layouts_;
  std::vector<Shard> shards_;
  plan::Draft draft_;
  plan::ValueId loss_id_;

 private:
  /// A parameter of a block, by numbers.
  struct Home {
    std::size_t block;
    std::size_t parameter;
  };

  void find_homes();
  /// Writes the computation of the step, whatever the placement.
  void write_graph();
  BufferId parameter_buffer(const Shard& shard, std::size_t b, std::size_t p, DeviceId device, plan::Role role,
                            std::string_view prefix);

  std::vector<std::int32_t> stage_of_block_;
  std::vector<std::vector<plan::ValueId>> value_ids_;  // by block and value
  plan::ValueId target_id_;
  std::vector<std::vector<Home>> homes_;  // by block and parameter: where its buffers are
};

}  // namespace baton::strategy
