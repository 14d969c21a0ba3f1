#pragma once

#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/model_name.h"

namespace baton::model {

/// Square images to scores of classes: per number in `channels` a 3×3 convolution, ReLU and a 2×2 max-pool, then a Linear of 128
/// features with ReLU and a Linear to the classes. Blocks are conv1, conv2, ..., fc1 and fc2.
struct CnnSize {
  std::vector<std::int64_t> channels;
  std::int64_t image = 28;
  std::int64_t image_channels = 1;
  std::int64_t classes = 10;
};
Model cnn(const CnnSize& size);

/// `32-64,image=28,channels=1,classes=10`; all but the first may be left out.
Model parse_cnn(const ModelSettings& settings);

}  // namespace baton::model
