#include "train_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/job/step_json.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "baton/lab/store.h"
#include "baton/lab/train_measurement.h"
#include "baton/measure/environment.h"
#include "baton/op/rate.h"
#include "baton/report/page.h"
#include "baton/report/report.h"
#include "baton/training/training_json.h"
#include "summary.h"

namespace baton::app {
namespace {

using lab::Json;
namespace key = lab::key;

/// The settings of a training: those of a job without the settings of simulations, which `train` does not take. Their columns are
/// named `trained_` like those of experiments, since some of them are also measured.
Json settings_of(const training::Job& job) {
  const Json all = job::settings_json(job.spec(), job.request().step.optimizer);
  Json settings;
  for (const auto& [name, value] : all.items()) {
    if (name != "cluster" && name != "software" && name != "what-if" && name != "fold") {
      std::string key = "trained_" + name;
      std::replace(key.begin(), key.end(), '-', '_');
      settings[key] = value;
    }
  }
  settings["trained_strategy"] = job.request().strategy;
  settings["trained_loss"] = strategy::to_text(job.request().step.loss);
  settings["trained_backend"] = job.backend().name();
  return settings;
}

template <typename Number>
Json or_null(const std::optional<Number>& number) {
  return number && std::isfinite(*number) ? Json(*number) : Json();
}

/// The learning rate of a step, counted from 1.
double rate_of(const op::Optimizer& optimizer, std::int64_t step) {
  return std::visit([&](const auto& settings) { return settings.rate * op::rate_factor(settings.schedule, step); }, optimizer);
}

std::int64_t tokens_of_a_sample(const training::Job& job) {
  return job.model().blocks().front().values.front().integers ? job.model().input().elements() : 0;
}

/// Steps of an epoch; 0 if there are no epochs.
std::int64_t steps_of_an_epoch(const training::Job& job) {
  return job.data() != nullptr ? job.data()->training()->order().steps_per_epoch() : 0;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  return whole < 60     ? fmt::format("{} s", whole)
         : whole < 3600 ? fmt::format("{} min {} s", whole / 60, whole % 60)
                        : fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace

std::string rate_text(double number) { return number >= 100 ? fmt::format("{:.0f}", number) : fmt::format("{:.3g}", number); }

Json to_json(const LogEntry& entry) {
  const std::optional<training::Evaluation>& evaluation = entry.evaluation;
  return {{key::step.name, entry.step},
          {key::epoch.name, or_null(entry.epoch)},
          {key::loss.name, or_null(entry.loss)},
          {key::lr.name, or_null(entry.rate)},
          {key::samples_per_s.name, or_null(entry.samples_per_s)},
          {key::tokens_per_s.name, or_null(entry.tokens_per_s)},
          {key::mfu.name, or_null(entry.mfu)},
          {key::data_wait.name, or_null(entry.data_wait)},
          {key::eval_loss.name, evaluation ? Json(evaluation->loss) : Json()},
          {key::eval_accuracy.name, evaluation ? or_null(evaluation->accuracy) : Json()},
          {key::eval_perplexity.name, evaluation ? or_null(evaluation->perplexity) : Json()},
          {key::eval_samples.name, evaluation ? Json(evaluation->samples) : Json()},
          {key::seconds.name, entry.seconds}};
}

std::int64_t usual_interval(std::int64_t steps) {
  const std::int64_t least = (steps + 49) / 50;
  for (std::int64_t power = 1;; power *= 10) {
    for (const std::int64_t digit : {1, 2, 5}) {
      if (digit * power >= least) {
        return digit * power;
      }
    }
  }
}

TrainLog::TrainLog(const training::Training& run, std::int64_t steps, std::int64_t every, const Files& files, bool writes)
    : run_(run), steps_(steps), every_(every), files_(files) {
  if (!writes) {
    return;
  }
  peak_ = training::peak_flops(run.job()).value_or(0);
  for (std::size_t b = 0; b < run.job().model().blocks().size(); ++b) {  // a backward is as much as two forwards
    step_flops_ += 3.0 * static_cast<double>(run.job().model().forward_flops(b).count) *
                   static_cast<double>(run.job().request().step.global_batch);
  }
  const bool append = run.steps_before() > 0;
  open_csv(files.csv, append);
  json_lines_ = open(files.json_lines, append);
  if (!files.kept.empty() && append) {
    read_kept(files.kept);
  }
  kept_ = open(files.kept, append);
}

void TrainLog::open_csv(const std::string& path, bool append) {
  if (path.empty()) {
    return;
  }
  std::string heading;
  const Json empty = to_json(LogEntry());
  for (const auto& [name, value] : empty.items()) {
    heading += fmt::format("{}{}", heading.empty() ? "" : ",", name);
  }
  const Json settings = settings_of(run_.job());
  for (const auto& [name, value] : settings.items()) {
    heading += "," + name;
    settings_ += "," + report::csv_cell(value);
  }
  csv_ = open(path, append);
  if (std::ftell(csv_.get()) == 0) {
    fmt::print(csv_.get(), "{}\n", heading);
    std::fflush(csv_.get());
    return;
  }
  std::ifstream before(path);
  if (std::string line; !std::getline(before, line) || line != heading) {
    throw usage_error("{} has other columns than this version of baton writes: give another file to --csv", path);
  }
}

TrainLog::File TrainLog::open(const std::string& path, bool append) {
  if (path.empty()) {
    return nullptr;
  }
  File file(std::fopen(path.c_str(), append ? "ae" : "we"));
  if (!file) {
    throw failure("cannot write {}: {}", path, std::strerror(errno));
  }
  std::fseek(file.get(), 0, SEEK_END);
  return file;
}

void TrainLog::read_kept(const std::string& path) {
  constexpr Bytes most(std::int64_t{1} << 30);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return;
  }
  std::string kept;
  const std::string text = read_file(path, path, most);
  for (const std::string_view line : split(text, '\n')) {
    const Json row = Json::parse(line, nullptr, false);  // the last line may be cut off
    if (row.is_object() && row.contains(key::step.name) && row[key::step.name].is_number_integer() &&
        row[key::step.name] <= run_.steps_before()) {
      kept += fmt::format("{}\n", line);
      if (row.contains(key::seconds.name) && row[key::seconds.name].is_number()) {
        seconds_before_ = row[key::seconds.name].get<double>();
      }
      earlier_.push_back(row);
    }
  }
  write_whole(path, kept);
}

std::vector<Json> TrainLog::rows() const {
  std::vector<Json> all = earlier_;
  for (const LogEntry& entry : entries_) {
    all.push_back(to_json(entry));
  }
  return all;
}

bool TrainLog::evaluated_before() const {
  return earlier_.empty() || std::any_of(earlier_.begin(), earlier_.end(), [&](const Json& row) {
           return row[key::step.name] == run_.steps_before() && row.contains(key::eval_loss.name) &&
                  row[key::eval_loss.name].is_number();
         });
}

std::vector<std::string> TrainLog::add(std::int64_t done, std::int64_t begin, const Steps& steps) {
  std::vector<std::string> lines;
  while (taken_ < done) {
    const auto at = static_cast<std::size_t>(taken_ - begin);
    loss_sum_ += steps.losses[at];
    time_ += steps.times[at];
    waited_ += at < steps.data_waits.size() ? steps.data_waits[at] : Nanoseconds(0);
    ++taken_;
    ++pending_;
    if ((run_.steps_before() + taken_) % every_ == 0) {
      lines.push_back(close_interval());
    }
  }
  return lines;
}

std::vector<std::string> TrainLog::finish() {
  return pending_ == 0 ? std::vector<std::string>() : std::vector<std::string>{close_interval()};
}

std::string TrainLog::close_interval() {
  const training::Job& job = run_.job();
  const auto count = static_cast<double>(pending_);
  const double seconds = static_cast<double>(time_.count) * 1e-9;
  const auto batch = static_cast<double>(job.request().step.global_batch);
  all_time_ += time_;
  LogEntry entry{.step = run_.steps_before() + taken_,
                 .loss = loss_sum_ / count,
                 .rate = rate_of(job.request().step.optimizer, run_.steps_before() + taken_),
                 .seconds = seconds_before_ + static_cast<double>(all_time_.count) * 1e-9 + evaluated_seconds_};
  if (const std::int64_t epoch = steps_of_an_epoch(job); epoch > 0) {
    entry.epoch = static_cast<double>(entry.step) / static_cast<double>(epoch);
    entry.data_wait = seconds > 0 ? static_cast<double>(waited_.count) * 1e-9 / seconds : 0;
  }
  if (seconds > 0) {
    entry.samples_per_s = count * batch / seconds;
    if (const std::int64_t tokens = tokens_of_a_sample(job); tokens > 0) {
      entry.tokens_per_s = *entry.samples_per_s * static_cast<double>(tokens);
    }
    if (peak_ > 0) {
      entry.mfu = count * step_flops_ / seconds / peak_;
    }
  }
  pending_ = 0;
  loss_sum_ = 0;
  time_ = waited_ = Nanoseconds(0);
  write(entry);
  require_written();
  entries_.push_back(entry);
  const double left = static_cast<double>(steps_ - entry.step) * static_cast<double>(all_time_.count) * 1e-9 /
                      static_cast<double>(std::max<std::int64_t>(1, taken_));
  return fmt::format("{:>7}{}  {:>10}  {:>9.3g}  {:>9}{}{}  {}", entry.step,
                     entry.epoch ? fmt::format("  {:>6.2f}", *entry.epoch) : "", loss_text(*entry.loss), *entry.rate,
                     rate_text(entry.tokens_per_s ? *entry.tokens_per_s : entry.samples_per_s.value_or(0)),
                     entry.mfu ? fmt::format("  {:>6}", lab::percent(*entry.mfu)) : "",
                     entry.data_wait ? fmt::format("  {:>9}", lab::percent(*entry.data_wait)) : "", duration_text(left));
}

std::string TrainLog::add(const training::Evaluation& evaluation) {
  evaluated_seconds_ += static_cast<double>(evaluation.time.count) * 1e-9;
  LogEntry entry{.step = evaluation.step,
                 .evaluation = evaluation,
                 .seconds = seconds_before_ + static_cast<double>(all_time_.count) * 1e-9 + evaluated_seconds_};
  if (const std::int64_t epoch = steps_of_an_epoch(run_.job()); epoch > 0) {
    entry.epoch = static_cast<double>(entry.step) / static_cast<double>(epoch);
  }
  write(entry);
  require_written();
  entries_.push_back(entry);
  return fmt::format("{:>7}  evaluation on {} samples: {}", evaluation.step, evaluation.samples, evaluation_text(evaluation));
}

std::string evaluation_text(const training::Evaluation& evaluation) {
  return fmt::format("loss {}{}{}", loss_text(evaluation.loss),
                     evaluation.accuracy ? fmt::format(", accuracy {}", lab::percent(*evaluation.accuracy)) : "",
                     evaluation.perplexity ? fmt::format(", perplexity {:.4g}", *evaluation.perplexity) : "");
}

std::string TrainLog::heading() const {
  const training::Job& job = run_.job();
  const bool epochs = steps_of_an_epoch(job) > 0;
  return fmt::format("{:>7}{}  {:>10}  {:>9}  {:>9}{}{}  time left", "step", epochs ? fmt::format("  {:>6}", "epoch") : "", "loss",
                     "rate", tokens_of_a_sample(job) > 0 ? "tokens/s" : "samples/s", peak_ > 0 ? fmt::format("  {:>6}", "MFU") : "",
                     epochs ? fmt::format("  {:>9}", "data wait") : "");
}

void TrainLog::write(const LogEntry& entry) {
  const Json json = to_json(entry);
  for (const File* file : {&json_lines_, &kept_}) {
    if (*file) {
      fmt::print(file->get(), "{}\n", json.dump());
      std::fflush(file->get());
    }
  }
  if (csv_) {
    std::string line;
    for (const auto& [name, value] : json.items()) {
      line += fmt::format("{}{}", name == key::step.name ? "" : ",", value.is_null() ? "" : value.dump());
    }
    fmt::print(csv_.get(), "{}{}\n", line, settings_);
    std::fflush(csv_.get());
  }
}

void TrainLog::require_written() const {
  for (const auto& [file, path] : {std::pair(csv_.get(), &files_.csv), std::pair(json_lines_.get(), &files_.json_lines),
                                   std::pair(kept_.get(), &files_.kept)}) {
    if (file != nullptr && std::ferror(file) != 0) {
      throw failure("cannot write {}: lines of the log are lost; the disk may be full", *path);
    }
  }
}

namespace {

/// The record that the laboratory keeps of a training, as a row with the timeline of a step; and a row per device.
std::vector<lab::Result> step_results(const training::Training& run, const std::string& command) {
  if (run.timed().empty() || run.trace().steps.empty()) {
    return {};
  }
  lab::Record record = lab::training_record(run);
  record.update({key::strategy(run.job().request().strategy), key::devices(static_cast<std::int64_t>(run.job().cluster().size())),
                 key::stopped("once"), key::timeline(training::timeline_json(run, run.plan().title()))});
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

}  // namespace

namespace {

/// " Lowest at step 500: 0.384; it rose since": if the loss on the validation part is clearly above its lowest at the end.
std::string on_lowest(const std::vector<lab::Record>& rows) {
  constexpr double clearly = 1.01;
  std::optional<double> lowest;
  std::string step_of_lowest;
  double last = 0;
  std::optional<double> trained;  // the loss in training, as far as the rows were read
  std::optional<double> trained_at_lowest;
  for (const lab::Record& row : rows) {
    if (const std::optional<double> loss = lab::number_in(row, key::loss)) {
      trained = loss;
    }
    if (const std::optional<double> loss = lab::number_in(row, key::eval_loss)) {
      last = *loss;
      if (!lowest || *loss < *lowest) {
        lowest = loss;
        step_of_lowest = lab::text(row, key::step);
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

}  // namespace

std::string training_page(const TrainLog& log, const std::string& command) {
  const training::Training& run = log.run();
  lab::Experiment experiment{.id = "training",
                             .part = "",
                             .title = "Training",
                             .task = fmt::format("Train {}.", run.plan().title()),
                             .questions = {},
                             .axes = {},
                             .columns = {{key::step, "step", lab::Format::integer},
                                         {key::epoch, "epoch", lab::Format::rate, true},
                                         {key::loss, "loss", lab::Format::number, true},
                                         {key::lr, "learning rate", lab::Format::number, true},
                                         {key::samples_per_s, "samples/s", lab::Format::rate, true},
                                         {key::tokens_per_s, "tokens/s", lab::Format::rate, true},
                                         {key::mfu, "MFU", lab::Format::percent, true},
                                         {key::data_wait, "waited for data", lab::Format::percent, true},
                                         {key::eval_loss, "validation loss", lab::Format::number, true},
                                         {key::eval_perplexity, "perplexity", lab::Format::number, true},
                                         {key::eval_accuracy, "accuracy", lab::Format::percent, true}},
                             .plots = {},
                             .open = {},
                             .derive = {},
                             .details = {}};
  lab::Result result{.experiment = nullptr, .rows = {}, .answers = {}, .details = {}, .timelines = {}, .command = command};
  for (const Json& row : log.rows()) {
    result.rows.emplace_back(row);
  }
  const auto points = [](const std::string& trained, const std::string& evaluated) {
    return [trained, evaluated](const std::vector<lab::Record>& rows) {
      std::vector<lab::Record> list;
      for (const lab::Record& row : rows) {
        for (const auto& [from, series] : {std::pair(trained, "training"), std::pair(evaluated, "validation")}) {
          if (!from.empty() && lab::number_in(row, from)) {
            list.push_back(lab::Record{key::step(row[key::step]), {"y", row.at(from)}, key::data(series)});
          }
        }
      }
      return list;
    };
  };
  const auto plot = [&](const std::string& title, const std::string& y_title, lab::Format format, const std::string& trained,
                        const std::string& evaluated) {
    lab::Plot one;
    one.title = title;
    one.x = key::step;
    one.y = "y";
    one.x_title = "step";
    one.y_title = y_title;
    one.y_format = format;
    one.x_format = lab::Format::integer;
    one.series = key::data;
    one.points = points(trained, evaluated);
    experiment.plots.push_back(std::move(one));
  };
  plot("Loss", "loss", lab::Format::number, key::loss, key::eval_loss);
  plot("Accuracy", "accuracy", lab::Format::percent, "", key::eval_accuracy);
  plot("Perplexity", "perplexity", lab::Format::number, "", key::eval_perplexity);
  plot("Learning rate", "learning rate", lab::Format::number, key::lr, "");
  plot("Speed", tokens_of_a_sample(run.job()) > 0 ? "tokens/s" : "samples/s", lab::Format::rate,
       tokens_of_a_sample(run.job()) > 0 ? key::tokens_per_s.name : key::samples_per_s.name, "");
  if (!run.evaluations().empty()) {
    const training::Evaluation& last = run.evaluations().back();
    result.answers.push_back(
        {"", "How good is it?",
         fmt::format("After step {} the loss on {} samples that it was not trained on is {}{}{}.", last.step, last.samples,
                     loss_text(last.loss), last.accuracy ? fmt::format(", the accuracy {}", lab::percent(*last.accuracy)) : "",
                     last.perplexity ? fmt::format(", the perplexity {:.4g}", *last.perplexity) : "")});
  }
  result.experiment = std::make_shared<const lab::Experiment>(std::move(experiment));
  Json headline = Json::array();
  for (const lab::Answer& answer : result.answers) {
    headline.push_back({{"question", answer.question}, {"text", answer.text + on_lowest(result.rows)}});
  }
  result.answers.clear();  // said once, at the top
  lab::RunSpec kept;
  kept.title = fmt::format("Training of {}", run.job().model().name());
  kept.run_command = command;
  kept.created = time_text();
  kept.environment = measure::environment(run.job().machine());
  std::vector<lab::Result> results = step_results(run, command);
  results.insert(results.begin(), std::move(result));
  Json report = report::to_report(results, kept);
  report["preset"] = "";  // a training has none
  report["experiments"][0]["plots_first"] = true;
  report["headline"] = headline;
  for (Json& one : report["experiments"]) {
    one["part_title"] = "Results";
  }
  return report::to_page(report);
}

}  // namespace baton::app
