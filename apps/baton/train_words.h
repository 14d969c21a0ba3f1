#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "baton/exec/fingerprint.h"
#include "baton/training/job.h"

namespace baton::app {

/// The most steps that a training may have, and the most that a flag may count.
constexpr std::int64_t most_steps = 10'000'000;
/// The default number of checkpoints to keep.
constexpr std::int64_t usual_keep = 3;

/// The flags of `baton train`.
struct TrainWords {
  job::JobSpec job;
  std::optional<std::int64_t> steps;   // nullopt: one epoch of the data, or the usual number
  std::optional<std::int64_t> warmup;  // nullopt: the usual number, but not all steps
  std::optional<double> epochs;
  std::string eval_data;
  std::optional<std::int64_t> eval_every;
  std::optional<std::int64_t> log_every;
  std::string csv;
  std::string json_lines;
  std::string report;
  bool keep_best = false;
  std::string json;
  std::string trace;
  std::string checkpoint;
  std::optional<std::int64_t> every;
  std::optional<std::int64_t> keep;  // nullopt: the usual number
  bool resume = false;
  std::string start;    // the folder to write weights and data before the first step to
  double patience = 5;  // seconds
  bool quiet = false;
};

/// The settings that must be the same on all ranks.
std::vector<exec::Setting> shared_settings(const TrainWords& words);

/// The number of steps, how many of them are not timed, and how many make an epoch (0: there are no epochs).
struct Length {
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  std::int64_t epoch = 0;
};

/// A usage error says why the flags do not give a length.
Length length_of(const TrainWords& words, const training::Job& job);

}  // namespace baton::app
