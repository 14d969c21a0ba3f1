#include <fmt/format.h>

#include <algorithm>

#include "baton/findings/straggler.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.strategy = "ddp";
  words.devices = workers(settings, whole(point, "devices", 1, 4096), 4);
  if (number(point, "sleep_ms") > 0) {
    words.delay = fmt::format("before=backward,rank=0,ms={}", text(point, "sleep_ms"));
  }
  return measure_training(
      words, settings,
      {.timeline = number(point, "sleep_ms") > 0 ? fmt::format("rank 0 sleeps, {} workers", text(point, "devices")) : ""});
}

void derive(std::vector<Json>& rows) {
  for (Json& row : rows) {
    const Json devices = row["device_list"];  // a copy: adding to the row moves what it holds
    const double step = number(row, "time_per_step_ns");
    double longest = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      longest = std::max(longest, number(devices[d], "waiting"));
    }
    row["waiting_rank_0_ns"] = number(devices.at(0), "waiting") * step;
    row["waiting_others_ns"] = longest * step;
  }
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& count : values_of(rows, "devices")) {
    const std::vector<Json> here = where(rows, "devices", count);
    if (here.size() < 2) {
      continue;
    }
    const Json& even = here.front();
    const Json& uneven = here.back();
    const double longer = number(uneven, "time_per_step_ns") - number(even, "time_per_step_ns");
    const double slept = (number(uneven, "sleep_ms") - number(even, "sleep_ms")) * 1e6;
    if (slept <= 0) {
      continue;
    }
    sentences.push_back(
        fmt::format("On {} worker{} the step grows from {} to {} when rank 0 alone sleeps {} ms instead of {}: {} of the sleep "
                    "shows in the step of all.",
                    count.dump(), count == 1 ? "" : "s", to_text(time_of(even)), to_text(time_of(uneven)), text(uneven, "sleep_ms"),
                    text(even, "sleep_ms"), percent(longer / slept)));
    const Json& devices = uneven["device_list"];
    if (devices.size() > 1) {
      std::string each;
      for (std::size_t d = 0; d < devices.size(); ++d) {
        each += fmt::format(
            "{}rank {} {}", d == 0 ? "" : ", ", d,
            to_text(Nanoseconds(static_cast<std::int64_t>(number(devices[d], "waiting") * number(uneven, "time_per_step_ns")))));
      }
      bool on_zero = true;
      for (std::size_t d = 1; d < devices.size(); ++d) {
        on_zero = on_zero && number(devices[d], "waiting") > 2 * number(devices.at(0), "waiting");
      }
      sentences.push_back(
          fmt::format("Waiting a step: {}. {}", each,
                      on_zero ? "Every other rank waits for rank 0, since gradients can only be summed once all have come."
                              : "No rank stands out as the one waited for."));
    }
    if (const std::string late = findings::straggler(comers_of(uneven), time_of(uneven)); !late.empty()) {
      sentences.push_back("At the collectives: " + late);
    }
  }
  add_sharing_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment imbalance() {
  return {.id = "imbalance",
          .part = "A",
          .title = "One slow rank",
          .task = "Rank 0 sleeps 20 ms in each step.",
          .questions = {"What happens to the total?", "What does it say of synchronisation?"},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"devices", "workers", {1, 2, 4}, {1, 2, 4}},
                   {"sleep_ms", "sleep of rank 0 in ms", {0, 20}, {0, 20}}},
          .columns = {{"devices", "#devices", Format::integer},
                      {"sleep_ms", "rank 0 sleeps (ms)", Format::number},
                      time_column(),
                      {"waiting_rank_0_ns", "rank 0 waits", Format::time},
                      {"waiting_others_ns", "others wait", Format::time}},
          .plots = {{.kind = Plot::Kind::stacked,
                     .title = "Where the step goes (mean over ranks)",
                     .x = "label",
                     .y = "time_per_step_ns",
                     .x_title = "devices, sleep",
                     .y_title = "time/step",
                     .y_format = Format::time,
                     .parts = {"compute_ns", "exposed_ns", "waiting_ns", "delayed_ns", "rest_ns"},
                     .part_titles = {"compute", "exposed communication", "waiting", "sleep", "other"}}},
          .open = open,
          .derive =
              [](std::vector<Json>& rows) {
                derive(rows);
                for (Json& row : rows) {
                  row["label"] = fmt::format("{} dev., {} ms", text(row, "devices"), text(row, "sleep_ms"));
                }
              },
          .findings = find};
}

}  // namespace baton::lab
