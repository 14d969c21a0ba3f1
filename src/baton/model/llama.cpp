#include "baton/model/llama.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

constexpr const char* llama_embedding = "model.embed_tokens.weight";

std::int64_t head_of(const LlamaSize& size) { return size.head == 0 ? size.dim / size.heads : size.head; }

/// x + attention(RmsNorm(x)), queries and keys rotated by their positions.
Block attention_half(std::int64_t layer, const LlamaSize& size, const Dims& stream) {
  const std::string own = fmt::format("model.layers.{}.", layer);
  const Dim groups{'h', size.kv_heads};
  const std::int64_t head = head_of(size);
  BlockBuilder block(fmt::format("layer{}.attn", layer), stream);
  const std::size_t norm = block.rms_norm(block.in(), own + "input_layernorm.weight", size.epsilon);
  const auto rotated = [&](std::size_t x) {
    return block.apply(op::Rotary{.head = head, .base = static_cast<double>(size.base)}, {x}, {}, block.dims(x));
  };
  const auto bias = [&](const std::string& name, bool has) { return has ? own + "self_attn." + name + ".bias" : ""; };
  const auto project = [&](const std::string& name, Dim features) {
    return block.to_heads(norm, own + "self_attn." + name + ".weight", bias(name, size.qkv_bias), groups, features);
  };
  const std::size_t q = rotated(project("q_proj", {'q', size.heads / size.kv_heads * head}));
  const std::size_t k = rotated(project("k_proj", {'d', head}));
  const std::size_t v = project("v_proj", {'d', head});
  const std::size_t mixed = block.attention(q, k, v, true);
  const std::size_t out = block.from_heads(mixed, own + "self_attn.o_proj.weight", bias("o_proj", size.out_bias), stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

/// x + Linear(SiLU(Linear(n)) · Linear(n)), n = RmsNorm(x).
Block feed_forward_half(std::int64_t layer, const LlamaSize& size, const Dims& stream) {
  const std::string own = fmt::format("model.layers.{}.", layer);
  const Dim hidden{'f', size.hidden};
  BlockBuilder block(fmt::format("layer{}.mlp", layer), stream);
  const std::size_t norm = block.rms_norm(block.in(), own + "post_attention_layernorm.weight", size.epsilon);
  const std::size_t gate = block.linear_without_bias(norm, own + "mlp.gate_proj.weight", hidden);
  const std::size_t up = block.linear_without_bias(norm, own + "mlp.up_proj.weight", hidden);
  const std::size_t gated = block.apply(op::SiluGate{}, {gate, up}, {}, block.dims(gate));
  const std::size_t out = block.linear_without_bias(gated, own + "mlp.down_proj.weight", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

}  // namespace

ModelSettings llama_settings(const LlamaSize& size) {
  const LlamaSize usual;
  return ModelSettings()
      .add("depth", size.depth)
      .add("heads", size.heads)
      .add("kv-heads", size.kv_heads)
      .add("dim", size.dim)
      .add("hidden", size.hidden)
      .add("context", size.context)
      .add("vocab", size.vocab)
      .add_unless("base", size.base, usual.base)
      .add_unless("head-dim", size.head * size.heads == size.dim ? usual.head : size.head, usual.head)
      .add_unless("eps", size.epsilon, usual.epsilon)
      .add_unless("qkv-bias", size.qkv_bias, usual.qkv_bias)
      .add_unless("out-bias", size.out_bias, usual.out_bias)
      .add_unless("tied", size.tied, usual.tied)
      .add_unless("dropout", size.dropout, 0.0);
}

const std::vector<Preset>& llama_presets() {
  static const std::vector<Preset> presets{
      {"tinyllama", llama_settings(LlamaSize{22, 32, 4, 2048, 5632, 2048, 32000})},
      {"llama3-8b", llama_settings(LlamaSize{32, 32, 8, 4096, 14336, 8192, 128256, 500000})},
      {"llama3-70b", llama_settings(LlamaSize{80, 64, 8, 8192, 28672, 8192, 128256, 500000})},
      {"llama3-405b", llama_settings(LlamaSize{126, 128, 8, 16384, 53248, 8192, 128256, 500000})},
  };
  return presets;
}

Model llama(const LlamaSize& size) {
  check(size.depth > 0 && size.heads > 0 && size.kv_heads > 0 && size.dim > 0 && size.hidden > 0 && size.context > 0 &&
            size.vocab > 0 && size.base > 0,
        "a LLaMA of no size");
  if (size.head == 0 && size.dim % size.heads != 0) {
    throw usage_error("the {} features of the llama model cannot be divided evenly over {} heads", size.dim, size.heads);
  }
  if (size.heads % size.kv_heads != 0) {
    throw usage_error("the {} heads of the llama model cannot be divided evenly over {} kv-heads", size.heads, size.kv_heads);
  }
  if (head_of(size) % 2 != 0) {
    throw usage_error("a head of the llama model has {} features{}, but rotary positions turn pairs of them", head_of(size),
                      size.head == 0 ? fmt::format(" ({} over {} heads)", size.dim, size.heads) : "");
  }
  const Dims ids{{'t', size.context}, batch};
  const Dims stream{{'t', size.context}, batch, {'c', size.dim}};
  std::vector<Block> blocks;
  BlockBuilder first("embed", ids, true);
  const std::size_t words = first.in_stream(first.embed(first.in(), llama_embedding, size.vocab, stream.back()));
  blocks.push_back(first.finish(first.dropout(words, size.dropout)));
  for (std::int64_t layer = 0; layer < size.depth; ++layer) {
    blocks.push_back(attention_half(layer, size, stream));
    blocks.push_back(feed_forward_half(layer, size, stream));
  }
  BlockBuilder head("head", stream);
  const std::size_t norm = head.rms_norm(head.in(), "model.norm.weight", size.epsilon);
  blocks.push_back(head.finish(head.linear_without_bias(norm, size.tied ? llama_embedding : "lm_head.weight", {'v', size.vocab})));
  return Model(name_of("llama", llama_settings(size), llama_presets()), std::move(blocks));
}

Model parse_llama(const ModelSettings& settings) { return llama(parse_llama_size(settings)); }

LlamaSize parse_llama_size(const ModelSettings& given) {
  LlamaSize size;
  const std::array settings{Setting{"depth", &size.depth, max_depth},
                            Setting{"heads", &size.heads, max_width},
                            Setting{"kv-heads", &size.kv_heads, max_width},
                            Setting{"dim", &size.dim, max_width},
                            Setting{"hidden", &size.hidden, max_width},
                            Setting{"context", &size.context, max_width},
                            Setting{"vocab", &size.vocab, max_width},
                            Setting{"base", &size.base, max_base},
                            Setting{"head-dim", &size.head, max_width, true},
                            Setting{"eps", &size.epsilon},
                            Setting{"qkv-bias", &size.qkv_bias},
                            Setting{"out-bias", &size.out_bias},
                            Setting{"tied", &size.tied},
                            Setting{"dropout", &size.dropout}};
  read_settings("llama", given, settings, "llama:depth=2,heads=4,kv-heads=2,dim=64,hidden=128,context=32,vocab=100");
  return size;
}

}  // namespace baton::model
