#include "compare_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/units.h"
#include "baton/lab/json.h"
#include "baton/report/table.h"

namespace baton::app {
namespace {

using lab::Json;
namespace key = lab::key;

constexpr Bytes largest_result(std::int64_t{256} << 20);
constexpr std::size_t most_values = 10'000'000;

Json read_result(const std::string& path) {
  Json result = lab::parse_json(read_file(path, "the result " + path, largest_result), most_values);
  const auto is_number = [&](const char* name) { return result.contains(name) && result[name].is_number(); };
  if (!result.is_object() || !is_number(key::time_per_step_ns.name) || !result.contains(key::losses.name) ||
      !result[key::losses.name].is_array()) {
    throw usage_error("{} is not a result of train --json or of its PyTorch twin", path);
  }
  return result;
}

std::string word(const Json& result, const char* name) {
  if (!result.contains(name) || result[name].is_null()) {
    return "-";
  }
  return result[name].is_string() ? result[name].get<std::string>() : result[name].dump();
}

double value(const Json& result, const char* name) {
  return result.contains(name) && result[name].is_number() ? result[name].get<double>() : std::nan("");
}

std::string ratio(double a, double b) { return std::isnan(a) || std::isnan(b) || a == 0 ? "" : fmt::format("{:.3f}", b / a); }

/// The fullest device.
double memory_of(const Json& result) {
  double most = std::nan("");
  if (result.contains(key::device_list.name) && result[key::device_list.name].is_array()) {
    for (const Json& device : result[key::device_list.name]) {
      most = device.is_object() ? std::fmax(most, value(device, key::peak_bytes.name)) : most;
    }
  }
  return most;
}

std::vector<double> losses_of(const Json& result) {
  std::vector<double> losses;
  for (const Json& loss : result[key::losses.name]) {
    losses.push_back(loss.is_number() ? loss.get<double>() : std::nan(""));
  }
  return losses;
}

}  // namespace

std::string compare_results(const std::string& first, const std::string& second) {
  const Json a = read_result(first);
  const Json b = read_result(second);
  report::Table table({"", "A", "B", "B/A"});
  for (const char* name : {key::model.name, key::strategy.name, key::backend.name, key::global_batch.name, key::optimizer.name,
                           key::precision.name, key::seed.name, key::steps_timed.name}) {
    table.row({name, word(a, name), word(b, name), word(a, name) == word(b, name) ? "" : "differs"});
  }
  const auto devices = [](const Json& result) {
    const bool listed = result.contains(key::device_list.name) && result[key::device_list.name].is_array();
    return listed ? std::to_string(result[key::device_list.name].size()) : "-";
  };
  table.row({"devices", devices(a), devices(b), devices(a) == devices(b) ? "" : "differs"});
  const auto row = [&](const char* heading, double x, double y, auto show) {
    table.row({heading, std::isnan(x) ? "-" : show(x), std::isnan(y) ? "-" : show(y), ratio(x, y)});
  };
  const auto time = [](double ns) { return to_text(Nanoseconds(std::llround(std::clamp(ns, -9e18, 9e18)))); };
  for (const auto& [heading, name] : {std::pair("time per step (median)", key::time_per_step_ns.name),
                                      {"its interval from", key::time_low_ns.name},
                                      {"to", key::time_high_ns.name},
                                      {"mean", key::mean_ns.name},
                                      {"standard deviation", key::std_ns.name},
                                      {"p5", key::p5_ns.name},
                                      {"p95", key::p95_ns.name}}) {
    row(heading, value(a, name), value(b, name), time);
  }
  row("samples/s", value(a, key::samples_per_s.name), value(b, key::samples_per_s.name),
      [](double rate) { return fmt::format("{:.0f}", rate); });
  row("memory of the fullest device", memory_of(a), memory_of(b),
      [](double bytes) { return to_text(Bytes(std::llround(std::clamp(bytes, -9e18, 9e18)))); });
  const std::vector<double> left = losses_of(a);
  const std::vector<double> right = losses_of(b);
  const auto loss = [](double at) { return fmt::format("{:.6g}", at); };
  if (!left.empty() && !right.empty()) {
    row("loss at the first step", left.front(), right.front(), loss);
    row("loss at the last step", left.back(), right.back(), loss);
  }
  std::string text = table.text();
  if (const std::size_t both = std::min(left.size(), right.size()); both > 0) {
    double most = 0;
    for (std::size_t i = 0; i < both; ++i) {
      most = std::fmax(most, std::abs(right[i] - left[i]) / std::fmax(std::abs(left[i]), 1e-300));
    }
    text += fmt::format("\nOver {} step{} the losses differ by at most {:.2g} (relative).\n", both, both == 1 ? "" : "s", most);
  }
  return text;
}

}  // namespace baton::app
