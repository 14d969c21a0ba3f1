#include "baton/lab/rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/base/error.h"
#include "baton/lab/instances.h"

namespace baton::lab {

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string text(const Record& row, const std::string& column) {
  const Json* value = row.find(column);
  check(value != nullptr, "a row has no {}", column);
  return word_of(*value);
}

job::DeviceList devices_of(const Record& row) {
  const Json& value = row.at(key::devices);
  return value.is_number() ? job::DeviceList(row[key::devices]) : job::DeviceList(word_of(value));
}

std::optional<double> number_in(const Record& row, const std::string& column) {
  const Json* value = row.find(column);
  return value != nullptr && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::vector<std::string> words_of(const std::vector<Record>& rows, const std::string& column) {
  std::vector<std::string> words;
  for (const Record& row : rows) {
    const Json* value = row.find(column);
    if (value != nullptr && std::find(words.begin(), words.end(), word_of(*value)) == words.end()) {
      words.push_back(word_of(*value));
    }
  }
  return words;
}

namespace {

/// A null value counts as a missing one.
bool is_same(const Json* a, const Json* b) { return (a == nullptr ? Json() : *a) == (b == nullptr ? Json() : *b); }

}  // namespace

void add_speedup(std::vector<Record>& rows, const std::vector<std::string>& same) {
  for (Record& row : rows) {
    const Record* base = nullptr;
    for (const Record& other : rows) {
      const bool alike = std::all_of(same.begin(), same.end(),
                                     [&](const std::string& column) { return is_same(other.find(column), row.find(column)); });
      if (alike && (base == nullptr || number(other, key::devices) < number(*base, key::devices))) {
        base = &other;
      }
    }
    const Record first = *base;  // a copy: adding to the row moves what it holds
    const bool itself = base == &row;
    const std::int64_t base_devices = first[key::devices];
    const double speedup = number(first, key::time_per_step_ns) / number(row, key::time_per_step_ns);
    row.set(key::speedup, speedup);
    // One instance alone does not show the noise: then there is no bar of uncertainty.
    const findings::Interval ratio = difference_of(row, first).of_ratio;
    const bool known = !itself && ratio.low > 0;
    row.set(key::speedup_low, known ? std::min(speedup, ratio.low) : speedup);
    row.set(key::speedup_high, known ? std::max(speedup, ratio.high) : speedup);
    row.set(key::efficiency, speedup * static_cast<double>(base_devices) / number(row, key::devices));
    row.set(key::base_devices, base_devices);
  }
}

std::vector<Record> beyond_base(const std::vector<Record>& rows) {
  std::vector<Record> more;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(more),
               [](const Record& row) { return number(row, key::devices) > number(row, key::base_devices); });
  return more;
}

namespace {

/// The sample of a row. If the row has no list of instances, its interval says the same; one instance alone says nothing.
findings::Sample sample_of_row(const Record& row) {
  const double time = std::max(1e-3, number(row, key::time_per_step_ns));
  if (is_simulated(row)) {
    return findings::exact(time);
  }
  if (const std::vector<double> times = instance_times(row); times.size() > 1) {
    return findings::sample_of(times);
  }
  return findings::from_interval(time, {number(row, key::time_low_ns, 0.0), number(row, key::time_high_ns, 0.0)},
                                 number(row, key::instances, 0.0));
}

/// The relative change of the machine itself between two rows that did not take turns, from the drift within each run.
double drift_between(const Record& a, const Record& b) {
  return std::hypot(number(a, key::drift, 0.0), number(b, key::drift, 0.0));
}

/// The relative difference in the speed of a fixed computation and in the share of other processes. Both are measured on cores and
/// do not apply to GPUs.
double shift_between(const Record& a, const Record& b) {
  const auto on_gpus = [](const Record& row) {
    const Json gpus = row.value(key::gpus, Json());
    return gpus.is_array() && !gpus.empty();
  };
  if (on_gpus(a) || on_gpus(b)) {
    return 0;
  }
  const double speed_a = number(a, key::core_peak_gflops, 0.0);
  const double speed_b = number(b, key::core_peak_gflops, 0.0);
  const double speed = speed_a > 0 && speed_b > 0 ? std::log(speed_a / speed_b) : 0;
  return std::hypot(speed, number(a, key::others_share, 0.0) - number(b, key::others_share, 0.0));
}

/// True if the instances of both were interleaved.
bool took_turns(const Record& a, const Record& b) { return is_same(a.find(key::batch_name), b.find(key::batch_name)); }

findings::Difference compare_rows(const Record& a, const Record& b, std::size_t pairs, const findings::Scatter& usual) {
  const bool together = took_turns(a, b);
  const findings::Test test{.pairs = static_cast<double>(std::max<std::size_t>(1, pairs)),
                            .drift = together ? 0 : drift_between(a, b),
                            .shift = together ? 0 : shift_between(a, b)};
  const std::vector<double> rounds_a = together ? instance_times(a) : std::vector<double>();
  const std::vector<double> rounds_b = together ? instance_times(b) : std::vector<double>();
  if (a.has(key::batch_name) && findings::can_pair(std::min(rounds_a.size(), rounds_b.size()), test)) {
    return findings::paired_difference(rounds_a, rounds_b, test);
  }
  return findings::difference(findings::at_least(sample_of_row(a), usual), findings::at_least(sample_of_row(b), usual), test);
}

}  // namespace

findings::Difference difference_of(const Record& a, const Record& b, std::size_t pairs) { return compare_rows(a, b, pairs, {}); }

findings::Difference difference_of_speedups(const Record& a, const Record& base_a, const Record& b, const Record& base_b,
                                            std::size_t pairs) {
  const auto drifted = [](const Record& row, const Record& base) { return took_turns(row, base) ? 0 : drift_between(row, base); };
  const auto shifted = [](const Record& row, const Record& base) { return took_turns(row, base) ? 0 : shift_between(row, base); };
  return findings::difference(findings::quotient(sample_of_row(base_a), sample_of_row(a)),
                              findings::quotient(sample_of_row(base_b), sample_of_row(b)),
                              {.pairs = static_cast<double>(std::max<std::size_t>(1, pairs)),
                               .drift = std::hypot(drifted(a, base_a), drifted(b, base_b)),
                               .shift = shifted(a, base_a) + shifted(b, base_b)});
}

bool differs(const Record& a, const Record& b, std::size_t pairs) { return difference_of(a, b, pairs).differ; }

findings::Difference difference_among(const Record& a, const Record& b, const std::vector<Record>& rows) {
  std::vector<findings::Sample> samples;
  std::transform(rows.begin(), rows.end(), std::back_inserter(samples), sample_of_row);
  return compare_rows(a, b, pairs_among(rows.size()), findings::usual_scatter(samples));
}

double relative_uncertainty(const findings::Interval& interval) {
  return interval.low > 0 ? std::sqrt(interval.high / interval.low) - 1 : std::numeric_limits<double>::infinity();
}

double relative_uncertainty(const Record& row) { return relative_uncertainty(findings::interval(sample_of_row(row), 0.99)); }

std::string noise_text(const findings::Difference& difference) {
  if (difference.differ) {
    return "beyond the noise";
  }
  return std::isinf(difference.smallest)
             ? "not known to be beyond the noise, because a single instance does not show how much times vary"
         : difference.smallest >= 1
             ? fmt::format("within the noise at the 1 % level, which is large (only a factor of {} would have been seen)",
                           difference.smallest < 99 ? fmt::format("{:.2g}", 1 + difference.smallest) : "more than 100")
             : fmt::format("within the noise at the 1 % level (a difference of {} would have been seen)",
                           percent(difference.smallest));
}

std::string tested_text(const findings::Difference& difference) {
  const auto end = [](double ratio) { return ratio < 0.01 ? "<0.01" : ratio > 100 ? ">100" : ratio_text(ratio); };
  return std::isinf(difference.smallest)
             ? "one instance says nothing about the noise"
             : fmt::format("{} to {} with 99 % confidence", end(difference.tested.low), end(difference.tested.high));
}

std::string ratio_noise_text(const findings::Difference& difference) {
  return difference.differ                 ? ""
         : std::isinf(difference.smallest) ? fmt::format(" ({})", tested_text(difference))
                                           : fmt::format(", within the noise ({})", tested_text(difference));
}

std::vector<Record> with_own_cores(const std::vector<Record>& rows) {
  std::vector<Record> own;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
               [](const Record& row) { return !row.value(key::oversubscribed, false); });
  return own;
}

