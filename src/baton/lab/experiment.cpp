#include "baton/lab/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/devices/devices.h"

namespace baton::lab {
namespace {

/// A GPU each where there are enough; otherwise equal parts of the one that is named, or of the first.
cluster::GpuNames gpus_for(cluster::GpuNames names, std::int64_t count, std::int64_t most) {
  const std::string named = to_text(names);
  most = std::max(count, most);
  if (names.parts > 0) {
    if (const int used = std::exchange(names.used, 0); count > (used > 0 ? used : names.parts)) {
      throw usage_error("--devices {} has too few parts, this takes {}{}", named, count,
                        used > 0 ? fmt::format(": write {} without a count", to_text(names)) : "");
    }
    names.used = static_cast<int>(count);
    return names;
  }
  if (names.numbers.size() > 1) {
    if (static_cast<std::int64_t>(names.numbers.size()) < count) {
      throw usage_error("--devices {} names {} GPUs, but this takes {}: name as many, or parts of one as in cuda:0/{}", named,
                        names.numbers.size(), count, most);
    }
    names.numbers.resize(static_cast<std::size_t>(count));
    return names;
  }
  if (names.numbers.empty() && static_cast<std::int64_t>(devices::find_gpus().size()) >= most) {
    names.numbers.resize(static_cast<std::size_t>(count));
    std::iota(names.numbers.begin(), names.numbers.end(), 0);
    return names;
  }
  if (names.numbers.empty()) {
    names.numbers = {0};
  }
  names.parts = static_cast<int>(most);
  names.used = static_cast<int>(count);
  return names;
}

}  // namespace

std::string axis_name(std::string_view text) {
  std::string name = canonical(text);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string_view part_title(std::string_view part) {
  return part == "A" ? "Data parallelism" : part == "B" ? "Splitting the model" : part == "C" ? "Devices" : "";
}

const Experiment& experiment_by_id(std::string_view id) {
  const std::string wanted = canonical(id);
  std::vector<std::string> ids;
  for (const Experiment& experiment : experiments()) {
    if (experiment.id == wanted) {
      return experiment;
    }
    ids.push_back(experiment.id);
  }
  throw unknown_name("experiment", id, ids);
}

std::string_view to_text(Preset preset) { return preset == Preset::full ? "full" : "quick"; }

Preset preset_by_name(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset preset : {Preset::quick, Preset::full}) {
    if (canonical(name) == to_text(preset)) {
      return preset;
    }
    names.emplace_back(to_text(preset));
  }
  throw unknown_name("preset", name, names);
}

std::string_view to_text(Format format) {
  constexpr std::array<std::string_view, 9> names{"text",    "integer", "number", "time", "bytes",
                                                  "percent", "ratio",   "rate",   "flops"};
  return names[static_cast<std::size_t>(format)];
}

std::string to_text(const DeviceType& type) { return device_list(type).text(); }

std::optional<DeviceType> find_device_type(std::string_view text) {
  if (cluster::names_gpus(text)) {
    return DeviceType{cluster::parse_gpu_names(text)};
  }
  return canonical(text) == to_text(DeviceType{}) ? std::optional(DeviceType{}) : std::nullopt;
}

DeviceType parse_device_type(std::string_view text) {
  if (const std::optional<DeviceType> type = find_device_type(text)) {
    return *type;
  }
  throw usage_error(
      "--devices is '{}', but the laboratory takes only the type, cpu or cuda: each experiment sets the number of devices", text);
}

job::DeviceList device_list(const DeviceType& type) { return type.gpus ? job::DeviceList(*type.gpus) : job::DeviceList(); }

job::DeviceList devices_for(const Settings& settings, std::int64_t count, std::int64_t most) {
  if (!settings.cluster.empty() && !job::is_this_machine(settings.cluster)) {
    return count;
  }
  if (settings.devices.gpus) {
    return gpus_for(*settings.devices.gpus, count, settings.most_devices > 0 ? settings.most_devices : most);
  }
  const std::vector<int>& cores = settings.machine.cores;
  const auto each = std::max<std::size_t>(1, cores.size() / static_cast<std::size_t>(std::max(count, most)));
  cluster::CoreSets sets;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t first = i * each % cores.size();
    sets.devices.emplace_back(cores.begin() + static_cast<std::ptrdiff_t>(first),
                              cores.begin() + static_cast<std::ptrdiff_t>(std::min(first + each, cores.size())));
  }
  return sets;
}

std::vector<Record> points_of(const Plot& plot, const std::vector<Record>& rows) { return plot.points ? plot.points(rows) : rows; }

}  // namespace baton::lab
