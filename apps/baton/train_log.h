#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/lab/json.h"
#include "baton/training/training.h"

namespace baton::app {

/// One line of the log of a training: some steps together, or an evaluation.
struct LogEntry {
  std::int64_t step = 0;  // steps done
  std::optional<double> epoch;
  std::optional<double> loss;  // the mean over the steps
  std::optional<double> rate;  // the learning rate of the last of them
  std::optional<double> samples_per_s;
  std::optional<double> tokens_per_s;
  std::optional<double> mfu;        // the share of the devices' peak
  std::optional<double> data_wait;  // the share of the time in which devices waited only for data
  std::optional<training::Evaluation> evaluation;
  double seconds = 0;  // since the training began
};

lab::Record record_of(const LogEntry& entry);
/// Tokens per sample; 0 if the model reads no tokens.
std::int64_t tokens_of_a_sample(const training::Job& job);
/// A rate per second, in plain digits.
std::string rate_text(double number);

/// The log of a training while it runs: lines on the terminal, a CSV file, a file of JSON lines. Every line is written as
/// soon as it is known.
class TrainLog {
 public:
  struct Files {
    std::string csv;  // empty: none
    std::string json_lines;
    std::string kept;  // JSON lines that stay with the checkpoints; those of steps before this run are read first
  };
  /// `every`: how many steps make a line. A failure says which file cannot be written.
  TrainLog(const training::Training& run, std::int64_t steps, std::int64_t every, const Files& files, bool writes);

  std::int64_t every() const { return every_; }
  /// The figures of consecutive steps; the last is empty if there is no data.
  struct Steps {
    const std::vector<double>& losses;
    const std::vector<Nanoseconds>& times;
    const std::vector<Nanoseconds>& data_waits;
  };
  /// Takes in the steps of this run up to `done`, from `begin` on. Returns the lines that are complete now.
  std::vector<std::string> add(std::int64_t done, std::int64_t begin, const Steps& steps);
  /// The line of the steps after the last whole interval; empty if there are none.
  std::vector<std::string> finish();
  std::string add(const training::Evaluation& evaluation);

  std::string heading() const;
  /// All lines, with those of earlier runs that the kept file had.
  std::vector<lab::Record> rows() const;
  /// True if the steps before this run were evaluated at their end; also true if no file was kept.
  bool evaluated_before() const;
  const training::Training& run() const { return run_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  static File open(const std::string& path, bool append);
  void open_csv(const std::string& path, bool append);
  void read_kept(const std::string& path);
  std::string close_interval();
  /// Writes a line to all files, and keeps it. A failure names a file that has not taken all that was written so far.
  void write(const LogEntry& entry);

  const training::Training& run_;
  std::int64_t steps_;
  std::int64_t every_;
  Files files_;
  double peak_ = 0;  // flop/s of all devices together; 0: not known
  double step_flops_ = 0;
  std::int64_t taken_ = 0;  // steps of this run that are in it
  std::int64_t pending_ = 0;
  double loss_sum_ = 0;
  Nanoseconds time_;
  Nanoseconds waited_;
  Nanoseconds all_time_;
  double evaluated_seconds_ = 0;
  double seconds_before_ = 0;         // seconds that earlier runs took
  std::vector<lab::Record> earlier_;  // lines of earlier runs
  std::vector<lab::Record> entries_;  // the entries of this run
  File csv_;
  std::string settings_;  // what was trained, as the last cells of each line of the CSV
  File kept_;
  File json_lines_;
};

/// "loss 0.31, accuracy 90.1 %".
std::string evaluation_text(const training::Evaluation& evaluation);

/// The default number of steps per line: a round number that gives some fifty lines.
std::int64_t usual_interval(std::int64_t steps);

}  // namespace baton::app
