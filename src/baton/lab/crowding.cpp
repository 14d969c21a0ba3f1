#include "baton/lab/crowding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "baton/base/error.h"
#include "baton/exec/executor.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"
#include "baton/strategy/passes.h"
#include "baton/trace/analysis.h"

namespace baton::lab {
namespace {

constexpr std::int64_t products_a_step = 2;
constexpr int rounds = 2;
/// Long enough for a power cap to take hold.
constexpr Nanoseconds time_for_a_round(100'000'000);
/// Below this, what parts take from each other is lost in how times vary.
constexpr double hardly = 1.03;

/// Products of a matrix with itself, one after the other, on each of the devices.
plan::Plan products_on(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices, const exec::Backend& backend,
                       strategy::Precision precision, std::int64_t size) {
  plan::Draft draft;
  draft.title = fmt::format("products of {0}x{0} on {1} of {2} devices", size, devices.size(), cluster.size());
  for (const cluster::Device& device : cluster.devices()) {
    draft.devices.push_back(device.name);
  }
  const auto matrix = [&](DeviceId device, plan::Role role, plan::Content content, std::string label) {
    return draft.add({.device = device,
                      .role = role,
                      .dtype = strategy::dtype_of(precision),
                      .persistent = true,
                      .shape = {size, size},
                      .content = std::move(content),
                      .label = std::move(label)});
  };
  for (const DeviceId device : devices) {
    const BufferId factor = matrix(device, plan::Role::input, plan::BatchRows{0, size}, "A");
    for (std::int64_t i = 0; i < products_a_step; ++i) {
      const BufferId product = matrix(device, plan::Role::activation, {}, "A^2");
      draft.tasks.push_back({.action = plan::Compute{op::MatrixProduct{}},
                             .device = device,
                             .reads = {factor, factor},
                             .writes = {product},
                             .after = {}});
    }
  }
  if (precision == strategy::Precision::tf32) {
    draft = strategy::use_tf32(std::move(draft));
  }
  return plan::finish(strategy::set_workspaces(std::move(draft), backend.target(), cluster));
}

/// Times of steps, taken in rounds.
class Timed {
 public:
  Timed(plan::Plan plan, const cluster::Cluster& cluster, const exec::Backend& backend)
      : plan_(std::move(plan)), executor_(plan_, cluster, backend) {
    const exec::RunResult first = executor_.run({.steps = 3, .warmup = 2});
    const std::int64_t one = std::max<std::int64_t>(1, first.step_times.back().count);
    steps_ = std::clamp<std::int64_t>(time_for_a_round.count / one, 3, 500);
  }

  void round() {
    const exec::RunResult result = executor_.run({.steps = steps_ + 1, .warmup = 1});
    times_.insert(times_.end(), result.step_times.begin() + 1, result.step_times.end());
  }
  Nanoseconds product() const { return Nanoseconds(trace::spread(times_).median.count / products_a_step); }

