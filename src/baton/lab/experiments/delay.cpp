#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/findings/fits.h"
#include "baton/findings/straggler.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// A delay before the backward of a device or of all, named in the report by `timeline`.
std::unique_ptr<Measurement> open_delayed(const Point& point, const Settings& settings, std::string_view device,
                                          std::string timeline) {
  JobWords words;
  words.model = text(point, "model");
  words.strategy = "ddp";
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  if (number(point, "delay_ms") > 0) {
    words.delay = fmt::format("before=backward,device={},ms={}", device, text(point, "delay_ms"));
  }
  return measure_training(words, settings, {.timeline = std::move(timeline)});
}

std::unique_ptr<Measurement> open_delay(const Point& point, const Settings& settings) {
  return open_delayed(point, settings, "all",
                      number(point, "delay_ms") == 20 ? "20 ms before the backward on " + text(point, "devices") : "");
}

std::unique_ptr<Measurement> open_imbalance(const Point& point, const Settings& settings) {
  return open_delayed(point, settings, "0",
                      number(point, "delay_ms") > 0 ? fmt::format("device 0 is delayed, {} devices", text(point, "devices")) : "");
}

std::vector<std::string> find_delay(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& count : device_counts(rows)) {
    const std::vector<Json> here = where(rows, "devices", count);
    if (here.size() >= 3) {
      std::vector<double> milliseconds = column(here, "time_per_step_ns");
      for (double& time : milliseconds) {
        time /= 1e6;
      }
      const findings::Line line = findings::fit_line(column(here, "delay_ms"), milliseconds);
      sentences.push_back(fmt::format("On {} device{}, step time = {:.2f} ms + {:.2f} × delay, {}: the degradation is {}{}.",
                                      count.dump(), count == 1 ? "" : "s", line.intercept, line.slope, findings::quality(line.r2),
                                      line.r2 > 0.98 ? "linear" : "not linear", shared_cores_mark(here)));
    }
  }
  for (const Json& delay : values_of(rows, "delay_ms")) {
    const std::vector<Json> here = with_own_cores(where(rows, "delay_ms", delay));
    if (here.size() >= 2) {
      const findings::Amdahl fit = findings::fit_amdahl(column(here, "devices"), column(here, "time_per_step_ns"));
      const double delayed = delay.get<double>() * 1e6 / number(here.front(), "time_per_step_ns");
      sentences.push_back(
          fmt::format("With {} ms the fitted serial fraction is {}; the delay is {} of the step of the fewest devices. {} devices "
                      "are {:.2f} times as fast as "
                      "{}.",
                      delay.dump(), serial_fraction(fit.serial), percent(delayed), text(here.back(), "devices"),
                      number(here.back(), "speedup"), text(here.back(), "base_devices")));
    }
  }
  if (const std::vector<Json> most = headline_rows(beyond_base(rows)); most.size() >= 2) {
    const double before = number(most.front(), "speedup");
    const double after = number(most.back(), "speedup");
    sentences.push_back(
        fmt::format("From {} to {} ms the speedup of {} devices goes from {:.2f} to {:.2f}: {}{}.", text(most.front(), "delay_ms"),
                    text(most.back(), "delay_ms"), text(most.back(), "devices"), before, after,
                    std::abs(after - 1) < std::abs(before - 1)
                        ? "it nears 1, as a part that does not shrink with the devices, Amdahl's serial one, takes over the step"
                        : "it does not near 1, so the delay is not what decides the step here",
                    shared_cores_mark(most)));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

void derive_waiting(std::vector<Json>& rows) {
  for (Json& row : rows) {
    const Json devices = row["device_list"];  // a copy: adding to the row moves what it holds
    const double step = number(row, "time_per_step_ns");
    double longest = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      longest = std::max(longest, number(devices[d], "waiting"));
    }
    row["waiting_device_0_ns"] = number(devices.at(0), "waiting") * step;
    row["waiting_others_ns"] = longest * step;
  }
}

/// What is to be said of a step that grew by clearly more than the delay.
std::string beyond_the_delay(const Json& even, const Json& uneven, double delayed) {
  if (number(uneven, "time_per_step_ns") - number(even, "time_per_step_ns") <= 1.02 * delayed) {
    return "";
  }
  return number(uneven, "time_low_ns") - number(even, "time_high_ns") <= delayed
             ? ", which is all of it within the noise"
             : "; what goes beyond all of it is not the delay's but that of noise or of other work on the machine";
}

