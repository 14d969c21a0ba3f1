#include "baton/job/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/model/zoo.h"
#include "baton/op/traits.h"
#include "baton/plan/target.h"
#include "baton/schedule/schedule.h"
#include "baton/schedule/text.h"

namespace baton::job {
namespace {

/// The number of devices: `8`, or `gpu:8` in the form of this machine's devices; `cpu` alone means all devices of one node.
std::int64_t parse_count(const JobWords& words, std::int64_t in_node) {
  const std::string_view text = words.devices;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos && canonical(text) == JobWords{}.devices) {
    return std::max<std::int64_t>(in_node, 1);
  }
  return parse_integer(text.substr(colon == std::string_view::npos ? 0 : colon + 1),
                       fmt::format("--devices, with --cluster {} the number of its devices,", words.cluster), 1, 1 << 20);
}

Bytes parse_megabytes(const std::string& text, std::string_view flag) {
  return Bytes(static_cast<std::int64_t>(parse_number(text, flag, 0, 1e6) * 1048576.0));
}

op::Optimizer make_optimizer(const JobWords& words) {
  op::Optimizer optimizer = op::optimizer_by_name(words.optimizer);
  const auto set = [&](const std::string& text, std::string_view flag, double high, std::string_view field) {
    if (text.empty()) {
      return;
    }
    const double value = parse_number(text, flag, 0, high);
    bool known = false;
    op::attributes(optimizer, [&](std::string_view name, auto& setting) {
      if constexpr (std::is_same_v<std::decay_t<decltype(setting)>, double>) {
        if (name == field) {
          setting = value;
          known = true;
        }
      }
    });
    if (!known) {
      throw usage_error("optimizer {} has no {}", words.optimizer, flag);
    }
  };
  set(words.lr, "--lr", 1e6, "rate");
  set(words.momentum, "--momentum", 1, "momentum");
  set(words.weight_decay, "--weight-decay", 1e6, "weight_decay");
  set(words.clip, "--clip", 1e9, "clip");
  std::visit(
      [&](auto& settings) {
        settings.decay_matrices = index_of_name(decay_names(), words.decay, "--decay") == 1;
        settings.schedule = words.lr_schedule.empty() ? op::RateSchedule{} : op::parse_schedule(words.lr_schedule);
      },
      optimizer);
  return optimizer;
}

std::string read_schedule(const std::string& path) {
  constexpr Bytes most(std::int64_t{4} << 20);
  if (!std::filesystem::exists(path)) {
    throw usage_error("the schedule {} cannot be read: give a file, or a name: {}", path, either(schedule_names()));
  }
  return read_file(path, "the schedule " + path, most);
}

/// The name of the strategy; a layout without a name is a product.
std::string strategy_of(const JobWords& words) {
  if (!words.strategy.empty()) {
    return strategy::strategy_by_name(words.strategy).name;
  }
  const bool layout = !words.dp.empty() || !words.pp.empty() || !words.tp.empty() || !words.zero.empty() || !words.schedule.empty();
  return layout ? "product" : "single";
}

strategy::Precision make_precision(const JobWords& words, const cluster::Device& device) {
  const strategy::Precision precision = strategy::precision_by_name(words.precision);
  if (precision == strategy::Precision::tf32 && !device.gpu && !device.speed.rates.contains("tf32")) {
    throw usage_error("tf32 is how the matrix units of a GPU read float32 operands, and {} has none: choose another --precision",
                      device.name);
  }
  return precision;
}

std::optional<strategy::LossScale> make_loss_scale(const JobWords& words, strategy::Precision precision) {
  const std::int64_t growth = parse_integer(words.loss_scale_growth, "--loss-scale-growth", 1, 1 << 24);
  const std::string wanted = canonical(words.loss_scale);
  if (wanted == "none" || (wanted.empty() && precision != strategy::Precision::fp16)) {
    return std::nullopt;
  }
  if (wanted.empty() || wanted == "dynamic") {
    return strategy::LossScale{.growth_interval = growth};
  }
  try {
    return strategy::LossScale{.initial = parse_number(words.loss_scale, "--loss-scale", 1e-30, 1e30), .dynamic = false};
  } catch (const Error&) {
    throw usage_error("--loss-scale is '{}', but must be none, dynamic or a number from 1e-30 to 1e30", words.loss_scale);
  }
}

strategy::Layout make_layout(const JobWords& words) {
  strategy::Layout layout;
  layout.bucket = parse_megabytes(words.bucket_mb, "--bucket-mb");
  layout.first_bucket = parse_megabytes(words.first_bucket_mb, "--first-bucket-mb");
  const auto count = [](const std::string& text, std::string_view flag, std::int64_t high) {
    return text.empty() ? 0 : parse_integer(text, flag, 1, high);
  };
  layout.micro_batches = count(words.micro_batches, "--micro-batches", 1 << 20);
  layout.dp = count(words.dp, "--dp", 1 << 20);
  layout.pp = count(words.pp, "--pp", 1 << 20);
  layout.tp = count(words.tp, "--tp", 1 << 20);
  layout.sp = index_of_name(sp_names(), words.sp, "--sp") == 1;
  layout.chunks = count(words.chunks, "--chunks", 1 << 10);
  if (!words.zero.empty()) {
    layout.zero = parse_integer(words.zero, "--zero", 0, 3);
  }
  layout.balance = strategy::balance_by_name(words.balance);
  layout.recompute = strategy::recompute_by_name(words.recompute);
  if (is_schedule_file(words.schedule)) {
    layout.grid = schedule::parse_csv(read_schedule(words.schedule));
  } else if (!words.schedule.empty()) {
    layout.schedule = schedule::schedule_by_name(words.schedule).name;
  }
  if (!words.split.empty()) {
    for (const std::string_view part : split(words.split, ',')) {
      layout.split.push_back(parse_integer(part, "a stage of --split", 1, 1 << 20));
    }
  }
  return layout;
}

std::vector<strategy::DelayRequest> make_delays(const std::string& text) {
  std::vector<strategy::DelayRequest> delays;
  if (!text.empty()) {
    for (const std::string_view delay : split(text, ';')) {
      delays.push_back(strategy::parse_delay(delay));
    }
  }
  return delays;
}

strategy::Loss make_loss(const JobWords& words, const model::Model& model) {
  if (!words.loss.empty()) {
    return strategy::loss_by_name(words.loss);
  }
  return model.output_kind() == model::Output::scores ? strategy::Loss::cross_entropy : strategy::Loss::mean_squared_error;
}

}  // namespace

