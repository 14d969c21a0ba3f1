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

/// A training whose schedule is also compared with the idle share of its grid.
class IdleMeasurement final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Record record() const override {
    Record record = TrainMeasurement::record();
    const schedule::Grid grid = strategy::grid_of(training().job().request()).value();
    record.set(key::theory, schedule::replay(grid).idle_share());
    record.set(key::micro_batches, schedule::micro_batches(grid));
    record.set(key::stages, schedule::stages(grid));
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string schedule = text(point, key::schedule);
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::batch);
  if (job::is_schedule_file(schedule)) {  // a file says itself how many micro-batches there are
    spec.schedule = schedule;
  } else {
    const std::string& named = schedule::schedule_by_name(schedule).name;
    spec.strategy = named == "naive" ? "layers" : named;
    spec.micro_batches = 1;
    if (named != "naive") {
      take(spec, point, key::micro_batches);
    }
  }
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  const std::int64_t count = spec.micro_batches.value_or(1);
  const std::string batches = count == 1 ? "" : fmt::format(", {} micro-batches", count);
  return std::make_unique<IdleMeasurement>(
      spec, settings,
      TrainMeasurement::Options{.timeline = fmt::format("{} on {} devices{}", schedule, text(point, key::devices), batches)});
}

void derive(std::vector<Record>& rows) {
  for (Record& row : rows) {
    row.set(key::idle_share, 1 - number(row, key::compute_ns) / number(row, key::time_per_step_ns));
    for (const Record& other : rows) {
      if (other[key::schedule] == "naive" && other[key::devices] == row[key::devices]) {
        const double speedup = number(other, key::time_per_step_ns) / number(row, key::time_per_step_ns);
        row.set(key::speedup, speedup);
      }
    }
  }
}

/// The rows that agree in the numbers of devices and of micro-batches, which are not compared.
std::vector<std::vector<Record>> alike(const std::vector<Record>& rows) {
  std::vector<std::vector<Record>> groups;
  for (const std::int64_t devices : device_counts(rows)) {
    groups.push_back(rows_with(rows, key::devices, devices));
  }
  return groups;
}

bool is_naive(const Record& row) { return text(row, key::schedule) == "naive"; }

/// The fastest schedule but the naive one; none if there is no other, or no naive one to compare with.
const Record* fastest(const std::vector<Record>& same) {
  const Record* best = nullptr;
  for (const Record& row : same) {
    if (row.has(key::speedup) && !is_naive(row) && (best == nullptr || number(row, key::speedup) > number(*best, key::speedup))) {
      best = &row;
    }
  }
  return best;
}

std::string verdict(const std::vector<Record>& same) {
  const Record* best = fastest(same);
  if (best == nullptr) {
    return "";
  }
  const Record naive = rows_with(same, key::schedule, "naive").front();
  const double speedup = number(*best, key::speedup);
  const std::string idle = fmt::format("idle {} of the step ({} in theory) instead of {} ({})",
                                       percent(number(*best, key::idle_share)), percent(number(*best, key::theory)),
                                       percent(number(naive, key::idle_share)), percent(number(naive, key::theory)));
  const std::string where = fmt::format("On {} ", devices_text((*best)[key::devices]));
  const std::string times = ratio_text(speedup) + " times as fast as the naive split";
  const std::size_t schedules = same.size() - 1;  // the fastest of these is chosen
  if (const findings::Difference apart = difference_of(*best, naive, schedules); !apart.differ) {
    return fmt::format("{}no schedule differs from the naive split beyond the noise; the fastest, {}, is {} ({}){}, {}.", where,
                       text(*best, key::schedule), times, tested_text(apart), origin_mark(same), idle);
  }
  if (speedup < 1) {
    return fmt::format("{}none: the fastest, {}, is slower, {}{}, {}.", where, text(*best, key::schedule), times, origin_mark(same),
                       idle);
  }
  std::vector<std::string> close;  // others that the noise does not tell from it
  for (const Record& row : same) {
    if (!is_naive(row) && text(row, key::schedule) != text(*best, key::schedule) && !differs(row, *best, pairs_among(schedules))) {
      close.push_back(text(row, key::schedule));
    }
  }
  return fmt::format("{}{} wins most back: {}{}, {}{}.", where, text(*best, key::schedule), times, origin_mark(same), idle,
                     close.empty() ? "" : "; no difference beyond the noise from " + listing(close));
}

