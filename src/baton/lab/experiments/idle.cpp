#include <fmt/format.h>

#include <algorithm>

#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

namespace baton::lab {
namespace {

/// A training whose schedule is also compared with what its grid leaves idle.
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
  job::JobSpec spec;
  spec.model = text(point, "model");
  take(spec, point, "batch");
  if (job::is_schedule_file(schedule)) {  // a file says itself how many micro-batches there are
    spec.schedule = schedule;
  } else {
    const std::string& named = schedule::schedule_by_name(schedule).name;
    spec.strategy = named == "naive" ? "layers" : named;
    spec.micro_batches = 1;
    if (named != "naive") {
      take(spec, point, "micro_batches");
    }
  }
  spec.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  const std::int64_t count = spec.micro_batches.value_or(1);
  const std::string batches = count == 1 ? "" : fmt::format(", {} micro-batches", count);
  return std::make_unique<IdleMeasurement>(
      spec, settings,
      TrainMeasurement::Options{.timeline = fmt::format("{} on {} devices{}", schedule, text(point, "devices"), batches)});
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

/// The rows that agree in what is not compared: the number of devices and of micro-batches.
std::vector<std::vector<Json>> alike(const std::vector<Json>& rows) {
  std::vector<std::vector<Json>> groups;
  for (const Json& devices : device_counts(rows)) {
    groups.push_back(where(rows, "devices", devices));
  }
  return groups;
}

bool is_naive(const Json& row) { return text(row, "schedule") == "naive"; }

/// The fastest schedule but the naive one; none if there is no other, or no naive one to compare with.
const Json* fastest(const std::vector<Json>& same) {
  const Json* best = nullptr;
  for (const Json& row : same) {
    if (row.contains("speedup") && !is_naive(row) && (best == nullptr || number(row, "speedup") > number(*best, "speedup"))) {
      best = &row;
    }
  }
  return best;
}

std::string verdict(const std::vector<Json>& same) {
  const Json* best = fastest(same);
  if (best == nullptr) {
    return "";
  }
  const Json naive = where(same, "schedule", "naive").front();
  const double speedup = number(*best, "speedup");
  const std::string idle = fmt::format("idle {} of the step ({} in theory) instead of {} ({})",
                                       percent(number(*best, "idle_share")), percent(number(*best, "theory")),
                                       percent(number(naive, "idle_share")), percent(number(naive, "theory")));
  const std::string where = fmt::format("On {} ", devices_text((*best)["devices"]));
  const std::string times = ratio_text(speedup) + " times as fast as the naive split";
  const std::size_t schedules = same.size() - 1;  // of which the fastest is chosen
  if (const findings::Difference apart = difference_of(*best, naive, schedules); !apart.differ) {
    return fmt::format("{}no schedule differs from the naive split beyond the noise; the fastest, {}, is {} ({}){}, {}.", where,
                       text(*best, "schedule"), times, tested_text(apart), origin_mark(same), idle);
  }
  if (speedup < 1) {
    return fmt::format("{}none: the fastest, {}, is slower, {}{}, {}.", where, text(*best, "schedule"), times, origin_mark(same),
                       idle);
  }
  std::vector<std::string> close;  // others that the noise does not tell from it
  for (const Json& row : same) {
    if (!is_naive(row) && text(row, "schedule") != text(*best, "schedule") && !differs(row, *best, pairs_among(schedules))) {
      close.push_back(text(row, "schedule"));
    }
  }
  return fmt::format("{}{} wins most back: {}{}, {}{}.", where, text(*best, "schedule"), times, origin_mark(same), idle,
                     close.empty() ? "" : "; within its noise: " + listing(close));
}

std::string won_back(const std::vector<Json>& rows) {
  std::string all;
  std::size_t told = 0;  // of the headline's number of devices and of one more; the table has the others
  for (const std::vector<Json>& same : alike(rows)) {
    const std::string sentence = verdict(same);
    if (!sentence.empty() && told < 2) {
      all += (all.empty() ? "" : " ") + sentence;
      ++told;
    }
  }
  return all;
}

std::string memory_cost(const std::vector<Json>& rows) {
  std::string all;
  std::size_t told = 0;
  for (const std::vector<Json>& same : alike(rows)) {
    const std::vector<Json> gpipe = where(same, "schedule", "gpipe");
    const std::vector<Json> one = where(same, "schedule", "1f1b");
    if (gpipe.empty() || one.empty() || told == 2) {
      continue;
    }
    ++told;
    const double ratio = number(gpipe.front(), "peak_bytes") / number(one.front(), "peak_bytes");
    all += fmt::format(
        "{}On {} gpipe needs {} and 1f1b {}, {} times: {}.", all.empty() ? "" : " ", devices_text(same.front()["devices"]),
        to_text(bytes_of(gpipe.front(), "peak_bytes")), to_text(bytes_of(one.front(), "peak_bytes")), ratio_text(ratio),
        ratio > 1.02 ? "gpipe keeps the activations of all micro-batches, 1f1b those of as many as there are stages to come"
                     : "parameters and gradients outweigh the activations that gpipe keeps longer");
  }
  return all;
}

/// Why a share is not that of theory; empty if it nearly is.
std::string beyond_theory(const Json& row) {
  const double measured = number(row, "idle_share");
  const double theory = number(row, "theory");
  const double step = number(row, "time_per_step_ns");
  if (measured < theory - 0.01) {
    return " (less, because a stage sends the gradient of its input before it computes that of its weights)";
  }
  return measured > theory + 0.05
             ? fmt::format(" (of the step {} went into waiting for other devices and {} into exposed messages)",
                           percent(number(row, "waiting_ns") / step), percent(number(row, "exposed_ns") / step))
             : "";
}

std::vector<std::string> details(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const std::vector<Json>& same : alike(rows)) {
    for (const Json& row : same) {
      std::string sentence = fmt::format(
          "{} over {}{}: idle for {} of the step, {} in theory{}; the fullest device holds {}.", text(row, "schedule"),
          devices_text(row["devices"]),
          whole(row, "micro_batches", 1, 1 << 20) > 1 ? fmt::format(" with {} micro-batches", text(row, "micro_batches")) : "",
          percent(number(row, "idle_share")), percent(number(row, "theory")), beyond_theory(row),
          to_text(bytes_of(row, "peak_bytes")));
      if (std::find(sentences.begin(), sentences.end(), sentence) == sentences.end()) {
        sentences.push_back(std::move(sentence));
      }
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
          .questions = {{"", "How much of the idle time does each schedule win back, against its theoretical share?", won_back},
                        {"", "What does it cost in memory?", memory_cost}},
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
                     .series = "devices",
                     .theory = "theory"},
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
          .details = details};
}

}  // namespace baton::lab
