#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.batch = text(point, "batch");
  words.strategy = "ddp";
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  return measure_training(words, settings);
}

std::vector<Json> by_batch(std::vector<Json> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) { return number(a, "batch") < number(b, "batch"); });
  return rows;
}

/// Gustafson: one device with its share of the batch against n with the whole. S = n − s(n − 1) for the point itself.
struct Scaled {
  Json alone;
  Json row;
  double speedup = 0;
  double serial = 0;
};
std::vector<Scaled> scaled(const std::vector<Json>& rows) {
  std::vector<Scaled> list;
  for (const Json& alone : where(rows, "devices", 1)) {
    for (const Json& row : rows) {
      const double n = number(row, "devices");
      if (n > 1 && number(row, "batch") == number(alone, "batch") * n) {
        const double speedup = number(row, "samples_per_s") / number(alone, "samples_per_s");
        list.push_back({alone, row, speedup, (n - speedup) / (n - 1)});
      }
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Scaled& a, const Scaled& b) { return number(a.row, "batch") < number(b.row, "batch"); });
  return list;
}

std::string gustafson(const Scaled& one) {
  const double n = number(one.row, "devices");
  return fmt::format("{:.0f} devices at batch {} process {} times the samples of one at {}: S = n − s(n−1) gives s = {}{}", n,
                     text(one.row, "batch"), ratio_text(one.speedup), text(one.alone, "batch"), percent(one.serial),
                     one.serial >= 1 ? ", more than all, so the model does not apply" : "");
}

std::string larger_batch(const std::vector<Json>& rows) {
  const std::vector<Json> wide = by_batch(headline_rows(rows));
  if (wide.size() < 2) {
    return "";
  }
  const Json& first = wide.front();
  const Json& last = wide.back();
  const double gain = number(last, "samples_per_s") / number(first, "samples_per_s");
  const bool several = number(last, "devices") > number(last, "base_devices");
  const double before = number(first, "efficiency");
  const double after = number(last, "efficiency");
  std::string law;
  if (const std::vector<Scaled> all = scaled(rows); !all.empty()) {
    law = fmt::format(" Gustafson: {}.", gustafson(all.back()));
  }
  return fmt::format(
      "{}: from batch {} to {} {}throughput on {} grows {} times, from {:.0f} to {:.0f} samples/s{}. Weights, gradients and "
      "messages cost the same for any batch, so a larger one spreads them over more samples.{}",
      !several                ? (gain > 1.05 ? "Throughput rises" : "Throughput does not rise")
      : after > before + 0.02 ? "Yes"
      : after < before - 0.02 ? "No"
                              : "Hardly",
      text(first, "batch"), text(last, "batch"),
      several ? fmt::format("efficiency goes from {} to {} and ", percent(before), percent(after)) : "",
      devices_text(last["devices"]), ratio_text(gain), number(first, "samples_per_s"), number(last, "samples_per_s"),
      origin_mark(wide), law);
}

/// What throughput nears as the batch grows, and where it is within 5 % of that.
struct Saturation {
  double limit = 0;     // samples per second
  double batch = 0;     // 0: not known
  bool lawful = false;  // by step time = fixed + per sample; otherwise by the highest throughput seen
  findings::Line line;
};
Saturation saturation(const std::vector<Json>& rows) {
  Saturation found;
  found.line = findings::fit_line(column(rows, "batch"), column(rows, "time_per_step_ns"));
  double best = 0;
  for (const Json& row : rows) {
    best = std::max(best, number(row, "samples_per_s"));
  }
  found.lawful = rows.size() >= 3 && found.line.r2 >= 0.98 && found.line.slope > 0 && found.line.intercept > 0;
  found.limit = found.lawful ? std::max(best, 1e9 / found.line.slope) : best;
  for (const Json& row : rows) {
    if (found.batch == 0 && number(row, "samples_per_s") >= 0.95 * found.limit) {
      found.batch = number(row, "batch");
    }
  }
  if (found.batch == 0 && found.lawful) {
    found.batch = 19 * found.line.intercept / found.line.slope;  // B / (a + bB) = 0.95 / b
  }
  return found;
}

