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

std::vector<Json> measured_rows(const std::vector<Json>& rows) {
  std::vector<Json> good;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(good), [](const Json& row) { return !row.contains("reason"); });
  return good;
}

/// What the devices of a row are called in front of their own names, so that rows can be told apart.
std::string row_name(const Json& row) {
  return row.contains("label") ? text(row, "label")
                               : fmt::format("{} {}", text(row, "devices"), number(row, "devices") == 1 ? "device" : "devices");
}

std::vector<Json> device_points(const std::vector<Json>& rows) {
  std::vector<Json> points;
  for (const Json& row : measured_rows(rows)) {
    const Json devices = row.value("device_list", Json::array());
    for (const Json& device : devices.size() < 2 ? Json::array() : devices) {
      Json point{{"device", fmt::format("{}: {}", row_name(row), text(device, "name"))},
                 {"origin", row.value("origin", "measured")},
                 {"oversubscribed", row.value("oversubscribed", false)}};
      for (const char* part : {"busy", "exposed", "waiting", "delayed", "rest"}) {
        point[part] = number(device, part) * number(row, "time_per_step_ns");
      }
      points.push_back(std::move(point));
    }
  }
  return points;
}

/// Bins from the shortest step to all but the longest ones, which the last bin holds as well.
std::vector<Json> histogram_points(const std::vector<Json>& rows, const std::string& series) {
  std::vector<Json> timed = measured_rows(rows);
  std::erase_if(timed, [](const Json& row) { return row.value("quantiles_ns", Json::array()).size() < 2; });
  const std::vector<Json> headline = headline_rows(timed);
  const std::vector<Json>& shown = headline.empty() ? timed : headline;
  std::vector<double> all;
  for (const Json& row : shown) {
    for (const Json& time : row["quantiles_ns"]) {
      all.push_back(time.get<double>());
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
  std::vector<Json> points;
  for (const Json& row : shown) {
    std::vector<double> shares(static_cast<std::size_t>(bins) + 1, 0);  // after the last bin there is nothing
    for (const Json& time : row["quantiles_ns"]) {
      const int bin = std::min(bins - 1, static_cast<int>((time.get<double>() - from) / width));
      shares[static_cast<std::size_t>(bin)] += 1.0 / static_cast<double>(row["quantiles_ns"].size());
    }
    for (int bin = 0; bin <= bins; ++bin) {
      points.push_back({{"step_ns", from + bin * width},
                        {"share", shares[static_cast<std::size_t>(bin)]},
                        {series, text(row, series)},
                        {"origin", row.value("origin", "measured")}});
    }
  }
  return points;
}

std::vector<Json> message_points(const std::vector<Json>& rows) {
  std::vector<Json> points;
  for (const Json& row : measured_rows(rows)) {
    std::set<std::pair<double, double>> drawn;
    for (const Json& message : row.value("messages", Json::array())) {
      const double bytes = number(message, "bytes");
      const double time = number(message, "time_ns");
      if (bytes > 0 && time > 0 && drawn.emplace(bytes, time).second) {
        points.push_back({{"bytes", bytes},
                          {"time_ns", time},
                          {"devices", row["devices"]},
                          {"origin", row.value("origin", "measured")},
                          {"oversubscribed", row.value("oversubscribed", false)}});
      }
    }
  }
  return points;
}

}  // namespace

std::vector<Curve> amdahl_curves(const std::vector<Json>& rows) {
  const std::vector<Json> good = measured_rows(rows);
  const std::vector<Json> own_cores = with_own_cores(good);
  const std::vector<Json>& fitted = own_cores.size() >= 2 ? own_cores : good;
  if (fitted.size() < 2) {
    return {};
  }
  const findings::Amdahl fit = findings::fit_amdahl(column(fitted, "devices"), column(fitted, "time_per_step_ns"));
  if (fit.serial >= 1 || fit.serial < 0) {
    return {};
  }
  const std::vector<double> devices = column(good, "devices");
  const auto [least, most] = std::minmax_element(devices.begin(), devices.end());
  const double base = *least;
  const auto time = [&](double n) { return fit.serial + (1 - fit.serial) / n; };
  return {{.name = fmt::format("Amdahl's law, serial fraction {}", percent(fit.serial)),
           .series = nullptr,
           .points = sampled(base, *most, [&](double n) { return time(base) / time(n); })}};
}

std::vector<Curve> delay_curves(const std::vector<Json>& rows) {
  const std::vector<Json> good = measured_rows(rows);
  const std::vector<Json> alone = where(where(good, "devices", 1), "delay_ms", 0);
  if (alone.size() != 1) {
    return {};
  }
  const double one = number(alone[0], "time_per_step_ns") / 1e6;
  const std::vector<double> delays = column(good, "delay_ms");
  const auto [least, most] = std::minmax_element(delays.begin(), delays.end());
  std::vector<Curve> curves;
  for (const Json& count : device_counts(good)) {  // the one that answers are about first
    const std::vector<Json> together = where(where(good, "devices", count), "delay_ms", 0);
    if (count.get<double>() > 1 && together.size() == 1) {
      const double several = number(together[0], "time_per_step_ns") / 1e6;
      curves.push_back({.name = fmt::format("(c + d)/(cₙ + d) on {}", word_of(count)),
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
  return {.kind = Plot::Kind::stacked,
          .title = "Where the step goes: the ideal one, and what is lost",
          .x = "devices",
          .y = "ideal_ns",
          .x_title = "devices",
          .y_title = "time/step",
          .y_format = Format::time,
          .parts = {"ideal_ns", "unshrunk_ns", "lost_exposed_ns", "lost_waiting_ns", "lost_rest_ns"},
          .part_titles = {"ideal", "computing that did not shrink", "exposed communication", "waiting", "the rest"}};
}

Plot first_steps_plot() {
  return {.kind = Plot::Kind::line,
          .title = "The first steps, warm-up included",
          .x = "step",
          .y = "time_ns",
          .x_title = "step",
          .y_title = "time",
          .y_format = Format::time,
          .series = "run",
          .points = [](const std::vector<Json>& rows) {
            std::vector<Json> points;
            for (const Json& row : measured_rows(rows)) {
              const Json times = row.value("first_step_times_ns", Json::array());
              for (std::size_t step = 0; step < times.size(); ++step) {
                points.push_back({{"step", step + 1},
                                  {"time_ns", times[step]},
                                  {"run", text(row, "run")},
                                  {"origin", row.value("origin", "measured")},
                                  {"oversubscribed", false}});
              }
            }
            return points;
          }};
}

Plot device_plot(std::string title) {
  return {.kind = Plot::Kind::stacked,
          .title = std::move(title),
          .x = "device",
          .y = "busy",
          .x_title = "device",
          .y_title = "time of one step",
          .y_format = Format::time,
          .parts = {"busy", "exposed", "waiting", "delayed", "rest"},
          .part_titles = {"computing", "exposed communication", "waiting", "delayed", "nothing to do"},
          .x_format = Format::text,
          .points = device_points};
}

Plot spread_plot(std::string series) {
  return {.kind = Plot::Kind::histogram,
          .title = "How step times spread",
          .x = "step_ns",
          .y = "share",
          .x_title = "time of a step",
          .y_title = "share of steps",
          .y_format = Format::percent,
          .series = series,
          .x_format = Format::time,
          .points = [series](const std::vector<Json>& rows) { return histogram_points(rows, series); }};
}

Plot message_plot(std::function<std::vector<Curve>(const std::vector<Json>& rows)> curves) {
  return {.kind = Plot::Kind::scatter,
          .title = "Time of an all-reduce against its size",
          .x = "bytes",
          .y = "time_ns",
          .x_title = "size of the message",
          .y_title = "time",
          .y_format = Format::time,
          .series = "devices",
          .log_x = true,
          .log_y = true,
          .x_format = Format::bytes,
          .points = message_points,
          .curves = std::move(curves)};
}

std::optional<MessageFit> fit_messages(const std::vector<Json>& rows) {
  std::map<double, std::vector<double>> by_size;
  for (const Json& row : with_own_cores(where(measured_rows(rows), "devices", 2))) {
    for (const Json& message : row.value("messages", Json::array())) {
      if (message.value("kind", "") == "all_reduce" && message.value("overlapped", 0.0) < 0.1 && number(message, "time_ns") > 0) {
        by_size[number(message, "bytes")].push_back(number(message, "time_ns"));
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

std::vector<Curve> message_curves(const std::vector<Json>& rows) {
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