 private:
  plan::Plan plan_;
  exec::Executor executor_;
  std::int64_t steps_ = 0;
  std::vector<Nanoseconds> times_;
};

std::string sentence(std::int64_t parts, const std::string& what, double slowdown) {
  if (slowdown < hardly) {
    return fmt::format(
        "The {} parts of the GPU hardly slow each other down: {} takes {:.2f} times as long while all work as while the "
        "others rest.",
        parts, what, slowdown);
  }
  return fmt::format(
      "The {0} parts of the GPU share its memory and power: {1} takes {2:.2f} times as long while all work as while the "
      "others rest, so {0} parts do at most {3:.2f} times what one does alone.",
      parts, what, slowdown, static_cast<double>(parts) / slowdown);
}

}  // namespace

std::vector<DeviceId> parts_of_a_gpu(const cluster::Cluster& cluster) {
  std::vector<DeviceId> parts;
  const std::optional<cluster::GpuPart>& first = cluster.devices()[0].gpu;
  for (std::size_t d = 0; first && d < cluster.size(); ++d) {
    const std::optional<cluster::GpuPart>& gpu = cluster.devices()[d].gpu;
    if (gpu && gpu->unit == first->unit && gpu->ordinal == first->ordinal) {
      parts.push_back(DeviceId(d));
    }
  }
  return parts.size() < 2 ? std::vector<DeviceId>() : parts;
}

Crowding measure_crowding(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices, const exec::Backend& backend,
                          strategy::Precision precision, std::int64_t size) {
  check(devices.size() > 1, "{} devices do not crowd each other", devices.size());
  const cluster::Cluster bare(cluster.devices());
  Timed alone(products_on(bare, {devices[0]}, backend, precision, size), bare, backend);
  Timed beside(products_on(bare, devices, backend, precision, size), bare, backend);
  for (int i = 0; i < rounds; ++i) {
    alone.round();
    beside.round();
  }
  const std::optional<cluster::GpuPart>& gpu = bare.device(devices[0]).gpu;
  return {.parts = devices.size(),
          .multiprocessors = gpu ? gpu->multiprocessors : 0,
          .precision = std::string(strategy::to_text(precision)),
          .size = size,
          .alone = alone.product(),
          .beside = beside.product()};
}

std::optional<Crowding> crowding(const cluster::Cluster& cluster, const exec::Backend& backend, strategy::Precision precision) {
  const std::vector<DeviceId> parts = parts_of_a_gpu(cluster);
  if (parts.empty()) {
    return std::nullopt;
  }
  static std::mutex mutex;
  static std::map<std::string, std::optional<Crowding>> measured;  // by what it is measured of
  std::string which(strategy::to_text(precision));
  for (const DeviceId part : parts) {
    const cluster::GpuPart& gpu = *cluster.device(part).gpu;
    which += fmt::format(" {}:{}/{}", gpu.ordinal, gpu.part, gpu.of);
  }
  const std::lock_guard lock(mutex);
  const auto [found, added] = measured.try_emplace(which);
  if (added) {
    // A few milliseconds on a part, whether it has units for products of this kind or not.
    const std::int64_t size = precision == strategy::Precision::fp32 ? 2048 : 4096;
    try {
      found->second = measure_crowding(cluster, parts, backend, precision, size);
    } catch (const Error&) {
      // There is no room for it beside what is measured.
    }
  }
  return found->second;
}

Json to_json(const Crowding& crowding) {
  return {{"parts", crowding.parts},          {"multiprocessors", crowding.multiprocessors},
          {"precision", crowding.precision},  {"size", crowding.size},
          {"alone_ns", crowding.alone.count}, {"beside_ns", crowding.beside.count}};
}

std::vector<std::string> crowding_findings(const std::vector<Json>& rows) {
  struct Seen {
    Json first;
    std::vector<double> alone;
    std::vector<double> beside;
  };
  std::map<std::string, Seen> all;  // by what was measured: a run that was resumed may have measured it again
  std::vector<std::string> order;
  for (const Json& row : rows) {
    if (!row.contains("beside") || !row["beside"].is_object() || time_of(row["beside"], "alone_ns").count <= 0) {
      continue;
    }
    const Json& one = row["beside"];
    const std::string which = fmt::format("{} {} {} {}", text(one, "parts"), text(one, "multiprocessors"), text(one, "precision"),
                                          text(one, "size"));
    const auto [seen, added] = all.try_emplace(which);
    if (added) {
      seen->second.first = one;
      order.push_back(which);
    }
    seen->second.alone.push_back(static_cast<double>(time_of(one, "alone_ns").count));
    seen->second.beside.push_back(static_cast<double>(time_of(one, "beside_ns").count));
  }
  std::vector<std::string> sentences;
  for (const std::string& which : order) {
    const Seen& seen = all[which];
    const double alone = findings::median(seen.alone);
    const double beside = findings::median(seen.beside);
    const std::string what = fmt::format(
        "a product of {0}x{0} matrices in {1} on {2} multiprocessors ({3} alone, {4} beside the others)", text(seen.first, "size"),
        text(seen.first, "precision"), text(seen.first, "multiprocessors"),
        baton::to_text(Nanoseconds(static_cast<std::int64_t>(alone))),
        baton::to_text(Nanoseconds(static_cast<std::int64_t>(beside))));
    sentences.push_back(sentence(whole(seen.first, "parts", 2, 4096), what, beside / alone));
  }
  return sentences;
}

std::optional<std::string> calibrated_crowding(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::Times& alone,
                                               const cost::Times& beside) {
  const std::vector<DeviceId> parts = parts_of_a_gpu(cluster);
  double rested = 0;
  double crowded = 0;
  for (std::size_t t = 0; t < plan.tasks().size() && !parts.empty(); ++t) {
    const auto* compute = std::get_if<plan::Compute>(&plan.tasks()[t].action);
    if (compute == nullptr || !op::is_product(compute->op)) {
      continue;
    }
    const std::string key = cost::key_of(plan, TaskId(t), cluster);
    const auto one = alone.find(key);
    const auto other = beside.find(key);
    if (one != alone.end() && other != beside.end()) {
      rested += static_cast<double>(one->second.count);
      crowded += static_cast<double>(other->second.count);
    }
  }
  if (rested <= 0) {
    return std::nullopt;
  }
  return sentence(static_cast<std::int64_t>(parts.size()), "what the step multiplies on a part", crowded / rested);
}

}  // namespace baton::lab
