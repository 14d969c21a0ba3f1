#include "baton/strategy/step_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "baton/base/divide.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Phase;
using plan::Role;

/// The indices of a dimension that one of this many parts holds. Positions of a sequence are gathered and scattered, so their parts
/// are pieces of a collective (plan::piece_of).
Range part_of(char dim, std::int64_t total, std::int64_t parts, std::size_t index) {
  return divide(total, parts, static_cast<std::int64_t>(index), dim == 't' ? Remainder::spread : Remainder::first);
}

}  // namespace

StepTensors::StepTensors(const model::Model& model, const Step& step, const Placement& placement)
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
    const std::int64_t written = placement.written_shards > 0 ? placement.written_shards : placement.shards;
    for (std::size_t shard = 0; shard < static_cast<std::size_t>(written); ++shard) {
      shards_.emplace_back(r, shard, model, placement.replicas[r].rows, placement.micro_batches);
    }
  }
  find_homes();
  write_graph();
}

void StepTensors::write_graph() {
  plan::Graph& graph = draft_.graph;
  const std::int64_t rows = step_.global_batch;
  for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
    const model::Block& block = model_.blocks()[b];
    std::vector<plan::ValueId>& ids = value_ids_.emplace_back();
    for (std::size_t v = 0; v < block.values.size(); ++v) {
      if (b > 0 && v == 0) {
        ids.push_back(value_ids_[b - 1][model_.blocks()[b - 1].out]);
        continue;
      }
      ids.emplace_back(graph.values.size());
      graph.values.push_back({b == 0 && v == 0 ? "x" : block.values[v].name, block.values[v].shape(rows),
                              block.values[v].wide && is_mixed(step_.precision)});
    }
    for (const model::Node& node : block.nodes) {
      plan::Graph::Node& added = graph.nodes.emplace_back(plan::Graph::Node{node.op, {}, {}, {}});
      for (const std::size_t read : node.reads) {
        added.reads.push_back(ids[read]);
      }
      for (const std::size_t p : node.parameters) {
        added.parameters.push_back(static_cast<std::uint32_t>(model_.ordinal(b, p)));
      }
      for (const std::size_t write : node.writes) {
        added.writes.push_back(ids[write]);
      }
    }
  }
  const bool labels = step_.loss == Loss::cross_entropy;
  const Shape outputs = model_.output_value().shape(rows);
  target_id_ = plan::ValueId(graph.values.size());
  graph.values.push_back({labels ? "labels" : "target", labels ? rows_of(outputs) : outputs});
  loss_id_ = plan::ValueId(graph.values.size());
  graph.values.push_back({"loss", rows_of(outputs)});
  graph.nodes.push_back({loss_op(), {value_ids_.back()[model_.blocks().back().out], target_id_}, {}, {loss_id_}});
  if (!step_.forward_only) {
    graph.optimizer = step_.optimizer;
  }
}

op::Op StepTensors::loss_op() const {
  const std::int64_t elements = step_.global_batch * model_.output().elements();
  return step_.loss == Loss::mean_squared_error
             ? op::Op(op::MeanSquaredError{elements})
             : op::Op(op::CrossEntropy{.rows = elements / model_.output().last(), .smoothing = step_.label_smoothing});
}

plan::ValuePart StepTensors::part(std::size_t b, std::size_t v, std::optional<char> divided, const Shard& shard, std::size_t m,
                                  Role role) const {
  plan::ValuePart held{.value = value_ids_[b][v], .gradient = role == Role::gradient, .at = {}};
  const plan::BatchRows& rows = shard.micro[m].rows;
  for (const model::Dim& dim : value_of(b, v).dims) {
    held.at.push_back(dim.name == model::batch.name ? Range{rows.begin, rows.end}
                      : divided == dim.name         ? part_of(dim.name, dim.extent, placement_.shards, shard.index)
                                                    : Range{0, dim.extent});
  }
  return held;
}