std::string won_back(const std::vector<Record>& rows) {
  std::string all;
  std::size_t told = 0;  // sentences so far: for the headline's number of devices and for one more; the table has the others
  for (const std::vector<Record>& same : alike(rows)) {
    const std::string sentence = verdict(same);
    if (!sentence.empty() && told < 2) {
      all += (all.empty() ? "" : " ") + sentence;
      ++told;
    }
  }
  return all;
}

std::string memory_cost(const std::vector<Record>& rows) {
  std::string all;
  std::size_t told = 0;
  for (const std::vector<Record>& same : alike(rows)) {
    const std::vector<Record> gpipe = rows_with(same, key::schedule, "gpipe");
    const std::vector<Record> one = rows_with(same, key::schedule, "1f1b");
    if (gpipe.empty() || one.empty() || told == 2) {
      continue;
    }
    ++told;
    const double ratio = number(gpipe.front(), key::peak_bytes) / number(one.front(), key::peak_bytes);
    all += fmt::format(
        "{}On {} gpipe needs {} and 1f1b {}, {} times: {}.", all.empty() ? "" : " ", devices_text(same.front()[key::devices]),
        to_text(bytes_of(gpipe.front(), key::peak_bytes)), to_text(bytes_of(one.front(), key::peak_bytes)), ratio_text(ratio),
        ratio > 1.02 ? "gpipe keeps the activations of all micro-batches, 1f1b those of at most as many as there are stages"
                     : "parameters and gradients outweigh the activations that gpipe keeps longer");
  }
  return all;
}

/// The reason for which a share is not that of theory; empty if it nearly is.
std::string beyond_theory(const Record& row) {
  const double measured = number(row, key::idle_share);
  const double theory = number(row, key::theory);
  const double step = number(row, key::time_per_step_ns);
  if (measured < theory - 0.01) {
    return " (less, because a stage sends the gradient of its input before it computes that of its weights)";
  }
  return measured > theory + 0.05
             ? fmt::format(" (of the step {} went into waiting for other devices and {} into exposed messages)",
                           percent(number(row, key::waiting_ns) / step), percent(number(row, key::exposed_ns) / step))
             : "";
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const std::vector<Record>& same : alike(rows)) {
    for (const Record& row : same) {
      std::string sentence = fmt::format(
          "{} over {}{}: idle for {} of the step, {} in theory{}; the fullest device holds {}.", text(row, key::schedule),
          devices_text(row[key::devices]),
          row[key::micro_batches] > 1 ? fmt::format(" with {} micro-batches", text(row, key::micro_batches)) : "",
          percent(number(row, key::idle_share)), percent(number(row, key::theory)), beyond_theory(row),
          to_text(bytes_of(row, key::peak_bytes)));
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
  const std::vector<job::FieldValue> schedules{"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
  return {.id = "idle",
          .part = "B",
          .title = "Winning back the idle time",
          .task = "The naive split leaves all but one device idle; pipeline schedules on the same model and devices.",
          .questions = {{"", "How much of the idle time does each schedule win back, against its theoretical share?", won_back},
                        {"", "What does it cost in memory?", memory_cost}},
          .axes = {{key::model, "what is trained", {"mlp:dim=512,depth=8"}, {"mlp:dim=1024,depth=16"}},
                   {key::batch, "global batch", {256}, {512}},
                   {key::micro_batches, "micro-batches of a pipeline", {8}, {8, 16}},
                   {key::devices, "devices", {2, 4}, {2, 4}},
                   {key::schedule, "schedule", schedules, schedules}},
          .columns = {{key::schedule, "schedule", Format::text},
                      {key::devices, "#devices", Format::integer},
                      {key::micro_batches, "micro-batches", Format::integer},
                      time_column(),
                      {key::speedup, "vs. naive", Format::ratio},
                      {key::idle_share, "idle share", Format::percent},
                      {key::theory, "in theory", Format::percent},
                      {key::peak_bytes, "memory", Format::bytes}},
          .plots = {{.kind = Plot::Type::bars,
                     .title = "Idle share of the step",
                     .x = key::schedule,
                     .y = key::idle_share,
                     .x_title = "schedule",
                     .y_title = "idle share",
                     .y_format = Format::percent,
                     .series = key::devices,
                     .theory = key::theory},
                    {.kind = Plot::Type::bars,
                     .title = "Memory of the fullest device",
                     .x = key::schedule,
                     .y = key::peak_bytes,
                     .x_title = "schedule",
                     .y_title = "memory",
                     .y_format = Format::bytes,
                     .series = key::devices}},
          .open = open,
          .derive = derive,
          .details = details};
}

}  // namespace baton::lab
