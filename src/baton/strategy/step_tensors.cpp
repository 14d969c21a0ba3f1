#include "baton/strategy/step_tensors.h"

#include <fmt/format.h>

#include <map>

#include "baton/base/divide.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Phase;
using plan::Role;

/// What one of so many parts holds of an axis.
Range part_of(std::int64_t total, std::int64_t parts, std::size_t index) {
  return divide(total, parts, static_cast<std::int64_t>(index), Remainder::first);
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
    for (std::size_t shard = 0; shard < static_cast<std::size_t>(placement.shards); ++shard) {
      shards_.emplace_back(r, shard, model, placement.replicas[r].rows, placement.micro_batches);
    }
  }
  find_homes();
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

std::int64_t StepTensors::first_index(std::int64_t total, const Shard& shard) const {
  return part_of(total, placement_.shards, shard.index).begin;
}

Shape StepTensors::shape_of(const model::Value& value, std::optional<char> divided, const Shard& shard, std::int64_t rows) const {
  std::vector<std::int64_t> extents;
  for (const model::Dim& dim : value.dims) {
    const std::int64_t extent = dim.name == model::batch.name ? rows : dim.extent;
    const Range range = divided == dim.name ? part_of(extent, placement_.shards, shard.index) : Range{0, extent};
    extents.push_back(range.end - range.begin);
  }
  return Shape(std::move(extents));
}

Shape StepTensors::kept_shape(std::size_t b, std::size_t v, const Shard& shard, std::int64_t rows) const {
  return shape_of(value_of(b, v), layouts_.kept(layouts_.value(b, v)), shard, rows);
}

Shape StepTensors::rows_of(const Shape& shape) {
  return Shape(std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end() - 1));
}

plan::BatchRows StepTensors::content_of(std::size_t b, std::size_t v, const Shard& shard, plan::BatchRows rows) const {
  const model::Value& value = value_of(b, v);
  rows.axis = static_cast<std::uint32_t>(value.batch_axis());
  if (rows.axis == 1 && layouts_.kept(layouts_.value(b, v)) == value.dims[0].name) {
    rows.first = first_index(value.dims[0].extent, shard);
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
    draft_.buffers[input.index()].content = content_of(0, 0, shard, micro.rows);
    draft_.buffers[input.index()].dtype = data.integers ? DType::i32 : parameter_type(step_.precision);
    micro.values[0][0] = input;
    const Shape outputs = kept_shape(blocks - 1, out, shard, rows);
    micro.target = add(last, Role::target, labels ? rows_of(outputs) : outputs, labels ? "labels" : "target");
    Buffer& target = draft_.buffers[micro.target.index()];
    target.persistent = true;
    target.content = content_of(blocks - 1, out, shard, micro.rows);
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
    const Range range = part_of(parameter.shape[part.axis], placement_.shards, shard.index);
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

void StepTensors::meet(std::size_t r, plan::Collective::Kind kind, Phase phase, std::size_t b, std::size_t m,
                       const std::vector<BufferId>& reads, const std::vector<BufferId>& writes) {
  const MeetingId meeting = draft_.new_meeting();
  for (const Shard& shard : group(r)) {
    task(plan::Collective{kind, meeting, static_cast<std::uint32_t>(shard.index), static_cast<std::uint32_t>(reads.size())},
         device_of(shard, b), phase, b, m, {reads[shard.index]}, {writes[shard.index]}, plan::Lane::communication);
  }
}

std::vector<BufferId> StepTensors::converted(Conversion conversion, std::size_t r, std::size_t m, std::size_t b, std::size_t v,
                                             Phase phase, Role role, std::vector<BufferId> held) {
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

}  // namespace baton::strategy
