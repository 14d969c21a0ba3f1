#pragma once

#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/settings.h"

namespace baton::model {

/// MLP-Mixer: patches of an image by a convolution, then layers of two halves, each after a LayerNorm and added to what it reads:
/// one mixes the patches, of each channel by itself, the other the channels of each patch. Scores are of the mean over the patches.
/// Each layer is two blocks, `tokens` and `channels`. Parameters have timm's names.
struct MixerSize {
  std::int64_t depth = 0;
  std::int64_t dim = 0;
  std::int64_t tokens = 0;    // features between the two Linear layers that mix patches
  std::int64_t channels = 0;  // features between the two Linear layers that mix channels
  std::int64_t patch = 0;
  std::int64_t image = 0;
  std::int64_t classes = 0;
};
Model mixer(const MixerSize& size);

Model parse_mixer(const ModelSettings& settings);
const std::vector<Preset>& mixer_presets();

}  // namespace baton::model
