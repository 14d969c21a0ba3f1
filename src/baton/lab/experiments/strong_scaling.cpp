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
  return measure_training(words, settings, {.timeline = "ddp on " + text(point, "devices")});
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  const std::vector<Json> headline = headline_rows(beyond_base(rows));
  if (headline.empty()) {
    return {attribution(rows.back(), "The one point")};
  }
  const Json& last = headline.back();
  const double speedup = number(last, "speedup");
  sentences.push_back(fmt::format(
      "Is it linear? {}: {} devices are {:.2f} times as fast as {} where {:.3g} times would be linear, an efficiency of {}{}.",
      number(last, "efficiency") > 0.95 ? "Nearly" : "No", text(last, "devices"), speedup, text(last, "base_devices"),
      number(last, "devices") / number(last, "base_devices"), percent(number(last, "efficiency")), shared_cores_mark(headline)));
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double drop = number(rows[i - 1], "efficiency") - number(rows[i], "efficiency");
    if (drop > 0.05) {
      sentences.push_back(fmt::format("Efficiency drops from {} to {} between {} and {} devices.",
                                      percent(number(rows[i - 1], "efficiency")), percent(number(rows[i], "efficiency")),
                                      text(rows[i - 1], "devices"), text(rows[i], "devices")));
    }
  }
  for (std::size_t i = 1; i < rows.size(); ++i) {
    sentences.push_back(attribution(rows[i], "On " + text(rows[i], "devices") + " devices"));
  }
  const std::vector<Json> own_cores = with_own_cores(rows);
  const std::vector<Json>& fitted = own_cores.size() >= 2 ? own_cores : rows;
  const findings::Amdahl fit = findings::fit_amdahl(column(fitted, "devices"), column(fitted, "time_per_step_ns"));
  sentences.push_back(fmt::format("Amdahl's law through {} points{} gives a serial fraction of {}{}; {}.", fitted.size(),
                                  fitted.size() < rows.size() ? " (those with a core a device)" : "", serial_fraction(fit.serial),
                                  fit.serial >= 1 ? ""
                                  : fit.serial > 0.001
                                      ? fmt::format(", so that no number of devices would exceed {:.1f} times", fit.limit())
                                      : ", so no limit shows",
                                  fit.serial >= 1     ? "no fit is claimed"
                                  : fitted.size() < 3 ? "with two points the law always fits"
                                                      : findings::quality(fit.r2)));
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment strong_scaling() {
  return {.id = "strong-scaling",
          .part = "A",
          .title = "Strong scaling under DDP",
          .task = "The global batch stays at 64 while the number of devices grows.",
          .questions = {{"hw1/2/Q1", "Is scaling linear?", nullptr},
                        {"hw1/2/Q2", "Where does efficiency drop?", nullptr},
                        {"hw1/2/Q3", "Why, in numbers?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"batch", "global batch", {64}, {64}},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{"devices", "#devices", Format::integer},
                      time_column(),
                      {"speedup", "speedup", Format::ratio},
                      {"efficiency", "efficiency", Format::percent}},
          .plots = {speedup_plot(),
                    {.kind = Plot::Kind::line,
                     .title = "Efficiency",
                     .x = "devices",
                     .y = "efficiency",
                     .x_title = "devices",
                     .y_title = "efficiency",
                     .y_format = Format::percent,
                     .ideal = "flat",
                     .log_x = true},
                    {.kind = Plot::Kind::stacked,
                     .title = "Where the step goes",
                     .x = "devices",
                     .y = "time_per_step_ns",
                     .x_title = "devices",
                     .y_title = "time/step",
                     .y_format = Format::time,
                     .parts = {"compute_ns", "exposed_ns", "waiting_ns", "rest_ns"},
                     .part_titles = {"compute", "exposed communication", "waiting", "rest"}}},
          .open = open,
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"model", "batch"});
              },
          .details = find};
}

}  // namespace baton::lab
