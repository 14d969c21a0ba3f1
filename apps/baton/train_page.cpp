#include "train_page.h"

#include <fmt/format.h>

#include "baton/base/text.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "baton/lab/store.h"
#include "baton/lab/train_measurement.h"
#include "baton/measure/environment.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "baton/training/training_json.h"
#include "baton/training/training_record.h"
#include "summary.h"

namespace baton::app {
namespace {

namespace key = lab::key;
using LogLine = key::LogLine;

/// The record that the laboratory keeps of a training, as a row with the timeline of a step; and a row per device.
std::vector<lab::Result> step_results(const training::Training& run, const std::string& command) {
  if (run.timed().empty() || run.trace().steps.empty()) {
    return {};
  }
  lab::Record record = training::training_record(run);
  record.update({key::strategy(run.job().request().strategy.name()),
                 key::devices(static_cast<std::int64_t>(run.job().cluster().size())), key::stopped("once"),
                 key::timeline(training::timeline_json(run, run.plan().title()))});
  std::vector<lab::Record> devices = record[key::device_list];
  for (lab::Record& device : devices) {
    device.set(key::device, lab::text(device, key::name));
  }
  const auto step = std::make_shared<const lab::Experiment>(
      lab::Experiment{.id = "step",
                      .part = "",
                      .title = "One step",
                      .task = "How long a step takes and where it goes: the mean over devices and traced steps.",
                      .questions = {},
                      .axes = {},
                      .columns = {{key::strategy, "strategy", lab::Format::text},
                                  {key::devices, "devices", lab::Format::integer},
                                  {key::global_batch, "global batch", lab::Format::integer},
                                  lab::time_column(),
                                  {key::samples_per_s, "samples/s", lab::Format::rate},
                                  {key::compute_ns, "computing", lab::Format::time},
                                  {key::exposed_ns, "exposed communication", lab::Format::time},
                                  {key::waiting_ns, "waiting", lab::Format::time},
                                  {key::sent_bytes, "sent", lab::Format::bytes},
                                  {key::peak_bytes, "memory", lab::Format::bytes}},
                      .plots = {lab::device_plot("Where the step of each device went")},
                      .open = {},
                      .derive = {},
                      .details = {}});
  const auto by_device = std::make_shared<const lab::Experiment>(
      lab::Experiment{.id = "devices",
                      .part = "",
                      .title = "Devices",
                      .task = "What each device did in a step, and the memory that it needs.",
                      .questions = {},
                      .axes = {},
                      .columns = {{key::device, "device", lab::Format::text},
                                  {key::tasks, "tasks", lab::Format::integer},
                                  {key::busy, "computing", lab::Format::percent},
                                  {key::exposed, "exposed communication", lab::Format::percent},
                                  {key::waiting, "waiting", lab::Format::percent},
                                  {key::sent_bytes, "sent", lab::Format::bytes},
                                  {key::received_bytes, "received", lab::Format::bytes},
                                  {key::peak_bytes, "memory", lab::Format::bytes}},
                      .plots = {},
                      .open = {},
                      .derive = {},
                      .details = {}});
  return {lab::conclude(step, {lab::Point()}, {std::move(record)}, command, lab::Preset::quick),
          {.experiment = by_device, .rows = std::move(devices), .answers = {}, .details = {}, .timelines = {}, .command = command}};
}

/// " Lowest at step 500: 0.384; it rose since": if the loss on the validation part is clearly above its lowest at the end.
std::string on_lowest(const std::vector<lab::Record>& rows) {
  constexpr double clearly = 1.01;
  std::optional<double> lowest;
  std::int64_t step_of_lowest = 0;
  double last = 0;
  std::optional<double> trained;  // the loss in training, as far as the rows were read
  std::optional<double> trained_at_lowest;
  for (const lab::Record& row : rows) {
    if (const std::optional<double> loss = row.value(LogLine::loss, std::nullopt)) {
      trained = loss;
    }
    if (const std::optional<double> loss = row.value(LogLine::eval_loss, std::nullopt)) {
      last = *loss;
      if (!lowest || *loss < *lowest) {
        lowest = loss;
        step_of_lowest = row[LogLine::step];
        trained_at_lowest = trained;
      }
    }
  }
  if (!lowest || last <= clearly * *lowest) {
    return "";
  }
  const bool overfits = trained && trained_at_lowest && *trained < *trained_at_lowest;
  return fmt::format(" Lowest at step {}: {}; it rose since{} (`--keep-best` keeps the best weights).", step_of_lowest,
                     loss_text(*lowest), overfits ? ": the model overfits" : "");
}

/// A plot over the steps of a column of the training and one of its evaluations; either may be empty.
lab::Plot plot_over_steps(const std::string& title, const std::string& y_title, lab::Format format, const std::string& trained,
                          const std::string& evaluated) {
  lab::Plot plot;
  plot.title = title;
  plot.x = LogLine::step;
  plot.y = key::y;
  plot.x_title = "step";
  plot.y_title = y_title;
  plot.y_format = format;
  plot.x_format = lab::Format::integer;
  plot.series = key::data;
  plot.points = [trained, evaluated](const std::vector<lab::Record>& rows) {
    std::vector<lab::Record> list;
    for (const lab::Record& row : rows) {
      for (const auto& [from, series] : {std::pair(trained, "training"), std::pair(evaluated, "validation")}) {
        if (const std::optional<double> value = lab::number_in(row, from)) {
          list.push_back({LogLine::step(row[LogLine::step]), key::y(*value), key::data(series)});
        }
      }
    }
    return list;
  };
  return plot;
}

std::vector<lab::Plot> curves_of(bool reads_tokens) {
  return {plot_over_steps("Loss", "loss", lab::Format::number, LogLine::loss, LogLine::eval_loss),
          plot_over_steps("Accuracy", "accuracy", lab::Format::percent, "", LogLine::eval_accuracy),
          plot_over_steps("Perplexity", "perplexity", lab::Format::number, "", LogLine::eval_perplexity),
          plot_over_steps("Learning rate", "learning rate", lab::Format::number, LogLine::lr, ""),
          plot_over_steps("Speed", reads_tokens ? "tokens/s" : "samples/s", lab::Format::rate,
                          reads_tokens ? LogLine::tokens_per_s : LogLine::samples_per_s, "")};
}

/// The lines of the log as a table and its curves.
lab::Result log_result(const TrainLog& log, const std::string& command) {
  const auto experiment = std::make_shared<const lab::Experiment>(
      lab::Experiment{.id = "training",
                      .part = "",
                      .title = "Training",
                      .task = fmt::format("Train {}.", log.run().plan().title()),
                      .questions = {},
                      .axes = {},
                      .columns = {{LogLine::step, "step", lab::Format::integer},
                                  {LogLine::epoch, "epoch", lab::Format::rate, true},
                                  {LogLine::loss, "loss", lab::Format::number, true},
                                  {LogLine::lr, "learning rate", lab::Format::number, true},
                                  {LogLine::samples_per_s, "samples/s", lab::Format::rate, true},
                                  {LogLine::tokens_per_s, "tokens/s", lab::Format::rate, true},
                                  {LogLine::mfu, "MFU", lab::Format::percent, true},
                                  {LogLine::data_wait, "waited for data", lab::Format::percent, true},
                                  {LogLine::eval_loss, "validation loss", lab::Format::number, true},
                                  {LogLine::eval_perplexity, "perplexity", lab::Format::number, true},
                                  {LogLine::eval_accuracy, "accuracy", lab::Format::percent, true}},
                      .plots = curves_of(tokens_of_a_sample(log.run().job()) > 0),
                      .open = {},
                      .derive = {},
                      .details = {}});
  return {.experiment = experiment, .rows = log.rows(), .answers = {}, .details = {}, .timelines = {}, .command = command};
}

/// The quality of the trained model, by its last evaluation; empty if it was not evaluated.
std::string quality_text(const training::Training& run, const std::vector<lab::Record>& rows) {
  if (run.evaluations().empty()) {
    return "";
  }
  const training::Evaluation& last = run.evaluations().back();
  return fmt::format("After step {} the loss on {} samples that it was not trained on is {}{}{}.{}", last.step, last.samples,
                     loss_text(last.loss), last.accuracy ? fmt::format(", the accuracy {}", lab::percent(*last.accuracy)) : "",
                     last.perplexity ? fmt::format(", the perplexity {:.4g}", *last.perplexity) : "", on_lowest(rows));
}

lab::RunSpec spec_of_page(const training::Training& run, const std::string& command) {
  lab::RunSpec spec;
  spec.title = fmt::format("Training of {}", run.job().model().name());
  spec.run_command = command;
  spec.created = time_text();
  spec.environment = measure::environment(run.job().machine());
  return spec;
}

}  // namespace

std::string training_page(const TrainLog& log, const std::string& command) {
  const training::Training& run = log.run();
  std::vector<lab::Result> results = step_results(run, command);
  results.insert(results.begin(), log_result(log, command));
  lab::Json headline = lab::Json::array();
  if (const std::string text = quality_text(run, results.front().rows); !text.empty()) {
    headline.push_back({{"question", "How good is it?"}, {"text", text}});
  }
  lab::Json report = report::to_report(results, spec_of_page(run, command));
  report["preset"] = "";  // a training has none
  report["experiments"][0]["plots_first"] = true;
  report["headline"] = headline;
  for (lab::Json& one : report["experiments"]) {
    one["part_title"] = "Results";
  }
  return report::to_page(report);
}

}  // namespace baton::app
