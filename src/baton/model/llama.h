#pragma once

#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/settings.h"

namespace baton::model {

/// LLaMA: rotary positions, an RMSNorm before each half of a layer, groups of heads that share keys and values, a gated
/// feed-forward (SiLU), no biases, and scores by a weight of their own. Each layer is two blocks, `attn` and `mlp`. Parameters have
/// Hugging Face's names; those of heads have an axis for the groups.
struct LlamaSize {
  std::int64_t depth = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim = 0;
  std::int64_t hidden = 0;
  std::int64_t context = 0;
  std::int64_t vocab = 0;
  std::int64_t base = 10000;  // of the angles of the positions
  double dropout = 0;         // of the embedding, and of what each half of a layer adds
};
Model llama(const LlamaSize& size);

Model parse_llama(std::string_view arguments);
const std::vector<Preset>& llama_presets();

}  // namespace baton::model