std::uint64_t seed_of(const JobWords& words) {
  return static_cast<std::uint64_t>(parse_integer(words.seed, "--seed", 0, std::numeric_limits<std::int64_t>::max()));
}

model::Model make_model(const JobWords& words) {
  return model::parse_model(words.model).with_seed(static_cast<std::int64_t>(seed_of(words)));
}

std::optional<Bytes> memory_of(const JobWords& words) {
  return words.memory.empty() ? std::nullopt : std::optional(parse_bytes(words.memory, "--memory"));
}

std::optional<cluster::Link> link_of(const JobWords& words) {
  return words.link.empty() ? std::nullopt : std::optional(cluster::parse_link(words.link));
}

cluster::Cluster imagine(const JobWords& words) {
  const std::optional<Bytes> memory = memory_of(words);
  const std::optional<cluster::Link> link = link_of(words);
  cluster::Blueprint blueprint = cluster::blueprint_by_name(words.cluster);
  blueprint.device.memory = memory.value_or(blueprint.device.memory);
  if (link) {
    blueprint.wired = true;
    blueprint.wiring.port = blueprint.wiring.network = *link;
    blueprint.wiring.bus = 0;
  }
  return blueprint.take(parse_count(words, blueprint.in_node));
}

plan::Target imagined_target() {
  return {.joined = op::joint_ops(), .gradient_with_sgd = true, .narrow_gradient_with_sgd = true, .all_reduce_with_sgd = true};
}

std::size_t fold_beyond(const JobWords& words) {
  constexpr std::size_t few = 64;  // few enough to show each
  const std::string word = canonical(words.fold);
  if (const std::vector<std::string> names = fold_names(); std::find(names.begin(), names.end(), word) == names.end()) {
    throw usage_error("--fold is '{}': choose {}", words.fold, either(names));
  }
  return word == "auto" ? few : word == "always" ? 0 : std::numeric_limits<std::size_t>::max();
}

std::int64_t samples_of(const JobWords& words) {
  return parse_integer(words.samples, "--samples", 0, std::numeric_limits<std::int64_t>::max());
}

strategy::Request make_request(const JobWords& words, const model::Model& model, const cluster::Cluster& cluster,
                               plan::Target target) {
  return {.model = model,
          .cluster = cluster,
          .strategy = strategy_of(words),
          .step = {.global_batch = parse_integer(words.batch, "--batch", 1, 1 << 30),
                   .loss = make_loss(words, model),
                   .optimizer = make_optimizer(words),
                   .precision = make_precision(words, cluster.devices()[0]),
                   .loss_scale = make_loss_scale(words, make_precision(words, cluster.devices()[0])),
                   .label_smoothing = parse_number(words.label_smoothing, "--label-smoothing", 0, 1),
                   .wide_gradients = index_of_name(gradient_names(), words.gradients, "--gradients") == 1},
          .layout = make_layout(words),
          .target = std::move(target),
          .delays = make_delays(words.delay)};
}

void require_rates(const JobWords& words, const strategy::Request& request, const cost::Software& software) {
  const auto& rates = request.cluster.devices()[0].speed.rates;
  const strategy::Precision precision = request.step.precision;
  for (const DType type : {strategy::parameter_type(precision), strategy::dtype_of(precision)}) {
    if (!rates.contains(to_text(type))) {
      throw usage_error(
          "the cluster {} gives no rate for {}, in which a step in {} computes: add {} = \"...flop/s\" to [device.rates]",
          words.cluster, to_text(type), strategy::to_text(precision), to_text(type));
    }
  }
  if (software.fp8 && !rates.contains("f8")) {
    throw usage_error(
        "the cluster {} gives no rate for f8, in which products of {} compute: add f8 = \"...flop/s\" to [device.rates]",
        words.cluster, software.name);
  }
}

void require_sense(const JobWords& words, const strategy::Request& request) {
  if (request.step.wide_gradients && request.step.precision == strategy::Precision::fp64) {
    throw usage_error("--gradients fp32 is for 16-bit training: with --precision fp64 gradients are fp64");
  }
  if (request.step.label_smoothing > 0 && request.step.loss != strategy::Loss::cross_entropy) {
    throw usage_error("--label-smoothing spreads the targets of cross-entropy, but the loss is {}: add --loss cross-entropy",
                      strategy::to_text(request.step.loss));
  }
  if (const std::int64_t samples = samples_of(words); samples > 0 && samples < request.step.global_batch) {
    throw usage_error("--samples is {}, but a batch alone takes {}", samples, request.step.global_batch);
  }
}

}  // namespace baton::job
