#include "baton/lab/experiments/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "baton/findings/fits.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

constexpr int samples_of_a_curve = 48;

/// Evenly from one end to the other.
template <typename Function>
std::vector<std::pair<double, double>> sampled(double from, double to, const Function& value) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i <= samples_of_a_curve; ++i) {
    const double x = from + (to - from) * i / samples_of_a_curve;
    points.emplace_back(x, value(x));
  }
  return points;
}

std::vector<Record> measured_rows(const std::vector<Record>& rows) {
  std::vector<Record> good;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(good), [](const Record& row) { return !row.has(key::reason); });
  return good;
}

/// The name of a row's devices in front of their own names, so that rows can be told apart.
std::string row_name(const Record& row) {
  return row.has(key::label) ? text(row, key::label)
                             : fmt::format("{} {}", text(row, key::devices), number(row, key::devices) == 1 ? "device" : "devices");
}

std::vector<Record> device_points(const std::vector<Record>& rows) {
  std::vector<Record> points;
  for (const Record& row : measured_rows(rows)) {
    const std::vector<Record> devices = row.value(key::device_list, {});
    for (const Record& device : devices.size() < 2 ? std::vector<Record>() : devices) {
      Record point{key::device(fmt::format("{}: {}", row_name(row), text(device, key::name))),
                   key::origin(row.value(key::origin, "measured")), key::oversubscribed(row.value(key::oversubscribed, false))};
      for (const job::Key<double> part : {key::busy, key::exposed, key::waiting, key::delayed, key::rest}) {
        point.set(part, number(device, part) * number(row, key::time_per_step_ns));
      }
      points.push_back(std::move(point));
    }
  }
  return points;
}

/// Bins from the shortest step to all but the longest ones, which the last bin holds as well.
std::vector<Record> histogram_points(const std::vector<Record>& rows, const std::string& series) {
  std::vector<Record> timed = measured_rows(rows);
  std::erase_if(timed, [](const Record& row) { return row.value(key::quantiles_ns, {}).size() < 2; });
  const std::vector<Record> headline = headline_rows(timed);
  const std::vector<Record>& shown = headline.empty() ? timed : headline;
  std::vector<double> all;
  for (const Record& row : shown) {
    for (const std::int64_t time : row[key::quantiles_ns]) {
      all.push_back(static_cast<double>(time));
    }
  }
  if (all.empty()) {
    return {};
  }
  // With few times wide bins, so that a bin holds several of them.
  const int bins = std::clamp(static_cast<int>(all.size() / shown.size() / 2), 6, 24);
  std::sort(all.begin(), all.end());
  const double from = all.front();
  const double width = (all[all.size() * 97 / 100] - from) / bins;
  if (width <= 0) {
    return {};
  }
  std::vector<Record> points;
  for (const Record& row : shown) {
    std::vector<double> shares(static_cast<std::size_t>(bins) + 1, 0);  // after the last bin there is nothing
    const std::vector<std::int64_t> times = row[key::quantiles_ns];
    for (const std::int64_t time : times) {
      const int bin = std::min(bins - 1, static_cast<int>((static_cast<double>(time) - from) / width));
      shares[static_cast<std::size_t>(bin)] += 1.0 / static_cast<double>(times.size());
    }
    for (int bin = 0; bin <= bins; ++bin) {
      Record point{key::step_ns(from + bin * width), key::share(shares[static_cast<std::size_t>(bin)])};
      point.put(series, text(row, series));
      point.set(key::origin, row.value(key::origin, "measured"));
      points.push_back(std::move(point));
    }
  }
  return points;
}