plan::ValuePart StepTensors::part(std::size_t b, std::size_t v, const Call& call, std::size_t operand, const Shard& shard,
                                  std::size_t m, Role role) const {
  plan::ValuePart held = part(b, v, call.shared, shard, m, role);
  if (call.after[operand] == Conversion::all_reduce || call.after[operand] == Conversion::reduce_scatter) {
    held.term = static_cast<std::uint32_t>(shard.index);
    held.terms = static_cast<std::uint32_t>(placement_.shards);
  }
  return held;
}

BufferId StepTensors::add(DeviceId device, Role role, plan::ValuePart held, std::string label, bool statistics) {
  Shape::Extents extents;
  for (const Range& range : held.at) {
    extents.push_back(range.size());
  }
  const BufferId id = add(device, role, Shape(std::move(extents)), std::move(label));
  draft_.buffers[id.index()].content = std::move(held);
  if (statistics) {
    draft_.buffers[id.index()].dtype = DType::f32;
  }
  return id;
}

/// Blocks of one device that share a parameter share its buffers: those of the first of them.
void StepTensors::find_homes() {
  std::map<std::pair<DeviceId, std::size_t>, Home> homes;  // by device and ordinal
  for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
    homes_.emplace_back();
    for (std::size_t p = 0; p < model_.blocks()[b].parameters.size(); ++p) {
      const DeviceId device = placement_.owner.value_or(placement_.replicas[0].device_of_block[b]);
      homes_.back().push_back(homes.try_emplace({device, model_.ordinal(b, p)}, Home{b, p}).first->second);
    }
  }
}

BufferId StepTensors::add(DeviceId device, Role role, Shape shape, std::string label) {
  return draft_.add({.device = device,
                     .role = role,
                     .dtype = parameter_type(step_.precision),
                     .shape = std::move(shape),
                     .content = {},
                     .label = std::move(label)});
}

void StepTensors::task(plan::Action action, DeviceId device, Phase phase, std::size_t block, std::size_t micro,
                       std::vector<BufferId> reads, std::vector<BufferId> writes, plan::Lane lane) {
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

std::int64_t StepTensors::first_index(char dim, std::int64_t total, const Shard& shard) const {
  return part_of(dim, total, placement_.shards, shard.index).begin;
}

Shape StepTensors::shape_of(const model::Value& value, std::optional<char> divided, const Shard& shard, std::int64_t rows) const {
  Shape::Extents extents;
  for (const model::Dim& dim : value.dims) {
    const std::int64_t extent = dim.name == model::batch.name ? rows : dim.extent;
    const Range range = divided == dim.name ? part_of(dim.name, extent, placement_.shards, shard.index) : Range{0, extent};
    extents.push_back(range.end - range.begin);
  }
  return Shape(std::move(extents));
}

Shape StepTensors::kept_shape(std::size_t b, std::size_t v, const Shard& shard, std::int64_t rows) const {
  return shape_of(value_of(b, v), layouts_.kept_value(b, v), shard, rows);
}

Shape StepTensors::rows_of(const Shape& shape) { return Shape(Shape::Extents(shape.extents().begin(), shape.extents().end() - 1)); }

plan::BatchRows StepTensors::content_of(std::size_t b, std::size_t v, const Shard& shard, plan::BatchRows rows,
                                        plan::ValueId id) const {
  const model::Value& value = value_of(b, v);
  rows.value = id;
  rows.axis = static_cast<std::uint32_t>(value.batch_axis());
  if (rows.axis == 1 && layouts_.kept_value(b, v) == value.dims[0].name) {
    rows.first = first_index(value.dims[0].name, value.dims[0].extent, shard);
  }
  return rows;
}

void StepTensors::open(Shard& shard) {
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
    draft_.buffers[input.index()].content = content_of(0, 0, shard, micro.rows, value_ids_[0][0]);
    draft_.buffers[input.index()].dtype = data.integers ? DType::i32 : parameter_type(step_.precision);
    micro.values[0][0] = input;
    const Shape outputs = kept_shape(blocks - 1, out, shard, rows);
    micro.target = add(last, Role::target, labels ? rows_of(outputs) : outputs, labels ? "labels" : "target");
    Buffer& target = draft_.buffers[micro.target.index()];
    target.persistent = true;
    target.content = content_of(blocks - 1, out, shard, micro.rows, target_id_);
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
      const model::Kept kept = model_.blocks()[b].parameters[p].kept;
      shard.parameters[b].push_back(parameter_buffer(shard, b, p, placement_.owner.value_or(device_of(shard, b)),
                                                     kept == model::Kept::trained ? Role::parameter : Role::statistic, ""));
      draft_.buffers.back().persistent = true;
      if (kept == model::Kept::count) {
        draft_.buffers.back().dtype = DType::i32;
      }
    }
  }
}

