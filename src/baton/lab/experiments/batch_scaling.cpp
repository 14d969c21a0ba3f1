#include <fmt/format.h>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
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

/// Speedup over one device with the same batch; efficiency is that over the number of devices.
void derive(std::vector<Json>& rows) { add_speedup(rows, {"model", "batch"}); }

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  const std::vector<Json> wide = headline_rows(rows);
  if (wide.size() < 2) {
    return {attribution(rows.back(), "The one point")};
  }
  const Json& first = wide.front();
  const Json& last = wide.back();
  sentences.push_back(fmt::format(
      "Does a larger batch scale better? {}: from batch {} to {} efficiency on {} devices goes from {} to {}, and "
      "throughput from {:.0f} "
      "to {:.0f} samples/s{}.",
      number(last, "efficiency") > number(first, "efficiency") + 0.02 ? "Yes" : "Not here", text(first, "batch"),
      text(last, "batch"), text(last, "devices"), percent(number(first, "efficiency")), percent(number(last, "efficiency")),
      number(first, "samples_per_s"), number(last, "samples_per_s"), shared_cores_mark(wide)));
  std::string saturation = fmt::format("Throughput has not saturated at batch {}: the last step up still gave {} more samples/s.",
                                       text(last, "batch"),
                                       percent(number(last, "samples_per_s") / number(wide[wide.size() - 2], "samples_per_s") - 1));
  for (std::size_t i = 1; i < wide.size(); ++i) {
    const double gain = number(wide[i], "samples_per_s") / number(wide[i - 1], "samples_per_s") - 1;
    if (gain < 0.1) {
      saturation = fmt::format("Throughput saturates at about batch {}: going on to {} changes it by {}.",
                               text(wide[i - 1], "batch"), text(wide[i], "batch"), percent(gain));
      break;
    }
  }
  sentences.push_back(saturation);
  std::vector<double> times = column(wide, "time_per_step_ns");
  const findings::Line line = findings::fit_line(column(wide, "batch"), times);
  if (wide.size() >= 3 && line.intercept > 0) {
    sentences.push_back(fmt::format(
        "Step time = {} + {} a sample, {}: the first part is what a step costs whatever its batch (weights, gradients, messages), "
        "and a larger batch spreads it thinner.",
        to_text(Nanoseconds(static_cast<std::int64_t>(line.intercept))),
        to_text(Nanoseconds(static_cast<std::int64_t>(line.slope))), findings::quality(line.r2)));
  }
  // Gustafson: one device with its share of the batch against all of them with the whole.
  const std::vector<Json> alone = where(rows, "devices", 1);
  std::vector<double> n;
  std::vector<double> scaled;
  std::vector<Json> compared;
  for (const Json& one : alone) {
    for (const Json& row : rows) {
      if (number(row, "devices") > 1 && number(row, "batch") == number(one, "batch") * number(row, "devices")) {
        compared.push_back(row);
        n.push_back(number(row, "devices"));
        scaled.push_back(number(row, "samples_per_s") / number(one, "samples_per_s"));
      }
    }
  }
  if (!n.empty()) {
    const findings::Gustafson fit = findings::fit_gustafson(n, scaled);
    sentences.push_back(
        fmt::format("Gustafson's view, with the batch growing with the devices: {} devices process {:.2f} times the samples of one "
                    "with its share{}, a "
                    "serial fraction of {}.",
                    static_cast<int>(n.back()), scaled.back(), shared_cores_mark(compared), serial_fraction(fit.serial)));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment batch_scaling() {
  return {.id = "batch-scaling",
          .part = "A",
          .title = "Scaling the batch",
          .task = "The number of devices stays at 4 while the global batch grows; one device stands beside it for the efficiency.",
          .questions = {{"hw1/5B/Q1", "Does a larger batch improve scaling?", nullptr},
                        {"hw1/5B/Q2", "When does performance saturate?", nullptr}},
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
          .derive = derive,
          .details = find};
}

}  // namespace baton::lab
