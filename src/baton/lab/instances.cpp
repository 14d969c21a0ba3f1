#include "baton/lab/instances.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "baton/findings/median.h"

namespace baton::lab {
namespace {

constexpr double interval_level = 0.95;

/// The keys of values that depend on the steps that were run and not on their times: taken from the first instance, which runs at
/// least as many steps as findings need.
constexpr std::array<const char*, 11> value_keys{
    key::losses.name,         key::loss_final.name,          key::loss_steps.name,  key::losses_checksum.name,
    key::underflows.name,     key::overflows.name,           key::final_scale.name, key::skipped_steps.name,
    key::gradients_left.name, key::first_step_times_ns.name, key::roundings.name};

/// The keys that are summed over all instances.
constexpr std::array<job::Key<std::int64_t>, 2> summed_keys{key::steps_timed, key::warmup};

bool is_time(const Record& record) { return number(record, key::time_per_step_ns, 0.0) > 0; }

bool has_spread(const Record& record) {
  return record.has(key::mean_ns) && record.has(key::std_ns) && record.has(key::min_ns) && record.has(key::max_ns) &&
         record.value(key::steps_timed, 0) > 0 && !record.value(key::quantiles_ns, {}).empty();
}

/// A step time that stands for several steps.
struct Weighed {
  std::int64_t time;
  double steps;
};

/// The times below which these shares of all steps lie, each in the middle of the steps that it stands for.
std::vector<std::int64_t> quantiles_of(std::vector<Weighed> times, const std::vector<double>& shares) {
  std::sort(times.begin(), times.end(), [](const Weighed& a, const Weighed& b) { return a.time < b.time; });
  const double all = std::accumulate(times.begin(), times.end(), 0.0,
                                     [](double sum, const Weighed& one) { return sum + one.steps; });
  std::vector<std::int64_t> found;
  for (const double share : shares) {
    double below = 0;
    std::size_t at = 0;
    while (at + 1 < times.size() && below + times[at].steps <= share * all) {
      below += times[at++].steps;
    }
    found.push_back(times[at].time);
  }
  return found;
}

/// Pools the spread of step times over all instances: the steps of one are few, and do not show the differences between instances.
void pool_spreads(const std::vector<Record>& records, Record& merged) {
  double steps = 0;
  double sum = 0;
  double squares = 0;
  Nanoseconds least(std::numeric_limits<std::int64_t>::max());
  Nanoseconds most(0);
  std::vector<Weighed> times;
  for (const Record& record : records) {
    const auto own = static_cast<double>(record[key::steps_timed]);
    const std::vector<std::int64_t> quantiles = record[key::quantiles_ns];
    steps += own;
    sum += own * number(record, key::mean_ns);
    least = std::min(least, record[key::min_ns]);
    most = std::max(most, record[key::max_ns]);
    for (const std::int64_t time : quantiles) {
      times.push_back({time, own / static_cast<double>(quantiles.size())});
    }
  }
  const double mean = sum / steps;
  for (const Record& record : records) {
    const auto own = static_cast<double>(record[key::steps_timed]);
    squares += (own - 1) * std::pow(number(record, key::std_ns), 2) + own * std::pow(number(record, key::mean_ns) - mean, 2);
  }
  const std::size_t kept = std::min<std::size_t>(times.size(), 50);
  std::vector<double> shares;
  for (std::size_t q = 0; q < kept; ++q) {
    shares.push_back((static_cast<double>(q) + 0.5) / static_cast<double>(kept));
  }
  const std::vector<std::int64_t> ends = quantiles_of(times, {0.05, 0.95});
  merged.set_number(key::mean_ns, mean);
  merged.set_number(key::std_ns, std::sqrt(squares / std::max(1.0, steps - 1)));
  merged.set(key::min_ns, least);
  merged.set(key::max_ns, most);
  merged.set(key::p5_ns, Nanoseconds(ends[0]));
  merged.set(key::p95_ns, Nanoseconds(ends[1]));
  merged.set(key::quantiles_ns, quantiles_of(times, shares));
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

Record merge_instances(const std::vector<Record>& records) {
  std::vector<const Record*> by_time;
  for (const Record& record : records) {
    by_time.push_back(&record);
  }
  const bool timed = std::all_of(records.begin(), records.end(), is_time);
  if (timed) {
    std::stable_sort(by_time.begin(), by_time.end(), [](const Record* a, const Record* b) {
      return number(*a, key::time_per_step_ns) < number(*b, key::time_per_step_ns);
    });
  }
  Record merged = timed ? *by_time[(by_time.size() - 1) / 2] : records.front();
  for (const char* name : value_keys) {
    if (const Json* value = records.front().find(name)) {
      merged.put(name, *value);
    }
  }
  for (const job::Key<std::int64_t> one : summed_keys) {
    if (merged.has(one)) {
      merged.set(one, std::accumulate(records.begin(), records.end(), std::int64_t{0},
                                      [&](std::int64_t sum, const Record& record) { return sum + record.value(one, 0); }));
    }
  }
  merged.set(key::instances, static_cast<std::int64_t>(records.size()));
  if (!timed || merged.value(key::origin, "measured") == "simulated") {
    return merged;
  }
  if (std::all_of(records.begin(), records.end(), has_spread)) {
    pool_spreads(records, merged);
  }
  std::vector<double> times;
  Json list = Json::array();
  for (const Record& record : records) {
    times.push_back(number(record, key::time_per_step_ns));
    list.push_back(record.at(key::time_per_step_ns));
  }
  merged.set(key::instance_times_ns, list);
  const double middle = number(merged, key::time_per_step_ns);
  const findings::Sample sample = findings::sample_of(times);
  if (times.size() < 2) {
    // One instance says nothing of the others: the scatter of its steps is not an interval of the time.
    merged.set_number(key::time_low_ns, middle);
    merged.set_number(key::time_high_ns, middle);
    merged.set(key::interval_level, std::nullopt);
    merged.set(key::smallest_difference, std::nullopt);
    return merged;
  }
  const findings::Interval interval = findings::interval(sample, interval_level);
  merged.set(key::time_low_ns, Nanoseconds(std::llround(std::min(interval.low, middle))));
  merged.set(key::time_high_ns, Nanoseconds(std::llround(std::min(9e18, std::max(interval.high, middle)))));
  merged.set(key::interval_level, interval_level);
  merged.set(key::smallest_difference, findings::difference(sample, sample).smallest);
  return merged;
}

std::vector<double> instance_times(const Record& row) {
  std::vector<double> times;
  for (const Json& time : row.value(key::instance_times_ns, Json::array())) {
    if (!time.is_number() || !(time.get<double>() > 0) || !(time.get<double>() < 9e18)) {
      return {};
    }
    times.push_back(time.get<double>());
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
