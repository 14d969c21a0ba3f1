#pragma once

#include "baton/model/model.h"
#include "baton/model/model_name.h"

namespace baton::model {

/// The toy model of PyTorch's model-parallel tutorial: Linear layers of ten features, ReLU between them, and five features at the
/// end. The tutorial has two layers, one per device; `layers` of them are for as many devices.
Model toy(std::int64_t layers);

Model parse_toy(const ModelSettings& settings);    // two
Model parse_toy_4(const ModelSettings& settings);  // four

}  // namespace baton::model
