#pragma once

#include <string_view>

#include "baton/model/model.h"

namespace baton::model {

/// The toy model of PyTorch's model-parallel tutorial: Linear layers of ten features, ReLU between them, and five features at the
/// end. The tutorial has two layers, one per device; `layers` of them are for as many devices.
Model toy(std::int64_t layers);

Model parse_toy(std::string_view arguments);    // two
Model parse_toy_4(std::string_view arguments);  // four

}  // namespace baton::model
