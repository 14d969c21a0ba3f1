#include "baton/strategy/strategy.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/training_step.h"

namespace baton::strategy {
namespace {

/// No replicas yet. `rows` is what the smallest of them will have.
Placement empty_placement(const Request& request, std::int64_t rows) {
  if (request.layout.micro_batches < 1 || request.layout.micro_batches > rows) {
    throw usage_error("{} micro-batches cannot be made of {} sample{} a replica", request.layout.micro_batches, rows,
                      rows == 1 ? "" : "s");
  }
  Placement placement;
  placement.micro_batches = request.layout.micro_batches;
  for (const cluster::Device& device : request.cluster.devices()) {
    placement.devices.push_back(device.name);
  }
  return placement;
}

void refuse_split(const Request& request) {
  if (!request.layout.split.empty()) {
    throw usage_error("strategy {} does not split the model, so it takes no --split", request.strategy);
  }
}

/// A whole model on each device, each with its share of the batch.
Placement replicas(const Request& request) {
  refuse_split(request);
  const auto devices = static_cast<std::int64_t>(request.cluster.size());
  if (request.step.global_batch < devices) {
    throw usage_error("a global batch of {} cannot be divided over {} devices: each needs a sample at least",
                      request.step.global_batch, devices);
  }
  Placement placement = empty_placement(request, request.step.global_batch / devices);
  std::int64_t begin = 0;
  for (const std::int64_t rows : even_split(request.step.global_batch, devices)) {
    const DeviceId device(placement.replicas.size());
    placement.replicas.push_back(
        {{begin, begin + rows}, std::vector<DeviceId>(request.model.blocks().size(), device)});
    begin += rows;
  }
  return placement;
}

plan::Draft build_single(const Request& request) {
  refuse_split(request);
  Placement placement = empty_placement(request, request.step.global_batch);
  placement.replicas.push_back({{0, request.step.global_batch},
                                std::vector<DeviceId>(request.model.blocks().size(), DeviceId(0))});
  return add_updates(training_step(request.model, request.step, placement), request.step.optimizer);
}

plan::Draft build_dp(const Request& request) {
  Placement placement = replicas(request);
  placement.owner = DeviceId(0);
  plan::Draft draft = training_step(request.model, request.step, placement);
  draft = replicate_parameters(std::move(draft));
  draft = add_transfers(std::move(draft));
  draft = reduce_gradients_to(std::move(draft), *placement.owner);
  return add_updates(std::move(draft), request.step.optimizer);
}

plan::Draft build_ddp(const Request& request) {
  plan::Draft draft = training_step(request.model, request.step, replicas(request));
  draft = all_reduce_gradients(std::move(draft), request.layout.first_bucket, request.layout.bucket);
  return add_updates(std::move(draft), request.step.optimizer);
}

plan::Draft build_layers(const Request& request) {
  const auto blocks = static_cast<std::int64_t>(request.model.blocks().size());
  const auto devices = static_cast<std::int64_t>(request.cluster.size());
  std::vector<std::int64_t> split = request.layout.split;
  if (split.empty()) {
    if (devices > blocks) {
      throw usage_error("{} has {} block{}, which cannot be split over {} devices: each stage needs a block at least",
                        request.model.name(), blocks, blocks == 1 ? "" : "s", devices);
    }
    split = even_split(blocks, devices);
  }
  const std::int64_t placed = std::accumulate(split.begin(), split.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(split.size()) != devices || placed != blocks ||
      std::any_of(split.begin(), split.end(), [](std::int64_t n) { return n < 1; })) {
    throw usage_error("a split of {} stages and {} blocks does not fit {} devices and the {} blocks of {}", split.size(),
                      placed, devices, blocks, request.model.name());
  }
  Placement placement = empty_placement(request, request.step.global_batch);
  placement.replicas.push_back({{0, request.step.global_batch}, {}});
  for (std::size_t stage = 0; stage < split.size(); ++stage) {
    placement.replicas[0].device_of_block.insert(placement.replicas[0].device_of_block.end(),
                                                 static_cast<std::size_t>(split[stage]), DeviceId(stage));
  }
  plan::Draft draft = add_transfers(training_step(request.model, request.step, placement));
  draft = add_updates(std::move(draft), request.step.optimizer);
  for (plan::Task& task : draft.tasks) {
    task.labels.stage = static_cast<std::int32_t>(task.device.value);
  }
  return draft;
}

}  // namespace

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> list{
      {"single", "the whole model and batch on the first device", build_single},
      {"dp", "one owner: device 0 replicates parameters, scatters inputs, gathers outputs and updates", build_dp},
      {"ddp", "a replica on each device; gradients all-reduced in buckets while the backward goes on", build_ddp},
      {"layers", "blocks spread over the devices in order; one baton, passed along", build_layers},
  };
  return list;
}

const Strategy& strategy_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == wanted) {
      return strategy;
    }
    names.push_back(strategy.name);
  }
  throw usage_error("unknown strategy '{}': choose {}", name, either(names));
}

plan::Plan compile(const Request& request) { return compile(request, strategy_by_name(request.strategy)); }

plan::Plan compile(const Request& request, const Strategy& strategy) {
  if (request.step.global_batch < 1) {
    throw usage_error("a global batch of {} has nothing to train on", request.step.global_batch);
  }
  // Beyond this, counts of flops and bytes would not fit in 64 bits; no machine comes near.
  double widths = static_cast<double>(request.model.input().elements());
  for (const model::Block& block : request.model.blocks()) {
    widths += static_cast<double>(block.output().elements());
  }
  const auto batch = static_cast<double>(request.step.global_batch);
  const auto parameters = static_cast<double>(request.model.parameter_count());
  if (parameters > 1e13 || batch * parameters > 1e17 || batch * widths > 1e15) {
    throw usage_error("{} with a global batch of {} is larger than any machine: {:.3g} parameters", request.model.name(),
                      request.step.global_batch, parameters);
  }
  if (request.step.loss == Loss::cross_entropy && request.model.output().rank() != 1) {
    throw usage_error("cross-entropy needs a vector of scores a sample, but {} gives {}", request.model.name(),
                      to_text(request.model.output()));
  }
  plan::Draft draft = strategy.build(request);
  Target target = request.target;
  // A fused update would leave nothing for a delay before the update to stand before.
  if (std::any_of(request.delays.begin(), request.delays.end(),
                  [](const DelayRequest& delay) { return delay.before == plan::Phase::update; })) {
    target.linear_with_sgd = false;
    target.all_reduce_with_sgd = false;
  }
  draft = fuse(std::move(draft), target);
  if (target.tiled_weights) {
    draft = tile_weights(std::move(draft));
  }
  draft = inject_delays(std::move(draft), request.delays);
  if (target.workspace) {
    for (plan::Task& task : draft.tasks) {
      task.workspace = target.workspace(draft.buffers, task, request.cluster.device(task.device).cores.size());
    }
  }
  draft.title = fmt::format("{} of {}, global batch {}, on {} device{}", strategy.name, request.model.name(),
                            request.step.global_batch, request.cluster.size(), request.cluster.size() == 1 ? "" : "s");
  return plan::finish(std::move(draft));
}

}  // namespace baton::strategy
