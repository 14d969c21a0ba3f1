#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "baton/training/training.h"
#include "signals.h"
#include "terminal.h"
#include "train_evaluating.h"
#include "train_log.h"
#include "train_saving.h"
#include "train_words.h"

namespace baton::app {

/// One `baton train` from its flags to its results: steps in stretches, after which something is saved or evaluated. All ranks have
/// one; rank 0 speaks and writes.
class TrainSession {
 public:
  /// Checks everything, and continues a checkpoint if that is asked for. No step runs.
  explicit TrainSession(TrainWords words);

  TrainSession(const TrainSession&) = delete;
  TrainSession& operator=(const TrainSession&) = delete;

  /// Trains, prints and writes the results; returns the exit code of the program.
  int train();

 private:
  void settle_files();
  std::int64_t steps_done() const {
    return static_cast<std::int64_t>(run_.losses().size());
  }  // the steps of this run that are done

  /// Prints what is trained on which devices, and notes about it.
  void announce() const;
  void print_devices() const;
  void print_notes() const;
  void print_arithmetic() const;
  void note(const std::string& text) const;

  /// Trains until something is to be saved or evaluated, and does that; false: the training ends here.
  bool train_stretch();
  void run_stretch(std::int64_t stretch);
  /// False: something is not finite, so that nothing was saved.
  bool save();
  void evaluate(std::int64_t step);
  void print_steps(std::int64_t done, const std::vector<Nanoseconds>& times, const std::vector<double>& losses,
                   const std::vector<Nanoseconds>& data_waits);
  void print_lines(const std::vector<std::string>& lines);

  void say_what_is_unread();
  void say_how_it_ended();
  void write_results() const;

  TrainWords words_;
  training::Training run_;
  Length length_;
  std::int64_t log_every_;  // steps per line; 0: a line per step without the columns of a log
  bool speaks_;             // whether this rank prints
  bool to_stdout_ = false;  // true if messages go to stdout; otherwise results go there
  bool prints_steps_ = false;
  std::optional<Evaluating> evaluating_;
  std::optional<Saving> saving_;
  std::optional<TrainLog> lines_;
  bool evaluates_first_ = false;
  std::int64_t left_ = 0;    // the steps that this run still has to do
  std::int64_t warmup_ = 0;  // the first steps, which are not timed

  std::optional<Interrupt> interrupt_;
  std::optional<ProgressBar> bar_;
  std::int64_t shown_ = 0;         // steps of this run that were printed
  std::size_t stretch_begin_ = 0;  // the step of this run that the lists of a stretch begin with
  bool stop_requested_ = false;    // true if a rank was asked to stop
  int asked_ = 0;                  // the exit code that the request asks for
  std::string unsavable_;          // the name of the tensor that is not finite; empty: all are finite
  int exit_code_ = 0;
};

}  // namespace baton::app