std::vector<std::string> find_imbalance(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& count : device_counts(rows)) {
    const std::vector<Json> here = where(rows, "devices", count);
    if (here.size() < 2) {
      continue;
    }
    const Json& even = here.front();
    const Json& uneven = here.back();
    const double longer = number(uneven, "time_per_step_ns") - number(even, "time_per_step_ns");
    const double delayed = (number(uneven, "delay_ms") - number(even, "delay_ms")) * 1e6;
    if (delayed <= 0) {
      continue;
    }
    sentences.push_back(fmt::format(
        "On {} device{} the step grows from {} to {} when device 0 alone is delayed by {} ms instead of {}: {} of the delay "
        "shows in the step of all{}{}.",
        count.dump(), count == 1 ? "" : "s", to_text(time_of(even)), to_text(time_of(uneven)), text(uneven, "delay_ms"),
        text(even, "delay_ms"), percent(longer / delayed), beyond_the_delay(even, uneven, delayed), shared_cores_mark(here)));
    const std::vector<findings::Comer> comers = comers_of(uneven);
    const findings::Comer* late = findings::latest(comers, time_of(uneven));
    const Json& devices = uneven["device_list"];
    if (devices.size() > 1) {
      std::string each;
      for (std::size_t d = 0; d < devices.size(); ++d) {
        each += fmt::format(
            "{}device {} {}", d == 0 ? "" : ", ", d,
            to_text(Nanoseconds(static_cast<std::int64_t>(number(devices[d], "waiting") * number(uneven, "time_per_step_ns")))));
      }
      bool on_zero = comers.empty() || late == &comers.front();
      for (std::size_t d = 1; d < devices.size(); ++d) {
        on_zero = on_zero && number(devices[d], "waiting") > 2 * number(devices.at(0), "waiting");
      }
      sentences.push_back(
          fmt::format("Waiting a step: {}. {}", each,
                      on_zero ? "Every other device waits for device 0, since gradients can only be summed once all have come."
                      : late == nullptr ? "No device stands out as the one waited for."
                                        : "It is not device 0 that the others wait for."));
    }
    if (const std::string sentence = findings::straggler(comers, time_of(uneven)); !sentence.empty()) {
      sentences.push_back(sentence);
    }
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
          .questions = {{"hw1/5A/Q1", "How does the delay affect scaling?", nullptr},
                        {"hw1/5A/Q2", "Does speedup degrade linearly or non-linearly?", nullptr},
                        {"hw1/5A/Q3", "How does it relate to Amdahl's law?", nullptr}},
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
          .open = open_delay,
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"model", "delay_ms"});
              },
          .details = find_delay};
}

Experiment imbalance() {
  return {.id = "imbalance",
          .part = "A",
          .title = "One slow device",
          .task = "Device 0 is delayed by 20 ms in each step.",
          .questions = {{"hw1/5C/Q1", "What happens to overall training time?", nullptr},
                        {"hw1/5C/Q2", "What does it reveal about synchronization?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}},
                   {"delay_ms", "delay of device 0 in ms", {0, 20}, {0, 20}}},
          .columns = {{"devices", "#devices", Format::integer},
                      {"delay_ms", "delay of device 0 (ms)", Format::number},
                      time_column(),
                      {"waiting_device_0_ns", "device 0 waits", Format::time},
                      {"waiting_others_ns", "others wait", Format::time}},
          .plots = {{.kind = Plot::Kind::stacked,
                     .title = "Where the step goes (mean over devices)",
                     .x = "label",
                     .y = "time_per_step_ns",
                     .x_title = "devices, delay",
                     .y_title = "time/step",
                     .y_format = Format::time,
                     .parts = {"compute_ns", "exposed_ns", "waiting_ns", "delayed_ns", "rest_ns"},
                     .part_titles = {"compute", "exposed communication", "waiting", "delayed", "rest"}}},
          .open = open_imbalance,
          .derive =
              [](std::vector<Json>& rows) {
                derive_waiting(rows);
                for (Json& row : rows) {
                  row["label"] = fmt::format("{} dev., {} ms", text(row, "devices"), text(row, "delay_ms"));
                }
              },
          .details = find_imbalance};
}

}  // namespace baton::lab
