#pragma once

#include <filesystem>

#include "baton/checkpoint/safetensors.h"
#include "baton/lab/training.h"

namespace baton::lab {

/// What another program needs to train the same: weights and samples before the first step.
struct Start {
  checkpoint::Archive weights;  // parameters under their names
  checkpoint::Archive data;  // `input` and `target` of the samples that `steps` use, in order; step s takes a batch from s · batch
                             // on, beginning anew behind the last
};
/// Of a training that has not begun; among several ranks all call it.
Start start_of(const Training& run, std::int64_t steps);

/// Writes weights.safetensors and data.safetensors into a folder, which is made where it is not there.
void write_start(const std::filesystem::path& folder, const Start& start);

}  // namespace baton::lab
