#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

namespace baton::lab {
namespace {

/// A training whose schedule is also held against what its grid leaves idle.
class IdleMeasurement final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Json record() const override {
    Json record = TrainMeasurement::record();
    const strategy::Request& request = training().job().request();
    const schedule::Grid grid = strategy::grid_of(request, *strategy::strategy_by_name(request.strategy).layout());
    record["theory"] = schedule::replay(grid).idle_share();
    record["micro_batches"] = schedule::micro_batches(grid);
    record["stages"] = schedule::stages(grid);
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string schedule = text(point, "schedule");
  JobWords words;
  words.model = text(point, "model");
  words.batch = text(point, "batch");
  if (is_schedule_file(schedule)) {  // a file says itself how many micro-batches there are
    words.schedule = schedule;
  } else {
    const std::string& named = schedule::schedule_by_name(schedule).name;
    words.strategy = named == "naive" ? "layers" : named;
    words.micro_batches = named == "naive" ? "1" : text(point, "micro_batches");
  }
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  return std::make_unique<IdleMeasurement>(
      words, settings, TrainMeasurement::Options{.timeline = fmt::format("{} on {} devices", schedule, text(point, "devices"))});
}

void derive(std::vector<Json>& rows) {
  for (Json& row : rows) {
    row["idle_share"] = 1 - number(row, "compute_ns") / number(row, "time_per_step_ns");
    for (const Json& other : rows) {
      if (other["schedule"] == "naive" && other["devices"] == row["devices"]) {
        const double speedup = number(other, "time_per_step_ns") / number(row, "time_per_step_ns");
        row["speedup"] = speedup;
      }
    }
  }
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& devices : device_counts(rows)) {
    const std::vector<Json> same = where(rows, "devices", devices);
    const Json* best = nullptr;
    std::vector<std::string> each;
    for (const Json& row : same) {
      const double measured = number(row, "idle_share");
      const double theory = number(row, "theory");
      each.push_back(fmt::format(
          "{} over {} devices{}: idle for {} of the step, {} in theory{}; the fullest device holds {}.", text(row, "schedule"),
          text(row, "devices"),
          whole(row, "micro_batches", 1, 1 << 20) > 1 ? fmt::format(" with {} micro-batches", text(row, "micro_batches")) : "",
          percent(measured), percent(theory),
          measured < theory - 0.01 ? " (less, since a stage sends the gradient of its input before it works out that of its "
                                     "weights, and the stage before begins)"
          : measured > theory + 0.05
              ? fmt::format(" (of the step {} went into waiting for other devices and {} into messages that nothing hid)",
                            percent(number(row, "waiting_ns") / number(row, "time_per_step_ns")),
                            percent(number(row, "exposed_ns") / number(row, "time_per_step_ns")))
              : "",
          to_text(bytes_of(row, "peak_bytes"))));
      if (row.contains("speedup") && text(row, "schedule") != "naive" &&
          (best == nullptr || number(row, "speedup") > number(*best, "speedup"))) {
        best = &row;
      }
    }
    if (best != nullptr) {
      const std::vector<Json> naive = where(same, "schedule", "naive");
      const double speedup = number(*best, "speedup");
      std::string alike;  // others that the noise does not tell from it
      for (const Json& row : same) {
        if (text(row, "schedule") != "naive" && text(row, "schedule") != text(*best, "schedule") && !differs(row, *best)) {
          alike += (alike.empty() ? "" : ", ") + text(row, "schedule");
        }
      }
      sentences.push_back(
          speedup > 1 && differs(*best, naive.front())
              ? fmt::format(
                    "On {} devices {} is the fastest: {:.2f} times as fast as the naive split, which leaves all but one device "
                    "idle{}{}.",
                    text(*best, "devices"), text(*best, "schedule"), speedup,
                    alike.empty() ? "" : "; within the noise of it: " + alike, shared_cores_mark(same))
              : fmt::format(
                    "On {} devices no schedule is faster than the naive split here: the best, {}, reaches {:.2f} of its speed{}.",
                    text(*best, "devices"), text(*best, "schedule"), speedup, shared_cores_mark(same)));
    }
    sentences.insert(sentences.end(), each.begin(), each.end());
    const std::vector<Json> gpipe = where(same, "schedule", "gpipe");
    const std::vector<Json> one = where(same, "schedule", "1f1b");
    if (!gpipe.empty() && !one.empty()) {
      const double ratio = number(gpipe.front(), "peak_bytes") / number(one.front(), "peak_bytes");
      sentences.push_back(fmt::format(
          "On {} devices gpipe needs {:.2f} times the memory of 1f1b: {}.", devices.dump(), ratio,
          ratio > 1.02 ? "it keeps the activations of all micro-batches, 1f1b those of as many as there are stages to come"
                       : "parameters and gradients outweigh the activations it keeps longer"));
    }
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment idle() {
  const std::vector<Json> schedules{"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
  return {.id = "idle",
          .part = "B",
          .title = "Winning back the idle time",
          .task = "The naive split leaves all but one device idle; pipeline schedules on the same model and devices.",
          .questions = {{"", "How much of the idle time does each schedule win back, against its theoretical share?", nullptr},
                        {"", "What does it cost in memory?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=512,depth=8"}, {"mlp:dim=1024,depth=16"}},
                   {"batch", "global batch", {256}, {512}},
                   {"micro_batches", "micro-batches of a pipeline", {8}, {8, 16}},
                   {"devices", "devices", {2, 4}, {2, 4}},
                   {"schedule", "schedule", schedules, schedules}},
          .columns = {{"schedule", "schedule", Format::text},
                      {"devices", "#devices", Format::integer},
                      {"micro_batches", "micro-batches", Format::integer},
                      time_column(),
                      {"speedup", "vs. naive", Format::ratio},
                      {"idle_share", "idle share", Format::percent},
                      {"theory", "in theory", Format::percent},
                      {"peak_bytes", "memory", Format::bytes}},
          .plots = {{.kind = Plot::Kind::bars,
                     .title = "Idle share of the step",
                     .x = "schedule",
                     .y = "idle_share",
                     .x_title = "schedule",
                     .y_title = "idle share",
                     .y_format = Format::percent,
                     .series = "devices"},
                    {.kind = Plot::Kind::bars,
                     .title = "Memory of the fullest device",
                     .x = "schedule",
                     .y = "peak_bytes",
                     .x_title = "schedule",
                     .y_title = "memory",
                     .y_format = Format::bytes,
                     .series = "devices"}},
          .open = open,
          .derive = derive,
          .details = find};
}

}  // namespace baton::lab
