#pragma once

#include <cstdint>
#include <vector>

#include "baton/model/model.h"
#include "baton/strategy/step.h"

namespace baton::strategy {

/// How many blocks each of a pipeline's stages gets, so that the heaviest stage is as light as can be; among those splits the
/// one whose first stages are fullest. A usage error where there are fewer blocks than stages.
std::vector<std::int64_t> balanced_stages(const model::Model& model, std::int64_t stages, std::int64_t rows, Balance balance);

}  // namespace baton::strategy
