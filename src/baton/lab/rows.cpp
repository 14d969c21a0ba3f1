#include "baton/lab/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/base/error.h"
#include "baton/lab/instances.h"
#include "baton/lab/phrases.h"

namespace baton::lab {

std::int64_t whole(const Json& point, const std::string& key, std::int64_t low, std::int64_t high) {
  return parse_integer(text(point, key), key, low, high);
}

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string to_words(const Point& point) {
  std::string text;
  for (const auto& [axis, value] : point.items()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis, word_of(value));
  }
  return text;
}

double number(const Json& row, const std::string& key) {
  check(row.contains(key) && row[key].is_number(), "a row has no number {}", key);
  return row[key].get<double>();
}

Nanoseconds time_of(const Json& row, const std::string& key) {
  const double time = number(row, key);
  check(std::abs(time) < 9e18, "a row has the time {} as {}", time, key);
  return Nanoseconds(static_cast<std::int64_t>(time));
}

Bytes bytes_of(const Json& row, const std::string& key) {
  const double size = number(row, key);
  check(std::abs(size) < 9e18, "a row has the bytes {} as {}", size, key);
  return Bytes(static_cast<std::int64_t>(size));
}

std::string text(const Json& row, const std::string& key) {
  check(row.contains(key), "a row has no {}", key);
  return word_of(row[key]);
}

std::vector<double> losses_of(const Json& row) {
  check(row.contains("losses") && row["losses"].is_array(), "a row has no losses");
  std::vector<double> losses;
  for (const Json& loss : row["losses"]) {
    // What is no number may carry a sign, which would be printed.
    const bool number = loss.is_number() && !std::isnan(loss.get<double>());
    losses.push_back(number ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  return losses;
}

std::vector<Json> where(const std::vector<Json>& rows, const std::string& key, const Json& value) {
  std::vector<Json> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const Json& row) { return row.contains(key) && row[key] == value; });
  return found;
}

std::vector<Json> values_of(const std::vector<Json>& rows, const std::string& key) {
  std::vector<Json> values;
  for (const Json& row : rows) {
    if (row.contains(key) && std::find(values.begin(), values.end(), row[key]) == values.end()) {
      values.push_back(row[key]);
    }
  }
  return values;
}

std::vector<double> column(const std::vector<Json>& rows, const std::string& key) {
  std::vector<double> values;
  for (const Json& row : rows) {
    values.push_back(number(row, key));
  }
  return values;
}

void add_speedup(std::vector<Json>& rows, const std::vector<std::string>& same) {
  for (Json& row : rows) {
    const Json* base = nullptr;
    for (const Json& other : rows) {
      const bool alike = std::all_of(same.begin(), same.end(),
                                     [&](const std::string& key) { return other.value(key, Json()) == row.value(key, Json()); });
      if (alike && (base == nullptr || number(other, "devices") < number(*base, "devices"))) {
        base = &other;
      }
    }
    const Json first = *base;  // a copy: adding to the row moves what it holds
    const bool itself = base == &row;
    const Json& base_devices = first["devices"];
    const double speedup = number(first, "time_per_step_ns") / number(row, "time_per_step_ns");
    row["speedup"] = speedup;
    // Of one instance alone the noise is not known: then there is no bar of uncertainty.
    const findings::Interval ratio = difference_of(row, first).of_ratio;
    const bool known = !itself && ratio.low > 0;
    row["speedup_low"] = known ? std::min(speedup, ratio.low) : speedup;
    row["speedup_high"] = known ? std::max(speedup, ratio.high) : speedup;
    row["efficiency"] = speedup * base_devices.get<double>() / number(row, "devices");
    row["base_devices"] = base_devices;
  }
}

std::vector<Json> beyond_base(const std::vector<Json>& rows) {
  std::vector<Json> more;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(more),
               [](const Json& row) { return number(row, "devices") > number(row, "base_devices"); });
  return more;
}

