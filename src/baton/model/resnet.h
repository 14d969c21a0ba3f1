#pragma once

#include <string_view>

#include "baton/model/model.h"

namespace baton::model {

/// A residual network as torchvision has it, with its names of parameters. Images of at most 64 × 64 get the small form: a first
/// convolution of 3×3 in place of 7×7, and no max-pool behind it. Blocks are the stem, one per residual block, and the head.
struct ResnetSize {
  std::int64_t depth = 50;  // 18, 34, 50 or 101
  std::int64_t image = 224;
  std::int64_t classes = 1000;
  std::int64_t width = 64;  // channels of the stem
  std::int64_t group = 0;   // samples whose moments a norm takes together; 0: those of a replica's micro-batch
};
Model resnet(const ResnetSize& size);

/// `50,image=224,classes=1000,width=64,group=0`; all but the first may be left out.
Model parse_resnet(std::string_view arguments);

}  // namespace baton::model
