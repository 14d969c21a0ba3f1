#include <fmt/format.h>

#include <cmath>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.strategy = "ddp";
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  if (number(point, "delay_ms") > 0) {
    words.delay = fmt::format("before=backward,device=all,ms={}", text(point, "delay_ms"));
  }
  return measure_training(
      words, settings,
      {.timeline = number(point, "delay_ms") == 20 ? "20 ms before the backward on " + text(point, "devices") : ""});
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& count : values_of(rows, "devices")) {
    const std::vector<Json> here = where(rows, "devices", count);
    if (here.size() >= 3) {
      std::vector<double> milliseconds = column(here, "time_per_step_ns");
      for (double& time : milliseconds) {
        time /= 1e6;
      }
      const findings::Line line = findings::fit_line(column(here, "delay_ms"), milliseconds);
      sentences.push_back(fmt::format("On {} device{}, step time = {:.2f} ms + {:.2f} × delay, {}: the degradation is {}.",
                                      count.dump(), count == 1 ? "" : "s", line.intercept, line.slope, findings::quality(line.r2),
                                      line.r2 > 0.98 ? "linear" : "not linear"));
    }
  }
  for (const Json& delay : values_of(rows, "delay_ms")) {
    std::vector<Json> here;
    for (const Json& row : where(rows, "delay_ms", delay)) {
      if (!row.value("oversubscribed", false)) {
        here.push_back(row);
      }
    }
    if (here.size() >= 2) {
      const findings::Amdahl fit = findings::fit_amdahl(column(here, "devices"), column(here, "time_per_step_ns"));
      const double delayed = delay.get<double>() * 1e6 / number(here.front(), "time_per_step_ns");
      sentences.push_back(
          fmt::format("With {} ms the fitted serial fraction is {}; the delay is {} of the step of the fewest devices. {} devices "
                      "are {:.2f} times as fast as "
                      "{}.",
                      delay.dump(), percent(fit.serial), percent(delayed), text(here.back(), "devices"),
                      number(here.back(), "speedup"), text(here.back(), "base_devices")));
    }
  }
  const std::vector<Json> most = where(rows, "devices", values_of(rows, "devices").back());
  if (most.size() >= 2 && number(most.front(), "base_devices") < number(most.front(), "devices")) {
    const double before = number(most.front(), "speedup");
    const double after = number(most.back(), "speedup");
    sentences.push_back(
        fmt::format("From {} to {} ms the speedup of {} devices goes from {:.2f} to {:.2f}: {}.", text(most.front(), "delay_ms"),
                    text(most.back(), "delay_ms"), text(most.back(), "devices"), before, after,
                    std::abs(after - 1) < std::abs(before - 1)
                        ? "it nears 1, as a part that does not shrink with the devices, Amdahl's serial one, takes over the step"
                        : "it does not near 1, so the delay is not what decides the step here"));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment delay() {
  return {.id = "delay",
          .part = "A",
          .title = "A delay before the backward",
          .task = "Every device is delayed before its backward.",
          .questions = {"How does it affect scaling?", "Is the degradation linear?", "How does it relate to Amdahl's law?"},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"delay_ms", "delay in ms", {0, 5, 10, 20, 40}, {0, 5, 10, 20, 40}},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{"delay_ms", "delay (ms)", Format::number},
                      {"devices", "#devices", Format::integer},
                      time_column(),
                      {"speedup", "speedup", Format::ratio},
                      {"efficiency", "efficiency", Format::percent}},
          .plots = {time_plot(Plot::Kind::line, "Step time against the delay", "delay_ms", "delay (ms)", "devices"),
                    speedup_plot("delay_ms")},
          .open = open,
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"model", "delay_ms"});
              },
          .findings = find};
}

}  // namespace baton::lab
