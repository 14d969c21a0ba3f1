#include "baton/job/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/target.h"
#include "baton/schedule/schedule.h"
#include "baton/schedule/text.h"

namespace baton::job {
namespace {

/// The number of devices: `8`, or `gpu:8` in the form of this machine's devices; `cpu` alone means all devices of one node.
std::int64_t count_devices(const JobSpec& spec, std::int64_t in_node) {
  constexpr std::int64_t most = 1 << 20;
  if (const std::optional<std::int64_t> count = spec.devices.count(); count && *count >= 1 && *count <= most) {
    return *count;
  }
  const std::string text = spec.devices.text();
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos && canonical(text) == DeviceList().text()) {
    return std::max<std::int64_t>(in_node, 1);
  }
  return parse_integer(text.substr(colon == std::string::npos ? 0 : colon + 1),
                       fmt::format("--devices, with --cluster {} the number of its devices,", spec.cluster), 1, most);
}

op::Optimizer make_optimizer(const JobSpec& spec) {
  op::Optimizer optimizer = op::optimizer_by_name(spec.optimizer);
  std::visit(
      [&](auto& settings) {
        settings.rate = spec.lr.value_or(settings.rate);
        settings.weight_decay = spec.weight_decay.value_or(settings.weight_decay);
        settings.clip = spec.clip.value_or(settings.clip);
        settings.decay_matrices = spec.decay == Decay::matrices;
        settings.schedule = spec.lr_schedule;
      },
      optimizer);
  if (spec.momentum) {
    auto* sgd = std::get_if<op::Sgd>(&optimizer);
    if (sgd == nullptr) {
      throw usage_error("optimizer {} has no --momentum", spec.optimizer);
    }
    sgd->momentum = *spec.momentum;
  }
  return optimizer;
}

std::string read_schedule(const std::string& path) {
  constexpr Bytes most(std::int64_t{4} << 20);
  if (!std::filesystem::exists(path)) {
    std::vector<std::string> names;
    for (const schedule::Schedule& known : schedule::schedules()) {
      names.push_back(known.name);
    }
    throw usage_error("the schedule {} cannot be read: give a file, or a name: {}", path, either(names));
  }
  return read_file(path, "the schedule " + path, most);
}

/// A layout without a name is a product.
strategy::Strategy strategy_of(const JobSpec& spec) {
  if (spec.strategy) {
    return *spec.strategy;
  }
  const bool layout = spec.dp || spec.pp || spec.tp || spec.zero || !spec.schedule.empty();
  return layout ? "product" : "single";
}

strategy::Precision make_precision(const JobSpec& spec, const cluster::Device& device) {
  if (spec.precision == strategy::Precision::tf32 && !device.gpu && !device.speed.rates[cluster::RateType::tf32]) {
    throw usage_error("tf32 is how the matrix units of a GPU read float32 operands, and {} has none: choose another --precision",
                      device.name);
  }
  return spec.precision;
}

std::optional<strategy::LossScale> make_loss_scale(const JobSpec& spec) {
  using Mode = LossScaling::Mode;
  const Mode mode = spec.loss_scale.mode != Mode::by_precision    ? spec.loss_scale.mode
                    : spec.precision == strategy::Precision::fp16 ? Mode::dynamic
                                                                  : Mode::none;
  if (mode == Mode::none) {
    return std::nullopt;
  }
  return mode == Mode::dynamic ? strategy::LossScale{.growth_interval = spec.loss_scale_growth}
                               : strategy::LossScale{.initial = spec.loss_scale.scale, .dynamic = false};
}

strategy::Layout make_layout(const JobSpec& spec) {
  strategy::Layout layout{.dp = spec.dp.value_or(0),
                          .pp = spec.pp.value_or(0),
                          .tp = spec.tp.value_or(0),
                          .sp = spec.sp,
                          .zero = spec.zero,
                          .schedule = "",
                          .grid = std::nullopt,
                          .chunks = spec.chunks.value_or(0),
                          .split = spec.split,
                          .balance = spec.balance,
                          .recompute = spec.recompute,
                          .micro_batches = spec.micro_batches.value_or(0),
                          .bucket = spec.bucket,
                          .first_bucket = spec.first_bucket};
  if (is_schedule_file(spec.schedule)) {
    layout.grid = schedule::parse_csv(read_schedule(spec.schedule));
  } else if (!spec.schedule.empty()) {
    layout.schedule = schedule::schedule_by_name(spec.schedule).name;
  }
  return layout;
}

strategy::Loss make_loss(const JobSpec& spec, const model::Model& model) {
  return spec.loss.value_or(model.output_kind() == model::Output::scores ? strategy::Loss::cross_entropy
                                                                         : strategy::Loss::mean_squared_error);
}

}  // namespace