std::vector<Record> headline_rows(const std::vector<Record>& rows) {
  std::vector<Record> chosen;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(chosen),
               [](const Record& row) { return number(row, key::devices) > 1; });
  chosen = chosen.empty() ? rows : chosen;
  if (std::vector<Record> own = with_own_cores(chosen); !own.empty()) {
    chosen = std::move(own);
  }
  const auto most = std::max_element(chosen.begin(), chosen.end(), [](const Record& a, const Record& b) {
    return number(a, key::devices) < number(b, key::devices);
  });
  return most == chosen.end() ? chosen : rows_with(chosen, key::devices, (*most)[key::devices]);
}

std::vector<std::int64_t> device_counts(const std::vector<Record>& rows) {
  std::vector<std::int64_t> counts = values_of(headline_rows(rows), key::devices);
  for (const std::int64_t count : values_of(rows, key::devices)) {
    if (count != counts.front()) {
      counts.push_back(count);
    }
  }
  return counts;
}

std::string shared_cores_mark(const std::vector<Record>& rows) {
  return with_own_cores(rows).size() == rows.size() ? "" : " (devices shared cores)";
}

bool is_simulated(const Record& row) { return row.value(key::origin, "measured") == "simulated"; }

std::string ratio_text(double ratio) {
  const double size = std::abs(ratio);
  return size == 0 || size >= 0.0995 ? fmt::format("{:.2f}", ratio)
                                     : fmt::format("{:.{}f}", ratio, 2 - static_cast<int>(std::floor(std::log10(size))));
}

