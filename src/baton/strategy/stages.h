#pragma once

#include <cstdint>
#include <vector>

#include "baton/model/model.h"
#include "baton/strategy/layout.h"

namespace baton::strategy {

/// The bytes that a stage of a pipeline has to keep, whichever blocks it gets.
struct StageLoad {
  std::int64_t rows = 1;           // rows of a replica
  std::int64_t rows_kept = 1;      // the number of those rows whose activations are alive at once
  double parameter_bytes = 8;      // bytes per parameter: itself, its gradient, the optimizer's states
  std::int64_t element_bytes = 4;  // bytes per element of activations
};

/// The number of blocks of each of a pipeline's stages, so that the heaviest stage is as light as possible; among such
/// splits the one whose last stages have the fewest blocks. Before: there are at least as many blocks as stages.
std::vector<std::int64_t> balanced_stages(const model::Model& model, Balance balance, const std::vector<StageLoad>& stages);

}  // namespace baton::strategy