std::vector<Record> message_points(const std::vector<Record>& rows) {
  std::vector<Record> points;
  for (const Record& row : measured_rows(rows)) {
    std::set<std::pair<double, double>> drawn;
    for (const Record& message : row.value(key::messages, {})) {
      const double bytes = number(message, key::bytes);
      const double time = number(message, key::time_ns);
      if (bytes > 0 && time > 0 && drawn.emplace(bytes, time).second) {
        Record point;
        point.set_number(key::bytes, bytes);
        point.set_number(key::time_ns, time);
        point.update({key::devices(row[key::devices]), key::origin(row.value(key::origin, "measured")),
                      key::oversubscribed(row.value(key::oversubscribed, false))});
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

}  // namespace

std::vector<Curve> amdahl_curves(const std::vector<Record>& rows) {
  const std::vector<Record> good = measured_rows(rows);
  const std::vector<Record> own_cores = with_own_cores(good);
  const std::vector<Record>& fitted = own_cores.size() >= 2 ? own_cores : good;
  if (fitted.size() < 2) {
    return {};
  }
  const findings::Amdahl fit = findings::fit_amdahl(numbers_of(fitted, key::devices), numbers_of(fitted, key::time_per_step_ns));
  if (fit.serial >= 1 || fit.serial < 0) {
    return {};
  }
  const std::vector<double> devices = numbers_of(good, key::devices);
  const auto [least, most] = std::minmax_element(devices.begin(), devices.end());
  const double base = *least;
  const auto time = [&](double n) { return fit.serial + (1 - fit.serial) / n; };
  return {{.name = fmt::format("Amdahl's law, serial fraction {}", percent(fit.serial)),
           .series = nullptr,
           .points = sampled(base, *most, [&](double n) { return time(base) / time(n); })}};
}

std::vector<Curve> delay_curves(const std::vector<Record>& rows) {
  const std::vector<Record> good = measured_rows(rows);
  const std::vector<Record> alone = rows_with(rows_with(good, key::devices, 1), key::delay_ms, 0);
  if (alone.size() != 1) {
    return {};
  }
  const double one = number(alone[0], key::time_per_step_ns) / 1e6;
  const std::vector<double> delays = numbers_of(good, key::delay_ms);
  const auto [least, most] = std::minmax_element(delays.begin(), delays.end());
  std::vector<Curve> curves;
  for (const std::int64_t count : device_counts(good)) {  // the one that answers are about first
    const std::vector<Record> together = rows_with(rows_with(good, key::devices, count), key::delay_ms, 0);
    if (count > 1 && together.size() == 1) {
      const double several = number(together[0], key::time_per_step_ns) / 1e6;
      curves.push_back({.name = fmt::format("(c + d)/(cₙ + d) on {}", count),
                        .series = count,
                        .points = sampled(*least, *most, [&](double delay) { return (one + delay) / (several + delay); })});
    }
  }
  return curves;
}

Plot amdahl_plot() {
  Plot plot = speedup_plot();
  plot.title = "Speedup, and Amdahl's law through it";
  plot.curves = amdahl_curves;
  return plot;
}

Plot account_plot() {
  return {.kind = Plot::Type::stacked,
          .title = "Where the step goes: the ideal one, and what is lost",
          .x = key::devices,
          .y = key::ideal_ns,
          .x_title = "devices",
          .y_title = "time/step",
          .y_format = Format::time,
          .parts = {key::ideal_ns, key::unshrunk_ns, key::lost_exposed_ns, key::lost_waiting_ns, key::lost_rest_ns},
          .part_titles = {"ideal", "computing that did not shrink", "exposed communication", "waiting", "the rest"}};
}

Plot first_steps_plot() {
  return {.kind = Plot::Type::line,
          .title = "The first steps, warm-up included",
          .x = key::step,
          .y = key::time_ns,
          .x_title = "step",
          .y_title = "time",
          .y_format = Format::time,
          .series = key::run,
          .points = [](const std::vector<Record>& rows) {
            std::vector<Record> points;
            for (const Record& row : measured_rows(rows)) {
              const std::vector<std::int64_t> times = row.value(key::first_step_times_ns, {});
              for (std::size_t step = 0; step < times.size(); ++step) {
                points.push_back({key::step(static_cast<std::int64_t>(step) + 1), key::time_ns(Nanoseconds(times[step])),
                                  key::run(row[key::run]), key::origin(row.value(key::origin, "measured")),
                                  key::oversubscribed(false)});
              }
            }
            return points;
          }};
}

Plot device_plot(std::string title) {
  return {.kind = Plot::Type::stacked,
          .title = std::move(title),
          .x = key::device,
          .y = key::busy,
          .x_title = "device",
          .y_title = "time of one step",
          .y_format = Format::time,
          .parts = {key::busy, key::exposed, key::waiting, key::delayed, key::rest},
          .part_titles = {"computing", "exposed communication", "waiting", "delayed", "nothing to do"},
          .x_format = Format::text,
          .points = device_points};
}

Plot spread_plot(std::string series) {
  return {.kind = Plot::Type::histogram,
          .title = "How step times spread",
          .x = key::step_ns,
          .y = key::share,
          .x_title = "time of a step",
          .y_title = "share of steps",
          .y_format = Format::percent,
          .series = series,
          .x_format = Format::time,
          .points = [series](const std::vector<Record>& rows) { return histogram_points(rows, series); }};
}

Plot message_plot(std::function<std::vector<Curve>(const std::vector<Record>& rows)> curves) {
  return {.kind = Plot::Type::scatter,
          .title = "Time of an all-reduce against its size",
          .x = key::bytes,
          .y = key::time_ns,
          .x_title = "size of the message",
          .y_title = "time",
          .y_format = Format::time,
          .series = key::devices,
          .log_x = true,
          .log_y = true,
          .x_format = Format::bytes,
          .points = message_points,
          .curves = std::move(curves)};
}

std::optional<MessageFit> fit_messages(const std::vector<Record>& rows) {
  std::map<double, std::vector<double>> by_size;
  for (const Record& row : with_own_cores(rows_with(measured_rows(rows), key::devices, 2))) {
    for (const Record& message : row.value(key::messages, {})) {
      if (message.value(key::kind, "") == "all_reduce" && message.value(key::overlapped, 0.0) < 0.1 &&
          number(message, key::time_ns) > 0) {
        by_size[number(message, key::bytes)].push_back(number(message, key::time_ns));
      }
    }
  }
  std::vector<double> sizes;
  std::vector<double> times;
  for (const auto& [bytes, list] : by_size) {
    sizes.push_back(bytes);
    times.push_back(findings::median(list));
  }
  if (sizes.size() < 3) {
    return std::nullopt;
  }
  return MessageFit{.law = findings::fit_alpha_beta(sizes, times), .sizes = sizes};
}

std::vector<Curve> message_curves(const std::vector<Record>& rows) {
  const std::optional<MessageFit> fitted = fit_messages(rows);
  if (!fitted || !fitted->holds()) {
    return {};
  }
  const findings::AlphaBeta& fit = fitted->law;
  const std::vector<double>& sizes = fitted->sizes;
  Curve curve{.name = fmt::format("{} + size / {:.2f} GB/s, between two devices",
                                  to_text(Nanoseconds(static_cast<std::int64_t>(fit.alpha_ns))), fit.beta / 1e9),
              .series = 2,
              .points = {}};
  for (int i = 0; i <= samples_of_a_curve; ++i) {  // evenly on the logarithmic axis
    const double bytes = sizes.front() * std::pow(sizes.back() / sizes.front(), static_cast<double>(i) / samples_of_a_curve);
    curve.points.emplace_back(bytes, fit.alpha_ns + 1e9 * bytes / fit.beta);
  }
  return {curve};
}

}  // namespace baton::lab
