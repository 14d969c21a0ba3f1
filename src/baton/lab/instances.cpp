#include "baton/lab/instances.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "baton/findings/median.h"

namespace baton::lab {
namespace {

constexpr double interval_level = 0.95;

/// What depends on the steps that were run and not on how long they took: of the first instance, which runs at least as many as
/// findings need.
constexpr std::array<const char*, 11> value_keys{"losses",         "loss_final",          "loss_steps",  "losses_checksum",
                                                 "underflows",     "overflows",           "final_scale", "skipped_steps",
                                                 "gradients_left", "first_step_times_ns", "roundings"};

/// What is counted over all instances.
constexpr std::array<const char*, 2> summed_keys{"steps_timed", "warmup"};

bool is_time(const Json& record) {
  return record.contains("time_per_step_ns") && record["time_per_step_ns"].is_number() &&
         record["time_per_step_ns"].get<double>() > 0;
}

}  // namespace

bool precise_enough(const std::vector<std::vector<double>>& times_by_point) {
  for (std::size_t i = 0; i < times_by_point.size(); ++i) {
    const std::vector<double>& own = times_by_point[i];
    if (own.size() < least_precise_instances || own.size() % 5 != 0) {
      return false;
    }
    const auto sees = [](const findings::Difference& difference) { return difference.smallest <= precise_difference; };
    if (times_by_point.size() == 1) {
      const findings::Sample sample = findings::sample_of(own);
      return sees(findings::difference(sample, sample));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (!sees(findings::paired_difference(times_by_point[j], own))) {
        return false;
      }
    }
  }
  return !times_by_point.empty();
}

Json merge_instances(const std::vector<Json>& records) {
  std::vector<const Json*> by_time;
  for (const Json& record : records) {
    by_time.push_back(&record);
  }
  const bool timed = std::all_of(records.begin(), records.end(), is_time);
  if (timed) {
    std::stable_sort(by_time.begin(), by_time.end(), [](const Json* a, const Json* b) {
      return (*a)["time_per_step_ns"].get<double>() < (*b)["time_per_step_ns"].get<double>();
    });
  }
  Json merged = timed ? *by_time[(by_time.size() - 1) / 2] : records.front();
  for (const char* key : value_keys) {
    if (records.front().contains(key)) {
      merged[key] = records.front()[key];
    }
  }
  for (const char* key : summed_keys) {
    if (merged.contains(key)) {
      merged[key] = std::accumulate(records.begin(), records.end(), std::int64_t{0},
                                    [&](std::int64_t sum, const Json& record) { return sum + record.value(key, std::int64_t{0}); });
    }
  }
  merged["instances"] = records.size();
  if (!timed || merged.value("origin", "measured") == "simulated") {
    return merged;
  }
  std::vector<double> times;
  Json list = Json::array();
  for (const Json& record : records) {
    times.push_back(record["time_per_step_ns"].get<double>());
    list.push_back(record["time_per_step_ns"]);
  }
  merged["instance_times_ns"] = list;
  const double middle = merged["time_per_step_ns"].get<double>();
  const findings::Sample sample = findings::sample_of(times);
  if (times.size() < 2) {
    // One instance says nothing of the others: what its steps scatter by is no interval of the time.
    merged["time_low_ns"] = middle;
    merged["time_high_ns"] = middle;
    merged["interval_level"] = nullptr;
    merged["smallest_difference"] = nullptr;
    return merged;
  }
  const findings::Interval interval = findings::interval(sample, interval_level);
  merged["time_low_ns"] = std::llround(std::min(interval.low, middle));
  merged["time_high_ns"] = std::llround(std::min(9e18, std::max(interval.high, middle)));
  merged["interval_level"] = interval_level;
  merged["smallest_difference"] = findings::difference(sample, sample).smallest;
  return merged;
}

std::vector<double> instance_times(const Json& row) {
  std::vector<double> times;
  if (row.contains("instance_times_ns") && row["instance_times_ns"].is_array()) {
    for (const Json& time : row["instance_times_ns"]) {
      if (!time.is_number() || !(time.get<double>() > 0) || !(time.get<double>() < 9e18)) {
        return {};
      }
      times.push_back(time.get<double>());
    }
  }
  return times;
}

double drift_of(const std::vector<std::vector<double>>& times_by_point) {
  std::size_t rounds = 0;
  for (const std::vector<double>& times : times_by_point) {
    rounds = std::max(rounds, times.size());
  }
  std::vector<double> common;  // by round: how far points lay off their own means
  for (std::size_t r = 0; r < rounds; ++r) {
    std::vector<double> off;
    for (const std::vector<double>& times : times_by_point) {
      if (r < times.size() && times.size() > 1) {
        off.push_back(std::log(times[r]) - findings::sample_of(times).log_mean);
      }
    }
    if (!off.empty()) {
      common.push_back(findings::median(off));
    }
  }
  if (common.size() < 2) {
    return 0;
  }
  const double mean = std::accumulate(common.begin(), common.end(), 0.0) / static_cast<double>(common.size());
  double squares = 0;
  for (const double value : common) {
    squares += (value - mean) * (value - mean);
  }
  return std::sqrt(squares / static_cast<double>(common.size() - 1));
}

}  // namespace baton::lab