model::Model make_model(const JobSpec& spec) { return model::parse_model(spec.model).with_seed(spec.seed); }

cluster::Cluster imagine(const JobSpec& spec) {
  cluster::Blueprint blueprint = cluster::blueprint_by_name(spec.cluster);
  if (!blueprint.memory_known && !spec.memory) {
    throw usage_error(
        "the cluster {} does not say how much memory a device has: add memory = \"...GiB\" to [device], or --memory 80GiB",
        spec.cluster);
  }
  blueprint.device.memory = spec.memory.value_or(blueprint.device.memory);
  if (spec.link) {
    blueprint.wired = true;
    blueprint.wiring.port = blueprint.wiring.network = *spec.link;
    blueprint.wiring.bus = 0;
  }
  return blueprint.take(count_devices(spec, blueprint.in_node));
}

plan::Target imagined_target() {
  return {.joined = op::joint_relus(),
          .gradient_with_sgd = true,
          .narrow_gradient_with_sgd = {DType::bf16, DType::f16},
          .all_reduce_with_sgd = true};
}

std::size_t fold_beyond(const JobSpec& spec) {
  constexpr std::size_t few = 64;  // few enough to show each
  return spec.fold == Fold::automatic ? few : spec.fold == Fold::always ? 0 : std::numeric_limits<std::size_t>::max();
}

strategy::Request make_request(const JobSpec& spec, const model::Model& model, const cluster::Cluster& cluster,
                               plan::Target target) {
  return {.model = model,
          .cluster = cluster,
          .strategy = strategy_of(spec),
          .step = {.global_batch = spec.batch,
                   .loss = make_loss(spec, model),
                   .optimizer = make_optimizer(spec),
                   .precision = make_precision(spec, cluster.devices()[0]),
                   .loss_scale = make_loss_scale(spec),
                   .label_smoothing = spec.label_smoothing,
                   .wide_gradients = spec.gradients == GradientType::fp32},
          .layout = make_layout(spec),
          .target = std::move(target),
          .delays = spec.delays};
}

void require_rates(const JobSpec& spec, const strategy::Request& request, const cost::Software& software) {
  const cluster::Rates& rates = request.cluster.devices()[0].speed.rates;
  const strategy::Precision precision = request.step.precision;
  for (const DType type : {strategy::parameter_type(precision), strategy::dtype_of(precision)}) {
    if (!rates[cluster::rate_type(type).value()]) {
      throw usage_error(
          "the cluster {} gives no rate for {}, in which a step in {} computes: add {} = \"...FLOP/s\" to [device.rates]",
          spec.cluster, to_text(type), strategy::to_text(precision), to_text(type));
    }
  }
  if (software.fp8 && !rates[cluster::RateType::f8]) {
    throw usage_error(
        "the cluster {} gives no rate for f8, in which products of {} compute: add f8 = \"...FLOP/s\" to [device.rates]",
        spec.cluster, software.name);
  }
}

void require_sense(const JobSpec& spec, const strategy::Request& request) {
  if (request.step.wide_gradients && request.step.precision == strategy::Precision::fp64) {
    throw usage_error("--gradients fp32 is for 16-bit training: with --precision fp64 gradients are fp64");
  }
  if (request.step.label_smoothing > 0 && request.step.loss != strategy::Loss::cross_entropy) {
    throw usage_error("--label-smoothing spreads the targets of cross-entropy, but the loss is {}: add --loss cross-entropy",
                      strategy::to_text(request.step.loss));
  }
  if (spec.recompute == strategy::Recompute::light && !spec.software.empty()) {
    throw usage_error(
        "--recompute light is Baton's own, and {} recomputes whole layers or none: choose full or none, or leave out "
        "--software",
        spec.software);
  }
  if (spec.samples > 0 && spec.samples < request.step.global_batch) {
    throw usage_error("--samples is {}, but a batch alone takes {}", spec.samples, request.step.global_batch);
  }
}

}  // namespace baton::job
