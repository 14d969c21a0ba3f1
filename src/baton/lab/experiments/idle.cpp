#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string schedule = text(point, "schedule");
  if (schedule != "naive") {
    throw usage_error("there is no {} schedule yet, only the naive split", schedule);
  }
  JobWords words;
  words.model = text(point, "model");
  words.strategy = "layers";
  words.devices = workers(settings, whole(point, "devices", 1, 4096), 4);
  return measure_training(words, settings, {.timeline = fmt::format("{} on {}", schedule, text(point, "devices"))});
}

}  // namespace

Experiment idle() {
  return {.id = "idle",
          .part = "B",
          .title = "Winning back the idle time",
          .task = "The naive split leaves all but one device idle; pipeline schedules on the same model and devices.",
          .questions = {"How much of the idle time does each schedule win back, against its theoretical share?"},
          .axes = {{"model", "what is trained", {"mlp:dim=512,depth=8"}, {"mlp:dim=1024,depth=8"}},
                   {"devices", "devices", {2, 4}, {2, 4}},
                   {"schedule", "schedule", {"naive", "gpipe", "1f1b", "interleaved", "zero-bubble"},
                    {"naive", "gpipe", "1f1b", "interleaved", "zero-bubble"}}},
          .columns = {{"schedule", "schedule", Format::text}, {"devices", "#devices", Format::integer}, time_column(),
                      {"idle_share", "idle share", Format::percent}, {"theory", "in theory", Format::percent},
                      {"peak_bytes", "memory", Format::bytes}},
          .plots = {{.kind = Plot::Kind::bars, .title = "Idle share of the step", .x = "devices", .y = "idle_share",
                     .x_title = "devices", .y_title = "idle share", .y_format = Format::percent, .series = "schedule"}},
          .open = open,
          .derive = [](std::vector<Json>& rows) {
            for (Json& row : rows) {
              row["idle_share"] = 1 - number(row, "compute_ns") / number(row, "time_per_step_ns");
              row["theory"] = 1 - 1 / number(row, "devices");
            }
          },
          .findings = [](const std::vector<Json>& rows) {
            std::vector<std::string> sentences;
            for (const Json& row : rows) {
              sentences.push_back(fmt::format(
                  "The {} schedule over {} devices leaves them idle for {} of the step on the mean; (p−1)/p = {} is what one baton, "
                  "passed along, must leave.",
                  text(row, "schedule"), text(row, "devices"), percent(number(row, "idle_share")), percent(number(row, "theory"))));
            }
            if (const std::string note = sharing_note(rows); !note.empty()) {
              sentences.push_back(note);
            }
            return sentences;
          }};
}

}  // namespace baton::lab