std::string percent(double share) {
  share = std::abs(share) < 9.5e-6 ? 0 : share;  // 0 has no sign
  const double size = std::abs(100 * share);
  return size < 0.095 && size >= 0.0095     ? fmt::format("{:.2g} %", 100 * share)
         : size < 0.0095 && size >= 0.00095 ? fmt::format("{:.3f} %", 100 * share)
                                            : fmt::format("{:.1f} %", 100 * share);
}

std::string oversubscribed_note(const std::vector<Record>& rows) {
  std::vector<std::string> lists;
  bool named = false;  // as in a spec: "cpu:4"
  for (const Record& row : rows) {
    if (row.value(key::oversubscribed, false) && row.has(key::devices)) {
      const job::DeviceList devices = devices_of(row);
      named = !devices.count();
      if (std::find(lists.begin(), lists.end(), devices.text()) == lists.end()) {
        lists.push_back(devices.text());
      }
    }
  }
  const std::string counts = fmt::format("{}", fmt::join(lists, ", "));
  return counts.empty() ? ""
                        : fmt::format(
                              "Rows {} are oversubscribed, with fewer cores than devices: the run is real, but devices "
                              "took turns, so their times say what the split costs and not what more "
                              "hardware would win.",
                              named ? "on " + counts : fmt::format("with {} devices", counts));
}

void add_oversubscribed_note(std::vector<std::string>& sentences, const std::vector<Record>& rows) {
  if (std::string note = oversubscribed_note(rows); !note.empty()) {
    sentences.push_back(std::move(note));
  }
}

std::string attribution(const Record& row, const std::string& what) {
  const double step = number(row, key::time_per_step_ns);
  return fmt::format(
      "{}: of a step of {}, {} went into computing, {} into exposed communication, {} into waiting for "
      "other devices, {} into injected delays and {} into the rest (the mean over devices).",
      what, to_text(time_of(row)), percent(number(row, key::compute_ns) / step), percent(number(row, key::exposed_ns) / step),
      percent(number(row, key::waiting_ns) / step), percent(number(row, key::delayed_ns) / step),
      percent(number(row, key::rest_ns) / step));
}

std::vector<findings::ArrivalStats> arrival_stats_of(const Record& row) {
  std::vector<findings::ArrivalStats> list;
  for (const Record& one : row.value(key::arrivals, {})) {
    list.push_back({.name = text(one, key::device),
                    .last_share = number(one, key::last),
                    .held_up = time_of(one, key::held_up_ns),
                    .phase = text(one, key::phase),
                    .excess = time_of(one, key::excess_ns),
                    .steps = one.value(key::steps, 0),
                    .latest_in = one.value(key::latest_in, 0)});
  }
  return list;
}

Column time_column() { return {key::time_per_step_ns, "time/step", Format::time}; }

Plot time_plot(Plot::Type kind, std::string title, std::string x, std::string x_title, std::string series) {
  const Column time = time_column();
  return {.kind = kind,
          .title = std::move(title),
          .x = std::move(x),
          .y = time.key,
          .x_title = std::move(x_title),
          .y_title = time.heading,
          .y_format = time.format,
          .series = std::move(series),
          .low = key::time_low_ns,
          .high = key::time_high_ns};
}

Plot speedup_plot(std::string series) {
  return {.kind = Plot::Type::line,
          .title = "Speedup",
          .x = key::devices,
          .y = key::speedup,
          .x_title = "devices",
          .y_title = "speedup",
          .y_format = Format::number,
          .series = std::move(series),
          .ideal = "linear",
          .low = key::speedup_low,
          .high = key::speedup_high};
}

}  // namespace baton::lab