BufferId StepTensors::parameter_buffer(const Shard& shard, std::size_t b, std::size_t p, DeviceId device, Role role,
                                       std::string_view prefix) {
  const model::Parameter& parameter = model_.blocks()[b].parameters[p];
  plan::ParameterPart part{.name = parameter.name,
                           .ordinal = static_cast<std::uint32_t>(model_.ordinal(b, p)),
                           .fan_in = parameter.fan_in,
                           .whole = parameter.shape,
                           .end = parameter.shape[0]};
  if (const std::optional<char> divided = layouts_.kept(layouts_.parameter(b, p))) {
    part.axis = static_cast<std::uint32_t>(layouts_.parameter(b, p).find(*divided));
    const Range range = part_of(*divided, parameter.shape[part.axis], placement_.shards, shard.index);
    part.begin = range.begin;
    part.end = range.end;
  }
  const BufferId id = add(device, role, part.shape(), fmt::format("{}{}", prefix, parameter.name));
  draft_.buffers[id.index()].content = std::move(part);
  return id;
}

BufferId StepTensors::parameter_gradient_buffer(Shard& shard, std::size_t b, std::size_t p) {
  BufferId& gradient = shard.gradients[homes_[b][p].block][homes_[b][p].parameter];
  if (!gradient.valid()) {
    gradient = parameter_buffer(shard, b, p, device_of(shard, b), Role::gradient, "d ");
  }
  return gradient;
}

void StepTensors::meet(std::size_t r, plan::Move kind, Phase phase, std::size_t b, std::size_t m,
                       const std::vector<BufferId>& reads, const std::vector<BufferId>& writes, std::int64_t row) {
  const MeetingId meeting = draft_.new_meeting();
  for (const Shard& shard : group(r)) {
    task(plan::Collective{.kind = kind,
                          .meeting = meeting,
                          .rank = static_cast<std::uint32_t>(shard.index),
                          .size = static_cast<std::uint32_t>(placement_.shards),
                          .row = row},
         device_of(shard, b), phase, b, m, {reads[shard.index]}, {writes[shard.index]}, plan::Lane::communication);
  }
}

std::vector<BufferId> StepTensors::converted(Conversion conversion, std::size_t r, std::size_t m, std::size_t b, std::size_t v,
                                             Phase phase, Role role, std::vector<BufferId> held) {
  if (conversion == Conversion::none) {
    return held;
  }
  if (conversion == Conversion::all_reduce) {
    meet(r, plan::Move::all_reduce, phase, b, m, held, held);
    return held;
  }
  std::vector<BufferId> made;
  for (const Shard& shard : group(r)) {
    plan::ValuePart content = conversion == Conversion::all_gather ? part(b, v, std::nullopt, shard, m, role)
                                                                   : kept_part(b, v, shard, m, role);
    const auto* before = std::get_if<plan::ValuePart>(&draft_[held[shard.index]].content);
    content.unfinished = before != nullptr && before->unfinished;
    made.push_back(add(device_of(shard, b), role, std::move(content), draft_[held[shard.index]].label));
    draft_.buffers.back().dtype = draft_[held[shard.index]].dtype;
  }
  const Shape& whole = draft_[conversion == Conversion::all_gather ? made[0] : held[0]].shape;
  // Parts of a dimension that divides evenly are even runs of elements, too.
  const std::int64_t row = whole[0] % placement_.shards == 0 ? 1 : whole.elements() / whole[0];
  meet(r, conversion == Conversion::all_gather ? plan::Move::all_gather : plan::Move::reduce_scatter, phase, b, m, held, made, row);
  return made;
}

}  // namespace baton::strategy
