#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "baton/training/job.h"

namespace baton::sheet {

/// Settings of a training script besides those of the job.
struct TwinRun {
  std::int64_t steps = 30;
  std::int64_t warmup = 5;
  std::string command;     // the Baton command that it is the twin of
  std::string file;        // the script's name; empty: after the strategy
  std::string table = {};  // a command that runs it for a whole table
};

/// The fields of a job that no twin has.
const std::vector<std::string>& fields_without_twin();

/// A PyTorch script that trains the same job and prints the fields of `train --json` but those of the plan. A usage error names a
/// strategy or flag that has no twin. This machine need not have GPUs.
std::string training_twin(const job::JobSpec& spec, const TwinRun& run);

/// A PyTorch script that computes Aⁿ + Bⁿ of square matrices, on one GPU and on two.
std::string matrix_power_twin(std::int64_t size, std::int64_t power, std::uint64_t seed,
                              const std::string& file = "matrix_power.py");

/// The tutorial's toy model with four layers and ResNet-50, each split over 1, 2 and 4 GPUs. `resnet` gives the size of the latter,
/// as `resnet:50,image=128,classes=1000`.
std::string four_way_split_twin(const model::ModelName& resnet, std::int64_t batch, const std::string& file);

/// The command that starts the script: with `torchrun` if it takes one process per device.
std::string twin_launch(const job::JobSpec& spec, const std::string& file);

}  // namespace baton::sheet
