#include "baton/model/gpt.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

constexpr const char* embedding = "transformer.wte.weight";

std::int64_t hidden_of(const GptSize& size) { return size.hidden == 0 ? 4 * size.dim : size.hidden; }

/// x + attention(LayerNorm(x)).
Block attention_half(std::int64_t layer, const GptSize& size, const Dims& stream) {
  const std::string own = fmt::format("transformer.h.{}.", layer);
  const Dim heads{'h', size.heads};
  const std::int64_t head = size.dim / size.heads;
  BlockBuilder block(fmt::format("layer{}.attn", layer), stream);
  const std::size_t norm = block.layer_norm(block.in(), own + "ln_1.weight", own + "ln_1.bias", size.epsilon);
  const auto project = [&](const std::string& name, Dim features) {
    return block.to_heads(norm, own + "attn.c_attn." + name + ".weight", own + "attn.c_attn." + name + ".bias", heads, features);
  };
  const std::size_t q = project("q", {'q', head});
  const std::size_t k = project("k", {'d', head});
  const std::size_t v = project("v", {'d', head});
  const std::size_t mixed = block.attention(q, k, v, true);
  const std::size_t out = block.from_heads(mixed, own + "attn.c_proj.weight", own + "attn.c_proj.bias", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

/// x + Linear(GELU(Linear(LayerNorm(x)))).
Block feed_forward_half(std::int64_t layer, const GptSize& size, const Dims& stream) {
  const std::string own = fmt::format("transformer.h.{}.", layer);
  BlockBuilder block(fmt::format("layer{}.mlp", layer), stream);
  const std::size_t norm = block.layer_norm(block.in(), own + "ln_2.weight", own + "ln_2.bias", size.epsilon);
  const std::size_t wide = block.linear(norm, own + "mlp.c_fc.weight", own + "mlp.c_fc.bias", {'f', hidden_of(size)});
  const std::size_t hidden = block.apply(op::Gelu{.tanh = true}, {wide}, {}, block.dims(wide));
  const std::size_t out = block.linear(hidden, own + "mlp.c_proj.weight", own + "mlp.c_proj.bias", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

}  // namespace

ModelSettings gpt_settings(const GptSize& size) {
  return ModelSettings()
      .add("depth", size.depth)
      .add("heads", size.heads)
      .add("dim", size.dim)
      .add("context", size.context)
      .add("vocab", size.vocab)
      .add_unless("hidden", hidden_of(size), 4 * size.dim)
      .add_unless("eps", size.epsilon, GptSize().epsilon)
      .add_unless("tied", size.tied, true)
      .add_unless("dropout", size.dropout, 0.0);
}

const std::vector<Preset>& gpt_presets() {
  static const std::vector<Preset> presets{
      {"gpt2", gpt_settings(GptSize{12, 12, 768, 1024, 50257})},
      {"gpt2-medium", gpt_settings(GptSize{24, 16, 1024, 1024, 50257})},
      {"gpt2-large", gpt_settings(GptSize{36, 20, 1280, 1024, 50257})},
      {"gpt2-xl", gpt_settings(GptSize{48, 25, 1600, 1024, 50257})},
      {"gpt3-175b", gpt_settings(GptSize{96, 96, 12288, 2048, 50257})},
  };
  return presets;
}

Model gpt(const GptSize& size) {
  check(size.depth > 0 && size.heads > 0 && size.dim > 0 && size.context > 0 && size.vocab > 0, "a GPT of no size");
  if (size.dim % size.heads != 0) {
    throw usage_error("the {} features of the gpt model cannot be divided evenly over {} heads", size.dim, size.heads);
  }
  const Dims ids{{'t', size.context}, batch};
  const Dims stream{{'t', size.context}, batch, {'c', size.dim}};
  std::vector<Block> blocks;
  BlockBuilder first("embed", ids, true);
  const std::size_t words = first.in_stream(first.embed(first.in(), embedding, size.vocab, stream.back()));
  const std::size_t positions = first.parameter("transformer.wpe.weight", {size.context, size.dim}, size.dim);
  const std::size_t placed = first.in_stream(first.apply(op::AddPositions{}, {words}, {positions}, stream));
  blocks.push_back(first.finish(first.dropout(placed, size.dropout)));
  for (std::int64_t layer = 0; layer < size.depth; ++layer) {
    blocks.push_back(attention_half(layer, size, stream));
    blocks.push_back(feed_forward_half(layer, size, stream));
  }
  BlockBuilder head("head", stream);
  const std::size_t norm = head.layer_norm(head.in(), "transformer.ln_f.weight", "transformer.ln_f.bias", size.epsilon);
  blocks.push_back(head.finish(head.linear_without_bias(norm, size.tied ? embedding : "lm_head.weight", {'v', size.vocab})));
  return Model(name_of("gpt", gpt_settings(size), gpt_presets()), std::move(blocks));
}

Model parse_gpt(const ModelSettings& settings) { return gpt(parse_gpt_size(settings)); }

GptSize parse_gpt_size(const ModelSettings& given) {
  GptSize size;
  const std::array settings{Setting{"depth", &size.depth, max_depth},
                            Setting{"heads", &size.heads, max_width},
                            Setting{"dim", &size.dim, max_width},
                            Setting{"context", &size.context, max_width},
                            Setting{"vocab", &size.vocab, max_width},
                            Setting{"hidden", &size.hidden, max_width, true},
                            Setting{"eps", &size.epsilon},
                            Setting{"tied", &size.tied},
                            Setting{"dropout", &size.dropout}};
  read_settings("gpt", given, settings, "gpt:depth=2,heads=4,dim=64,context=32,vocab=100");
  return size;
}

}  // namespace baton::model