namespace {

/// The number that a row has under a key; 0 where it has none.
double said(const Json& row, const char* key) {
  const Json value = row.value(key, Json());
  return value.is_number() ? value.get<double>() : 0.0;
}

/// Of a row that has no list of instances, its interval says the same; of one instance alone nothing is known.
findings::Sample sample_of_row(const Json& row) {
  const double time = std::max(1e-3, number(row, "time_per_step_ns"));
  if (row.value("origin", Json("measured")) == "simulated") {
    return findings::exact(time);
  }
  if (const std::vector<double> times = instance_times(row); times.size() > 1) {
    return findings::sample_of(times);
  }
  return findings::from_interval(time, {said(row, "time_low_ns"), said(row, "time_high_ns")}, said(row, "instances"));
}

/// How much the machine itself may have changed between two rows that did not take turns, relative: what it drifted within each
/// run.
double drift_between(const Json& a, const Json& b) { return std::hypot(said(a, "drift"), said(b, "drift")); }

/// How far apart the speed of a fixed computation and the share of other processes were, relative. Both are of the cores: of GPUs
/// they say nothing.
double shift_between(const Json& a, const Json& b) {
  const auto on_gpus = [](const Json& row) { return row.contains("gpus") && row["gpus"].is_array() && !row["gpus"].empty(); };
  if (on_gpus(a) || on_gpus(b)) {
    return 0;
  }
  const double speed_a = said(a, "pulse_gflops");
  const double speed_b = said(b, "pulse_gflops");
  const double speed = speed_a > 0 && speed_b > 0 ? std::log(speed_a / speed_b) : 0;
  return std::hypot(speed, said(a, "others_share") - said(b, "others_share"));
}

/// Whether the instances of both were interleaved.
bool took_turns(const Json& a, const Json& b) { return a.value("batch_name", Json()) == b.value("batch_name", Json()); }

findings::Difference compare_rows(const Json& a, const Json& b, std::size_t pairs, const findings::Scatter& usual) {
  const bool together = took_turns(a, b);
  const findings::Test test{.pairs = static_cast<double>(std::max<std::size_t>(1, pairs)),
                            .drift = together ? 0 : drift_between(a, b),
                            .shift = together ? 0 : shift_between(a, b)};
  const std::vector<double> rounds_a = together ? instance_times(a) : std::vector<double>();
  const std::vector<double> rounds_b = together ? instance_times(b) : std::vector<double>();
  if (a.contains("batch_name") && findings::can_pair(std::min(rounds_a.size(), rounds_b.size()), test)) {
    return findings::paired_difference(rounds_a, rounds_b, test);
  }
  return findings::difference(findings::at_least(sample_of_row(a), usual), findings::at_least(sample_of_row(b), usual), test);
}

}  // namespace

findings::Difference difference_of(const Json& a, const Json& b, std::size_t pairs) { return compare_rows(a, b, pairs, {}); }

findings::Difference difference_of_speedups(const Json& a, const Json& base_a, const Json& b, const Json& base_b,
                                            std::size_t pairs) {
  const auto drifted = [](const Json& row, const Json& base) { return took_turns(row, base) ? 0 : drift_between(row, base); };
  const auto shifted = [](const Json& row, const Json& base) { return took_turns(row, base) ? 0 : shift_between(row, base); };
  return findings::difference(findings::quotient(sample_of_row(base_a), sample_of_row(a)),
                              findings::quotient(sample_of_row(base_b), sample_of_row(b)),
                              {.pairs = static_cast<double>(std::max<std::size_t>(1, pairs)),
                               .drift = std::hypot(drifted(a, base_a), drifted(b, base_b)),
                               .shift = shifted(a, base_a) + shifted(b, base_b)});
}

bool differs(const Json& a, const Json& b, std::size_t pairs) { return difference_of(a, b, pairs).differ; }

findings::Difference difference_among(const Json& a, const Json& b, const std::vector<Json>& rows) {
  std::vector<findings::Sample> samples;
  std::transform(rows.begin(), rows.end(), std::back_inserter(samples), sample_of_row);
  return compare_rows(a, b, pairs_among(rows.size()), findings::usual_scatter(samples));
}

double unsureness(const findings::Interval& interval) {
  return interval.low > 0 ? std::sqrt(interval.high / interval.low) - 1 : std::numeric_limits<double>::infinity();
}

double unsureness(const Json& row) { return unsureness(findings::interval(sample_of_row(row), 0.99)); }

std::string noise_text(const findings::Difference& difference) {
  if (difference.differ) {
    return "beyond the noise";
  }
  return std::isinf(difference.smallest) ? "not known to be beyond the noise, of which one instance says nothing"
         : difference.smallest >= 1
             ? fmt::format("within the noise at the 1 % level, which is large (only a factor of {} would have been seen)",
                           difference.smallest < 99 ? fmt::format("{:.2g}", 1 + difference.smallest) : "more than 100")
             : fmt::format("within the noise at the 1 % level (a difference of {} would have been seen)",
                           percent(difference.smallest));
}

std::string tested_text(const findings::Difference& difference) {
  const auto end = [](double ratio) { return ratio < 0.01 ? "<0.01" : ratio > 100 ? ">100" : ratio_text(ratio); };
  return std::isinf(difference.smallest)
             ? "one instance says nothing of the noise"
             : fmt::format("{} to {} with 99 % confidence", end(difference.tested.low), end(difference.tested.high));
}

std::string ratio_noise_text(const findings::Difference& difference) {
  return difference.differ                 ? ""
         : std::isinf(difference.smallest) ? fmt::format(" ({})", tested_text(difference))
                                           : fmt::format(", within the noise ({})", tested_text(difference));
}

