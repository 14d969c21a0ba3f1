#include "baton/lab/phrases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/units.h"
#include "baton/lab/instances.h"
#include "baton/lab/rows.h"
#include "baton/measure/other_processes.h"

namespace baton::lab {
namespace {

std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::clamp(std::round(value), -9e18, 9e18)); }

/// The values that the rows' `trained` has under a key, each once, in order.
std::vector<std::string> trained_values(const std::vector<Record>& rows, const std::string& key) {
  std::vector<std::string> values;
  for (const Record& row : rows) {
    const Record trained = row.value(key::trained, {});
    if (trained.find(key) != nullptr) {
      const std::string value = text(trained, key);
      if (std::find(values.begin(), values.end(), value) == values.end()) {
        values.push_back(value);
      }
    }
  }
  return values;
}

/// Places after the point that show this many significant figures.
int places_for(double value, int figures) {
  return value == 0 ? 0 : std::clamp(figures - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))), 0, 12);
}

}  // namespace

std::string devices_text(std::int64_t count) { return fmt::format("{} device{}", count, count == 1 ? "" : "s"); }

std::string device_name_text(const std::string& name, bool gpu) {
  const std::size_t colon = name.rfind(':');
  if (colon == std::string::npos || name.starts_with("cpu")) {
    return name;
  }
  return (gpu ? "GPU" : name.substr(0, colon)) + " " + name.substr(colon + 1);
}

std::string listing(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

std::string three_figures(double value) { return fmt::format("{:.{}f}", value, places_for(value, 3)); }

std::string signed_figures(double value) { return fmt::format("{:+.{}f}", value, places_for(value, 2)); }

std::string duration_text(double nanoseconds) {
  return (nanoseconds < 0 ? "-" : "") + to_text(Nanoseconds(rounded(std::abs(nanoseconds))));
}

std::string bytes_text(double bytes) { return to_text(Bytes(rounded(bytes))); }

std::string flops_text(double flops) { return to_text(Flops(rounded(flops))); }

std::string replaced(std::string text, std::string_view old, std::string_view put) {
  for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + put.size())) {
    text.replace(at, old.size(), put);
  }
  return text;
}

std::string origin_mark(const std::vector<Record>& rows) {
  const bool simulated = std::any_of(rows.begin(), rows.end(),
                                     [](const Record& row) { return row.value(key::origin, "measured") == "simulated"; });
  const bool shared = with_own_cores(rows).size() != rows.size();
  return simulated ? (shared ? " (simulated, devices shared cores)" : " (simulated)") : (shared ? " (devices shared cores)" : "");
}

std::string simulated_once(std::string answer) {
  constexpr std::string_view mark = " (simulated)";
  const std::size_t first = answer.find(mark);
  for (std::size_t at = first; at != std::string::npos && (at = answer.find(mark, at + 1)) != std::string::npos;) {
    answer.erase(at, mark.size());
    --at;
  }
  return answer;
}

std::string trained_line(const std::vector<Record>& rows) {
  std::string line;
  const auto add = [&](const std::string& key, std::string_view before, std::string_view after) {
    if (const std::vector<std::string> values = trained_values(rows, key); !values.empty()) {
      line += fmt::format("{}{}{}{}", line.empty() ? "" : ", ", before, listing(values), after);
    }
  };
  add(key::model, "", "");
  add(key::batch, "global batch ", "");
  add(key::optimizer, "", "");
  add(key::loss, "loss ", "");
  add(key::precision, "", "");
  add(key::seed, "seed ", "");
  add(key::device, "each device ", "");
  return line;
}

std::string few_instances_finding(const std::vector<Record>& rows) {
  std::size_t all = 0;
  std::size_t few = 0;
  for (const Record& row : rows) {
    if (!is_simulated(row) && row.has(key::time_per_step_ns) && row.value(key::stopped, "") != "once") {
      ++all;
      few += row.value(key::instances, static_cast<std::int64_t>(usual_instances)) < static_cast<std::int64_t>(least_instances) ? 1
                                                                                                                                : 0;
    }
  }
  return few == 0 ? ""
                  : fmt::format(
                        "{} of {} points {} measured in fewer than {} instances, which says little of the noise: --resume measures "
                        "more.",
                        few, all, few == 1 ? "was" : "were", least_instances);
}

std::string other_processes_finding(const std::vector<Record>& rows) {
  std::size_t disturbed = 0;
  double most = 0;
  for (const Record& row : rows) {
    const double share = row.value(key::others_share, 0.0);
    disturbed += measure::disturbs(share) ? 1 : 0;
    most = std::max(most, share);
  }
  return disturbed == 0 ? ""
                        : fmt::format(
                              "This machine was busy: while {} of {} rows were measured, other processes used up to {} of its "
                              "cores. The measured times are therefore too long, and ratios between rows may be off; measure again "
                              "when it is quiet.",
                              disturbed, rows.size(), percent(most));
}

}  // namespace baton::lab
