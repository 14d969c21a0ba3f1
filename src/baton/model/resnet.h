#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/model_name.h"

namespace baton::model {

/// A residual network of torchvision, with its names of parameters. Images of at most 64 × 64 get the small form: a first
/// convolution of 3×3 in place of 7×7, and no max-pool after it. Blocks are the stem, one per residual block, and the head.
struct ResnetSize {
  std::int64_t depth = 50;  // 18, 34, 50 or 101
  std::int64_t image = 224;
  std::int64_t classes = 1000;
  std::int64_t width = 64;  // channels of the stem
  std::int64_t group = 0;   // samples whose moments a norm takes together; 0: those of a replica's micro-batch
  std::int64_t channels = 3;
  std::optional<bool> large_stem = {};     // nothing: by the size of the image
  std::vector<std::int64_t> blocks = {};   // residual blocks per stage; none: as many as `depth` stands for
  std::vector<std::int64_t> outputs = {};  // channels that stages give; none: doubled per stage, four times as many in bottlenecks
  bool early = false;                      // a bottleneck moves by 2 in its first convolution, not in its second
  bool first_moves = false;                // the first stage too moves by 2
};
Model resnet(const ResnetSize& size);

/// Stages of this many blocks, with the settings that `depth` stands for in place of those that are not given.
struct ResnetStages {
  std::vector<std::int64_t> blocks;
  std::vector<std::int64_t> outputs;
  bool bottlenecks = false;
};
ResnetStages stages_of(const ResnetSize& size);
bool has_large_stem(const ResnetSize& size);

/// `50,image=224,classes=1000,width=64,group=0` and more; all but the first may be left out.
ResnetSize parse_resnet_size(const ModelSettings& settings);
ModelSettings resnet_settings(const ResnetSize& size);
Model parse_resnet(const ModelSettings& settings);

}  // namespace baton::model