/// A line that is drawn out to more than so many times the largest batch is an extrapolation: two figures are enough.
constexpr double far = 32;

double two_figures(double value) {
  const double unit = std::pow(10, std::floor(std::log10(std::max(1.0, value))) - 1);
  return std::round(value / unit) * unit;
}

/// Of a time that may be below a nanosecond, three figures.
std::string short_time(double nanoseconds) {
  return std::abs(nanoseconds) < 1000 ? fmt::format("{:.3g} ns", nanoseconds) : duration_text(nanoseconds);
}

/// Samples per second, of many only three figures.
std::string rate_text(double rate) { return rate >= 1e6 ? three_figures(rate / 1e6) + " million" : fmt::format("{:.0f}", rate); }

std::string on_saturation(const std::vector<Json>& rows) {
  const Saturation found = saturation(rows);
  const Json& last = rows.back();
  const double reached = number(last, "samples_per_s") / found.limit;
  const std::string law = found.lawful ? fmt::format("step time = {} + {} per sample ({}) gives a limit of {} samples/s",
                                                     duration_text(found.line.intercept), short_time(found.line.slope),
                                                     findings::quality(found.line.r2), rate_text(found.limit))
                                       : fmt::format(
                                             "the highest of {} samples/s is taken for the limit, since no line of step time "
                                             "over batch is claimed",
                                             rate_text(found.limit));
  if (found.batch > far * number(last, "batch")) {
    return fmt::format(
        "on {} at about batch {:.0f}, far beyond this table and so an extrapolation: {}, of which batch {} reaches {}{}",
        devices_text(last["devices"]), two_figures(found.batch), law, text(last, "batch"), percent(reached), origin_mark(rows));
  }
  return found.batch > number(last, "batch")
             ? fmt::format("on {} not in this table, but at about batch {:.0f}: {}, of which batch {} reaches {}{}",
                           devices_text(last["devices"]), found.batch, law, text(last, "batch"), percent(reached),
                           origin_mark(rows))
             : fmt::format("on {} at batch {:.0f}, within 5 % of the limit: {}{}", devices_text(last["devices"]), found.batch, law,
                           origin_mark(rows));
}

std::string when_saturated(const std::vector<Json>& rows) {
  const std::vector<Json> wide = by_batch(headline_rows(rows));
  if (wide.size() < 2) {
    return "";
  }
  std::string all = on_saturation(wide);
  const std::vector<Json> alone = by_batch(where(rows, "devices", 1));
  if (wide.front()["devices"] != 1 && alone.size() >= 2) {
    all += "; " + on_saturation(alone);
  }
  all[0] = 'O';
  return all + ".";
}

std::vector<std::string> details(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Scaled& one : scaled(rows)) {
    sentences.push_back(fmt::format("Gustafson's law: {}{}.", gustafson(one), origin_mark({one.row})));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment batch_scaling() {
  return {.id = "batch-scaling",
          .part = "A",
          .title = "Scaling the batch",
          .task =
              "The global batch grows ({batch}) on a fixed number of devices ({devices}); one device is measured too, for the "
              "efficiency.",
          .questions = {{"hw1/5B/Q1", "Does a larger batch improve scaling?", larger_batch},
                        {"hw1/5B/Q2", "When does performance saturate?", when_saturated}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"devices", "devices", {1, 4}, {1, 4}},
                   {"batch", "global batch", {32, 64, 128, 256}, {32, 64, 128, 256}}},
          .columns = {{"batch", "batch", Format::integer},
                      {"devices", "#devices", Format::integer},
                      time_column(),
                      {"samples_per_s", "samples/s", Format::integer},
                      {"efficiency", "efficiency", Format::percent}},
          .plots = {{.kind = Plot::Kind::line,
                     .title = "Throughput",
                     .x = "batch",
                     .y = "samples_per_s",
                     .x_title = "global batch",
                     .y_title = "samples/s",
                     .y_format = Format::number,
                     .series = "devices",
                     .log_x = true}},
          .open = open,
          // Speedup over one device with the same batch; efficiency is that over the number of devices.
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"model", "batch"});
              },
          .details = details};
}

}  // namespace baton::lab
