#pragma once

#include <cstdint>
#include <string>

#include "baton/training/job.h"

namespace baton::app {

/// The flags of `baton train`.
struct TrainWords {
  job::JobSpec job;
  std::string steps;   // empty: one epoch of the data, or the usual number
  std::string warmup;  // empty: the usual number, but not all steps
  std::string epochs;
  std::string eval_data;
  std::string eval_every;
  std::string log_every;
  std::string csv;
  std::string json_lines;
  std::string report;
  bool keep_best = false;
  std::string json;
  std::string trace;
  std::string checkpoint;
  std::string every;
  std::string keep = "3";
  bool keep_given = false;
  bool resume = false;
  std::string start;  // the folder to write weights and data before the first step to
  std::string patience = "5";
  bool quiet = false;
};

/// How many steps there are, how many of them are not timed, and how many make an epoch (0: there are none).
struct Length {
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  std::int64_t epoch = 0;
};

/// A usage error says why the flags do not give a length.
Length length_of(const TrainWords& words, const training::Job& job);

}  // namespace baton::app
