#include "baton/training/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/cluster/gpu.h"
#include "baton/devices/devices.h"
#include "baton/exec/backend.h"
#include "baton/job/keys.h"
#include "baton/job/step_json.h"
#include "baton/training/training.h"
#include "baton/training/training_json.h"

namespace baton::training {

using job::Json;
namespace key = job::key;

namespace {

constexpr double allowed_across_devices = 1e-4;
constexpr double allowed_across_units = 0x1p-8;  // one rounding to bf16

std::int64_t whole_number(const Json& result, const char* key) {
  if (!result.contains(key) || !result[key].is_number_integer()) {
    throw usage_error("the result has no {}, so it cannot be repeated: it is not a result of train --json", key);
  }
  return result[key].get<std::int64_t>();
}

std::vector<double> losses_in(const Json& result) {
  if (!result.contains(key::losses.name) || !result[key::losses.name].is_array()) {
    throw usage_error("the result has no losses, so there is nothing to compare: it is not a result of train --json");
  }
  std::vector<double> losses;
  for (const Json& loss : result[key::losses.name]) {
    losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  }
  return losses;
}

JobSpec spec_in(const Json& result) {
  if (!result.contains(key::settings.name) || !result[key::settings.name].is_object()) {
    throw usage_error("the result has no settings, so it cannot be repeated: it is not a result of train --json");
  }
  JobSpec spec;
  for (const auto& [name, value] : result[key::settings.name].items()) {
    if (!value.is_string() && !value.is_number()) {
      throw usage_error("the setting {} of the result is neither a number nor a text", name);
    }
    set_field(spec, name, job::field_value(value));
  }
  return spec;
}

/// Refuses a result whose fields contradict each other.
void require_consistent(const Json& result, const JobSpec& spec, std::size_t losses) {
  if (!spec.cluster.empty()) {
    throw usage_error("the result was simulated on {}, and a simulation has no losses", spec.cluster);
  }
  if (whole_number(result, key::steps_before.name) != 0) {
    throw usage_error("the result continues a checkpoint after {} steps: only a run from its first step can be repeated",
                      whole_number(result, key::steps_before.name));
  }
  if (const std::int64_t steps = whole_number(result, key::steps.name); steps < 1 || static_cast<std::size_t>(steps) != losses) {
    throw usage_error("the result says that it has {} steps, but has {} losses", steps, losses);
  }
  if (whole_number(result, key::seed.name) != spec.seed) {
    throw usage_error("the result says that its seed is {}, and its settings say {}", whole_number(result, key::seed.name),
                      spec.seed);
  }
}

/// Refuses a result whose job differs from the one that its settings give.
void require_the_same_job(const Json& result, const Training& run) {
  const Json ours = result_json(run, "");
  for (const char* key : {key::model.name, key::parameters.name, key::strategy.name, key::loss.name, key::optimizer.name,
                          key::precision.name, key::global_batch.name}) {
    if (result.contains(key) && result[key] != ours[key]) {
      throw usage_error("the result says that its {} is {}, and its settings give {}", key, result[key].dump(), ours[key].dump());
    }
  }
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// The unit that the result says computed its 16-bit type; empty if it names none.
std::string unit_in(const Json& result) {
  if (!result.contains(key::arithmetic.name)) {
    return "";
  }
  const Json& unit = result[key::arithmetic.name];
  if (!unit.is_string()) {
    throw usage_error("the {} of the result is not a text", key::arithmetic.name);
  }
  return unit.get<std::string>();
}

/// Says why bits may differ though both were computed on cores: exactly one of the two computed bf16 by tiles, those of AMX or of
/// their model. Otherwise empty. `ours` is the unit here, empty if it does not affect bits.
std::string why_units_differ(const Json& result, const std::string& ours) {
  std::string theirs = unit_in(result);
  if (ours.empty()) {
    if (!theirs.empty()) {
      throw usage_error("the result says that its {} is {}, and with its settings no unit affects its bits", key::arithmetic.name,
                        Json(theirs).dump());
    }
    return "";
  }
  if (!result.contains(key::arithmetic.name)) {
    theirs = exec::bf16_by_emulation;  // there was nothing else when results did not name it
  }
  if (theirs != exec::bf16_by_emulation && theirs != exec::bf16_by_amx && theirs != exec::bf16_by_portable) {
    throw usage_error("the result says that its {} is {}, and bf16 on cores is computed by {}, {} or {}", key::arithmetic.name,
                      Json(theirs).dump(), exec::bf16_by_amx, exec::bf16_by_portable, exec::bf16_by_emulation);
  }
  return exec::gives_bits_of(theirs, ours) ? ""
                                           : fmt::format("it was computed by {}, and here bf16 is computed by {}", theirs, ours);
}

/// Returns an empty list if there are none, or if this program cannot use them.
std::vector<cluster::Gpu> gpus_here() {
  try {
    return devices::find_gpus();
  } catch (const Error&) {
    return {};
  }
}

/// Chooses the devices for the repetition: as many, in one process. Explains why bits may differ, if they may.
std::string choose_devices(const Json& result, JobSpec& spec) {
  const std::size_t devices = result.contains(key::device_list.name) && result[key::device_list.name].is_array()
                                  ? result[key::device_list.name].size()
                                  : 0;
  const bool ranks = result.contains(key::ranks.name) && result[key::ranks.name].is_array() && result[key::ranks.name].size() > 1;
  if (!cluster::gpus_of(spec.devices.names())) {
    spec.devices = ranks && devices > 0 ? job::DeviceList::cpus(devices) : spec.devices;
    return "";
  }
  const std::string theirs = result.contains(key::gpu.name) && result[key::gpu.name].is_string()
                                 ? result[key::gpu.name].get<std::string>()
                                 : "a GPU";
  const std::vector<cluster::Gpu> gpus = gpus_here();
  if (gpus.empty()) {
    spec.devices = job::DeviceList::cpus(std::max<std::size_t>(devices, 1));
    spec.backend.clear();
    return fmt::format("it was computed on {}, and here there are CPUs only", theirs);
  }
  return gpus[0].name == theirs ? "" : fmt::format("it was computed on {}, and here is {}", theirs, gpus[0].name);
}

}  // namespace

std::string Recomputed::sentence() const {
  const std::string of = steps == 1 ? "the loss of its step" : fmt::format("the losses of all {} steps", steps);
  if (differing == 0) {
    return fmt::format("Yes: {} are the same bit by bit when the training is repeated.", of);
  }
  const std::string by = fmt::format("{} of {} losses have other bits, from step {} on, by at most {:.2g} of their size", differing,
                                     steps, first + 1, worst);
  if (allowed == 0) {
    return fmt::format("No: {} when the training is repeated, and they should be the same bit by bit.", by);
  }
  return fmt::format("{}: {}; {} {:g} is allowed, because {}.", agrees() ? "Yes" : "No", by, agrees() ? "up to" : "only", allowed,
                     why_allowed);
}

Recomputed recompute(const Json& result, const cluster::Machine& machine,
                     const std::function<bool(std::int64_t, std::int64_t)>& go_on) {
  if (!result.is_object()) {
    throw usage_error("this is not a result of train --json");
  }
  const std::vector<double> claimed = losses_in(result);
  JobSpec spec = spec_in(result);
  require_consistent(result, spec, claimed.size());
  Recomputed compared{.steps = static_cast<std::int64_t>(claimed.size())};
  const bool on_gpus = cluster::gpus_of(spec.devices.names()).has_value();
  compared.why_allowed = choose_devices(result, spec);
  compared.allowed = compared.why_allowed.empty() ? 0 : allowed_across_devices;
  Training run(spec, machine);
  if (const std::string why = why_units_differ(result, on_gpus ? "" : run.arithmetic()); !why.empty()) {
    compared.why_allowed = why;
    compared.allowed = allowed_across_units;
  }
  run.run(compared.steps, 0, [&](std::int64_t done, const exec::RunResult&) { return !go_on || go_on(done, compared.steps); });
  if (run.losses().size() < claimed.size()) {
    throw Stopped(
        fmt::format("interrupted after {} of {} steps, so that nothing is verified", run.losses().size(), claimed.size()));
  }
  require_the_same_job(result, run);
  for (std::size_t s = 0; s < claimed.size(); ++s) {
    const double ours = run.losses()[s];
    if (same_bits(claimed[s], ours)) {
      continue;
    }
    compared.first = compared.differing++ == 0 ? static_cast<std::int64_t>(s) : compared.first;
    const double size = std::max(std::abs(ours), std::abs(claimed[s]));
    const double difference = std::abs(claimed[s] - ours) / size;
    compared.worst = std::max(compared.worst, std::isfinite(difference) ? difference : 1.0);
  }
  return compared;
}

}  // namespace baton::training
