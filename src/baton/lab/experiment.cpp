#include "baton/lab/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/gpu.h"
#include "baton/cuda/cuda.h"

namespace baton::lab {
namespace {

/// A GPU each where there are enough; otherwise equal parts of the one that is named, or of the first.
std::string gpus_for(const std::string& devices, std::int64_t count, std::int64_t most) {
  const std::size_t colon = devices.find(':');
  const std::size_t slash = devices.find('/');
  most = std::max(count, most);
  if (slash != std::string::npos) {
    const std::size_t limit = devices.find(':', slash);
    if (limit == std::string::npos) {
      return fmt::format("{}:{}", devices, count);
    }
    if (parse_integer(std::string_view(devices).substr(limit + 1), "the number of parts that are used", 1, 1 << 20) < count) {
      throw usage_error("--devices {} has too few parts, this takes {}: write {} without a count", devices, count,
                        devices.substr(0, limit));
    }
    return fmt::format("{}:{}", devices.substr(0, limit), count);
  }
  if (devices.find(',') != std::string::npos) {
    std::vector<std::string_view> named = split(std::string_view(devices).substr(colon + 1), ',');
    if (static_cast<std::int64_t>(named.size()) < count) {
      throw usage_error("--devices {} names {} GPUs, but this takes {}: name as many, or parts of one as in cuda:0/{}", devices,
                        named.size(), count, most);
    }
    named.resize(static_cast<std::size_t>(count));
    return fmt::format("{}:{}", devices.substr(0, colon), fmt::join(named, ","));
  }
  if (colon == std::string::npos && static_cast<std::int64_t>(cuda::find_gpus().size()) >= most) {
    std::string text = devices;
    for (std::int64_t i = 0; i < count; ++i) {
      text += fmt::format("{}{}", i == 0 ? ":" : ",", i);
    }
    return text;
  }
  return fmt::format("{}/{}:{}", colon == std::string::npos ? devices + ":0" : devices, most, count);
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

std::string devices_for(const Settings& settings, std::int64_t count, std::int64_t most) {
  if (!settings.cluster.empty() && !job::is_this_machine(settings.cluster)) {
    return fmt::format("{}", count);
  }
  if (cluster::names_gpus(settings.devices)) {
    return gpus_for(settings.devices, count, settings.most_devices > 0 ? settings.most_devices : most);
  }
  const std::vector<int>& cores = settings.machine.cores;
  const auto each = std::max<std::size_t>(1, cores.size() / static_cast<std::size_t>(std::max(count, most)));
  std::string text = settings.devices + ":";
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const std::size_t first = i * each % cores.size();
    text += i == 0 ? "" : ",";
    for (std::size_t c = first; c < std::min(first + each, cores.size()); ++c) {
      text += fmt::format("{}{}-{}", c == first ? "" : "+", cores[c], cores[c]);
    }
  }
  return text;
}

std::vector<Record> points_of(const Plot& plot, const std::vector<Record>& rows) { return plot.points ? plot.points(rows) : rows; }

}  // namespace baton::lab
