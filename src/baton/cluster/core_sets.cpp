#include "baton/cluster/core_sets.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::cluster {
namespace {

constexpr std::string_view accepted_devices = "cpu, cpu:4 (four devices), cpu:0-3,4-7 (by cores), or cuda (see --help)";

/// "3", "0-3", "0-1+4".
std::vector<CoreRange> parse_ranges(std::string_view text) {
  std::vector<CoreRange> ranges;
  for (const std::string_view range : split(text, '+')) {
    const std::vector<std::string_view> ends = split(range, '-');
    if (ends.size() > 2 || ends.front().empty() || ends.back().empty()) {
      throw usage_error("'{}' is not a range of cores: write {}", range, accepted_devices);
    }
    const CoreRange cores{static_cast<int>(parse_integer(ends.front(), "a core", 0, 1 << 20)),
                          static_cast<int>(parse_integer(ends.back(), "a core", 0, 1 << 20))};
    if (cores.last < cores.first) {
      throw usage_error("the range of cores '{}' runs backwards", range);
    }
    ranges.push_back(cores);
  }
  return ranges;
}

}  // namespace

CpuNames parse_cpu_names(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string kind = canonical(text.substr(0, colon));
  if (kind != "cpu") {
    throw usage_error("unknown device '{}'{}: write {}", text, kind == "gpu" || kind == "gpus" ? " (GPUs are called cuda)" : "",
                      accepted_devices);
  }
  CpuNames names;
  if (colon != std::string_view::npos) {
    const std::string_view list = text.substr(colon + 1);
    if (list.find_first_of("-,+") == std::string_view::npos) {
      names.count = static_cast<std::size_t>(parse_integer(list, "the number of devices", 1, most_cpu_devices));
    } else {
      for (const std::string_view range : split(list, ',')) {
        names.ranges.push_back(parse_ranges(range));
      }
    }
  }
  return names;
}

std::string to_text(const CpuNames& names) {
  if (names.ranges.empty()) {
    return fmt::format("cpu:{}", names.count);
  }
  std::string text = "cpu";
  for (std::size_t d = 0; d < names.ranges.size(); ++d) {
    text += d == 0 ? ":" : ",";
    for (std::size_t r = 0; r < names.ranges[d].size(); ++r) {
      text += fmt::format("{}{}-{}", r == 0 ? "" : "+", names.ranges[d][r].first, names.ranges[d][r].last);
    }
  }
  return text;
}

std::string to_text(const CoreSets& sets) {
  CpuNames names;
  for (const std::vector<int>& cores : sets.devices) {
    names.ranges.emplace_back();
    for (const int core : cores) {
      names.ranges.back().push_back({core, core});
    }
  }
  return to_text(names);
}

}  // namespace baton::cluster
