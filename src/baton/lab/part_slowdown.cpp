#include "baton/lab/part_slowdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/measure/calibration.h"
#include "baton/sim/simulate.h"

namespace baton::lab {
namespace {

/// Below this, the slowdown by other parts is lost in the variation of times.
constexpr double hardly = 1.03;

double slowdown(const Record& beside) {
  return static_cast<double>(time_of(beside, key::beside_ns).count) /
         static_cast<double>(std::max<std::int64_t>(1, time_of(beside, key::alone_ns).count));
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

std::optional<PartSlowdown> part_slowdown_of(const plan::Plan& plan, const cost::TaskKeys& keys, DeviceId device,
                                             const cost::Times& alone, const cost::Times& beside) {
  PartSlowdown sum;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    if (task.device != device || plan::meeting_of(task).valid() || std::holds_alternative<plan::Delay>(task.action)) {
      continue;
    }
    const std::string& key = keys[TaskId(t)];
    const auto one = alone.find(key);
    const auto other = beside.find(key);
    if (one != alone.end() && other != beside.end()) {
      sum.alone += one->second;
      sum.beside += other->second;
    }
  }
  return sum.alone.count > 0 ? std::optional(sum) : std::nullopt;
}

std::optional<PartSlowdown> part_slowdown(const plan::Plan& plan, const training::Job& job) {
  const cluster::Cluster& cluster = job.cluster();
  const std::vector<DeviceId> parts = parts_of_a_gpu(cluster);
  if (parts.empty()) {
    return std::nullopt;
  }
  try {
    measure::Calibration calibration(job.machine(), cluster, job.backend());
    const cost::TaskKeys keys = calibration.keys(plan, cluster);
    calibration.measure(plan, keys, cluster, job.backend());
    const cost::Times& alone = calibration.times(1);
    std::optional<PartSlowdown> found = part_slowdown_of(plan, keys, parts[0], alone, calibration.times(cluster.size()));
    if (found) {
      found->parts = parts.size();
      found->multiprocessors = cluster.device(parts[0]).gpu->multiprocessors;
      found->separate = sim::simulate(plan, cluster, cost::Measured(alone, keys, calibration.where())).duration;
    }
    return found;
  } catch (const Error&) {
    return std::nullopt;  // there is no room for it in addition to what is measured
  }
}

Record to_record(const PartSlowdown& part_slowdown) {
  return {key::parts(static_cast<std::int64_t>(part_slowdown.parts)), key::multiprocessors(part_slowdown.multiprocessors),
          key::alone_ns(part_slowdown.alone), key::beside_ns(part_slowdown.beside), key::separate_ns(part_slowdown.separate)};
}

std::vector<std::string> part_slowdown_findings(const std::vector<Record>& rows) {
  const Record* worst = nullptr;
  double least = 0;
  for (const Record& row : rows) {
    if (const Record beside = row.value(key::beside, {}); !beside.empty() && time_of(beside, key::alone_ns).count > 0) {
      const double here = slowdown(beside);
      least = worst == nullptr ? here : std::min(least, here);
      worst = worst == nullptr || here > slowdown((*worst)[key::beside]) ? &row : worst;
    }
  }
  if (worst == nullptr) {
    return {};
  }
  const Record beside = (*worst)[key::beside];
  const double most = slowdown(beside);
  const std::string parts = fmt::format("{}", beside[key::parts]);
  if (most < hardly) {
    return {fmt::format(
        "The parts of the GPU hardly slow each other down here: with all {} parts busy, the tasks of these steps take at "
        "most {} times as long as alone.",
        parts, ratio_text(most))};
  }
  const double tasks = number(beside, key::alone_ns);
  return {
      fmt::format("Parts of a GPU are not separate GPUs, since they share its memory and power. With all {} parts busy, the tasks "
                  "of these steps "
                  "take {} times as long as alone. Worst case: {} instead of {}. That step takes {}; on separate GPUs of the "
                  "parts' size it would "
                  "take {} (simulated).",
                  parts, ratio_text(least) == ratio_text(most) ? ratio_text(most) : ratio_text(least) + " to " + ratio_text(most),
                  duration_text(number(beside, key::beside_ns)), duration_text(tasks), to_text(time_of(*worst)),
                  to_text(time_of(beside, key::separate_ns)))};
}

std::optional<std::string> calibrated_part_slowdown(const plan::Plan& plan, const cluster::Cluster& cluster,
                                                    const cost::TaskKeys& keys, const cost::Times& alone,
                                                    const cost::Times& beside) {
  const std::vector<DeviceId> parts = parts_of_a_gpu(cluster);
  const std::optional<PartSlowdown> found = parts.empty() ? std::nullopt : part_slowdown_of(plan, keys, parts[0], alone, beside);
  if (!found) {
    return std::nullopt;
  }
  const double ratio = static_cast<double>(found->beside.count) / static_cast<double>(found->alone.count);
  return fmt::format(
      "With all {0} parts of the GPU busy, the computation of a step on one of them takes {1} times as long as alone{2}.",
      parts.size(), ratio_text(ratio),
      ratio < hardly ? ": they hardly slow each other down"
                     : fmt::format(", so {} parts do at most {} times what one does alone", parts.size(),
                                   ratio_text(static_cast<double>(parts.size()) / ratio)));
}

}  // namespace baton::lab
