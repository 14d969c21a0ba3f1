#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/settings.h"

namespace baton::model {

/// GPT-2: learned positions, a LayerNorm before each half of a layer, GELU in the form with tanh, and scores by the embedding's own
/// weight unless it is not `tied`. Each layer is two blocks, `attn` and `mlp`. Parameters have Hugging Face's names; those that it
/// keeps joined (`c_attn.weight`) are three here, `c_attn.q.weight`, `.k` and `.v`, with the outputs of each head apart.
struct GptSize {
  std::int64_t depth = 0;
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t context = 0;
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;  // features within the feed-forward; 0: four times `dim`
  double epsilon = 1e-5;    // added to the variance in norms
  bool tied = true;         // scores by the embedding's weight; otherwise by one of their own, `lm_head.weight`
  double dropout = 0;       // share of the embedding, and of the result of each half of a layer, that is dropped
};
Model gpt(const GptSize& size);

/// The size that settings give, the settings of a size, and a model of them.
GptSize parse_gpt_size(const ModelSettings& settings);
ModelSettings gpt_settings(const GptSize& size);
Model parse_gpt(const ModelSettings& settings);
const std::vector<Preset>& gpt_presets();

}  // namespace baton::model
