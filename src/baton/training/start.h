#pragma once

#include <filesystem>

#include "baton/training/training.h"

namespace baton::training {

/// Writes what another program needs to repeat the training, into a folder that is made if it is not there: weights.safetensors has
/// the parameters under their names, data.safetensors `input` and `target` of the samples that `steps` steps use, in order. Step s
/// takes a batch from s · batch on, and starts again after the last sample. For a training that has not begun, with room for a
/// checkpoint. All ranks call it, and the one that `writes` makes the files.
void write_start(const std::filesystem::path& folder, const Training& run, std::int64_t steps, bool writes);

}  // namespace baton::training
