#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/settings.h"

namespace baton::model {

/// LLaMA: rotary positions, an RMSNorm before each half of a layer, groups of heads that share keys and values, a gated
/// feed-forward (SiLU), no biases, and scores by a weight of their own. Mistral is the same, Qwen2 has biases of queries, keys and
/// values. Each layer is two blocks, `attn` and `mlp`. Parameters have Hugging Face's names; those of heads have an axis for the
/// groups.
struct LlamaSize {
  std::int64_t depth = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 0;
  std::int64_t vocab = 0;
  std::int64_t base = 10000;  // base of the angles of the positions
  std::int64_t head = 0;      // features of a head; 0: `dim` over the heads
  double epsilon = 1e-5;      // added to the mean of squares in norms
  bool qkv_bias = false;
  bool out_bias = false;  // true if the projection after attention has a bias
  bool tied = false;      // scores by the embedding's weight
  double dropout = 0;     // share of the embedding, and of the result of each half of a layer, that is dropped
};
Model llama(const LlamaSize& size);

/// The size that settings give, the settings of a size, and a model of them.
LlamaSize parse_llama_size(const ModelSettings& settings);
ModelSettings llama_settings(const LlamaSize& size);
Model parse_llama(const ModelSettings& settings);
const std::vector<Preset>& llama_presets();

}  // namespace baton::model
