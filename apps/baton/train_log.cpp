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
#include "baton/lab/rows.h"
#include "baton/op/rate.h"
#include "baton/report/report.h"
#include "summary.h"

namespace baton::app {
namespace {

using lab::Json;
using LogLine = lab::key::LogLine;

/// The settings of a training as the cells of a table: those of a job without the settings of simulations, which `train` does not
/// take. Their columns are named `trained_` like those of experiments, since some of them are also measured.
Json settings_of(const training::Job& job) {
  const job::JobSpec spec = job::with_rates_of(job.spec(), job.request().step.optimizer);
  Json settings;
  for (const job::JobField& field : job::fields()) {
    if (field.name != "cluster" && field.name != "software" && field.name != "what-if" && field.name != "fold") {
      std::string key = "trained_" + field.name;
      std::replace(key.begin(), key.end(), '-', '_');
      settings[key] = field.text(spec);
    }
  }
  settings["trained_strategy"] = job.request().strategy.name();
  settings["trained_loss"] = strategy::to_text(job.request().step.loss);
  settings["trained_backend"] = job.backend().name();
  return settings;
}

std::optional<double> if_finite(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? number : std::nullopt;
}

/// The learning rate of a step, counted from 1.
double rate_of(const op::Optimizer& optimizer, std::int64_t step) {
  return std::visit([&](const auto& settings) { return settings.rate * op::rate_factor(settings.schedule, step); }, optimizer);
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

std::int64_t tokens_of_a_sample(const training::Job& job) {
  return job.model().blocks().front().values.front().integers ? job.model().input().elements() : 0;
}

lab::Record record_of(const LogEntry& entry) {
  const std::optional<training::Evaluation>& evaluation = entry.evaluation;
  return {LogLine::step(entry.step),
          LogLine::epoch(if_finite(entry.epoch)),
          LogLine::loss(if_finite(entry.loss)),
          LogLine::lr(if_finite(entry.rate)),
          LogLine::samples_per_s(if_finite(entry.samples_per_s)),
          LogLine::tokens_per_s(if_finite(entry.tokens_per_s)),
          LogLine::mfu(if_finite(entry.mfu)),
          LogLine::data_wait(if_finite(entry.data_wait)),
          LogLine::eval_loss(evaluation ? std::optional(evaluation->loss) : std::nullopt),
          LogLine::eval_accuracy(evaluation ? if_finite(evaluation->accuracy) : std::nullopt),
          LogLine::eval_perplexity(evaluation ? if_finite(evaluation->perplexity) : std::nullopt),
          LogLine::eval_samples(evaluation ? std::optional(evaluation->samples) : std::nullopt),
          LogLine::seconds(entry.seconds)};
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
  const Json empty = record_of(LogEntry()).json();
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
    const Json json = Json::parse(line, nullptr, false);  // the last line may be cut off
    if (!json.is_object()) {
      continue;
    }
    const lab::Record row(json);
    const Json* step = row.find(LogLine::step);
    if (step != nullptr && step->is_number_integer() && row[LogLine::step] <= run_.steps_before()) {
      kept += fmt::format("{}\n", line);
      seconds_before_ = lab::number(row, LogLine::seconds, seconds_before_);
      earlier_.push_back(row);
    }
  }
  write_whole(path, kept);
}

std::vector<lab::Record> TrainLog::rows() const {
  std::vector<lab::Record> all = earlier_;
  all.insert(all.end(), entries_.begin(), entries_.end());
  return all;
}

bool TrainLog::evaluated_before() const {
  return earlier_.empty() || std::any_of(earlier_.begin(), earlier_.end(), [&](const lab::Record& row) {
           return row[LogLine::step] == run_.steps_before() && row.value(LogLine::eval_loss, std::nullopt);
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
  entries_.push_back(record_of(entry));
  const Json& json = entries_.back().json();
  for (const File* file : {&json_lines_, &kept_}) {
    if (*file) {
      fmt::print(file->get(), "{}\n", json.dump());
      std::fflush(file->get());
    }
  }
  if (csv_) {
    std::string line;
    for (const auto& [name, value] : json.items()) {
      line += fmt::format("{}{}", name == LogLine::step.name ? "" : ",", value.is_null() ? "" : value.dump());
    }
    fmt::print(csv_.get(), "{}{}\n", line, settings_);
    std::fflush(csv_.get());
  }
  for (const auto& [file, path] : {std::pair(csv_.get(), &files_.csv), std::pair(json_lines_.get(), &files_.json_lines),
                                   std::pair(kept_.get(), &files_.kept)}) {
    if (file != nullptr && std::ferror(file) != 0) {
      throw failure("cannot write {}: lines of the log are lost; the disk may be full", *path);
    }
  }
}

}  // namespace baton::app
