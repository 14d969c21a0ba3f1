#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/settings.h"

namespace baton::model {

/// A vision transformer: patches of an image by a convolution, after a learned vector whose final state gives the scores of the
/// classes; learned positions, a LayerNorm before each half of a layer, GELU. Each layer is two blocks, `attn` and `mlp`.
/// Parameters have Hugging Face's names; those of heads have an axis for them.
struct VitSize {
  std::int64_t depth = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t patch = 0;
  std::int64_t image = 0;
  std::int64_t classes = 0;
  std::int64_t hidden = 0;    // features within the feed-forward; 0: four times `dim`
  std::int64_t channels = 3;  // channels of an image
  double epsilon = 1e-12;     // added to the variance in norms
  bool qkv_bias = true;
  double dropout = 0;  // share of the embedding, and of the result of each half of a layer, that is dropped
};
Model vit(const VitSize& size);

/// The size that settings give, the settings of a size, and a model of them.
VitSize parse_vit_size(const ModelSettings& settings);
ModelSettings vit_settings(const VitSize& size);
Model parse_vit(const ModelSettings& settings);
const std::vector<Preset>& vit_presets();

}  // namespace baton::model