std::vector<Json> with_own_cores(const std::vector<Json>& rows) {
  std::vector<Json> own;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(own),
               [](const Json& row) { return !row.value("oversubscribed", false); });
  return own;
}

std::vector<Json> headline_rows(const std::vector<Json>& rows) {
  std::vector<Json> chosen;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(chosen), [](const Json& row) { return number(row, "devices") > 1; });
  chosen = chosen.empty() ? rows : chosen;
  if (std::vector<Json> own = with_own_cores(chosen); !own.empty()) {
    chosen = std::move(own);
  }
  const auto most = std::max_element(chosen.begin(), chosen.end(),
                                     [](const Json& a, const Json& b) { return number(a, "devices") < number(b, "devices"); });
  return most == chosen.end() ? chosen : where(chosen, "devices", (*most)["devices"]);
}

std::vector<Json> device_counts(const std::vector<Json>& rows) {
  std::vector<Json> counts = values_of(headline_rows(rows), "devices");
  for (Json& count : values_of(rows, "devices")) {
    if (count != counts.front()) {
      counts.push_back(std::move(count));
    }
  }
  return counts;
}

std::string shared_cores_mark(const std::vector<Json>& rows) {
  return with_own_cores(rows).size() == rows.size() ? "" : " (devices shared cores)";
}

bool is_simulated(const Json& row) { return row.value("origin", "measured") == "simulated"; }

std::string percent(double share) {
  share = std::abs(share) < 9.5e-6 ? 0 : share;  // 0 has no sign
  const double size = std::abs(100 * share);
  return size < 0.095 && size >= 0.0095     ? fmt::format("{:.2g} %", 100 * share)
         : size < 0.0095 && size >= 0.00095 ? fmt::format("{:.3f} %", 100 * share)
                                            : fmt::format("{:.1f} %", 100 * share);
}

std::string oversubscribed_note(const std::vector<Json>& rows) {
  std::string counts;
  bool named = false;  // as in a spec: "cpu:4"
  for (const Json& row : rows) {
    if (row.value("oversubscribed", false) && row.contains("devices")) {
      const std::string count = text(row, "devices");
      named = row["devices"].is_string();
      if ((", " + counts + ",").find(", " + count + ",") == std::string::npos) {
        counts += (counts.empty() ? "" : ", ") + count;
      }
    }
  }
  return counts.empty() ? ""
                        : fmt::format(
                              "Rows {} are oversubscribed, with fewer cores than devices: the run is real, but devices "
                              "took turns, so their times say what the split costs and not what more "
                              "hardware would win.",
                              named ? "on " + counts : fmt::format("with {} devices", counts));
}

void add_oversubscribed_note(std::vector<std::string>& sentences, const std::vector<Json>& rows) {
  if (std::string note = oversubscribed_note(rows); !note.empty()) {
    sentences.push_back(std::move(note));
  }
}

std::string attribution(const Json& row, const std::string& what) {
  const double step = number(row, "time_per_step_ns");
  return fmt::format(
      "{}: of a step of {}, {} went into computing, {} into exposed communication, {} into waiting for "
      "other devices, {} into injected delays and {} into the rest (the mean over devices).",
      what, to_text(time_of(row)), percent(number(row, "compute_ns") / step), percent(number(row, "exposed_ns") / step),
      percent(number(row, "waiting_ns") / step), percent(number(row, "delayed_ns") / step), percent(number(row, "rest_ns") / step));
}

std::vector<findings::ArrivalStats> arrival_stats_of(const Json& row) {
  std::vector<findings::ArrivalStats> list;
  for (const Json& one : row.value("arrivals", Json::array())) {
    list.push_back({.name = text(one, "device"),
                    .last_share = number(one, "last"),
                    .held_up = time_of(one, "held_up_ns"),
                    .phase = text(one, "phase"),
                    .excess = time_of(one, "excess_ns"),
                    .steps = one.value("steps", std::int64_t{0}),
                    .latest_in = one.value("latest_in", std::int64_t{0})});
  }
  return list;
}

Column time_column() { return {"time_per_step_ns", "time/step", Format::time}; }

Plot time_plot(Plot::Kind kind, std::string title, std::string x, std::string x_title, std::string series) {
  const Column time = time_column();
  return {.kind = kind,
          .title = std::move(title),
          .x = std::move(x),
          .y = time.key,
          .x_title = std::move(x_title),
          .y_title = time.heading,
          .y_format = time.format,
          .series = std::move(series),
          .low = "time_low_ns",
          .high = "time_high_ns"};
}

Plot speedup_plot(std::string series) {
  return {.kind = Plot::Kind::line,
          .title = "Speedup",
          .x = "devices",
          .y = "speedup",
          .x_title = "devices",
          .y_title = "speedup",
          .y_format = Format::number,
          .series = std::move(series),
          .ideal = "linear",
          .low = "speedup_low",
          .high = "speedup_high"};
}

}  // namespace baton::lab
