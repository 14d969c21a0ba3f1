#include "baton/model/vit.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

std::int64_t hidden_of(const VitSize& size) { return size.hidden == 0 ? 4 * size.dim : size.hidden; }

std::size_t norm_of(BlockBuilder& block, std::size_t x, const std::string& name, const VitSize& size) {
  return block.layer_norm(x, name + ".weight", name + ".bias", size.epsilon);
}

/// x + attention(LayerNorm(x)).
Block attention_half(std::int64_t layer, const VitSize& size, const Dims& stream) {
  const std::string own = fmt::format("vit.encoder.layer.{}.", layer);
  const Dim heads{'h', size.heads};
  const std::int64_t head = size.dim / size.heads;
  BlockBuilder block(fmt::format("layer{}.attn", layer), stream);
  const std::size_t norm = norm_of(block, block.in(), own + "layernorm_before", size);
  const auto project = [&](const std::string& name, Dim features) {
    const std::string full = own + "attention.attention." + name;
    return block.to_heads(norm, full + ".weight", size.qkv_bias ? full + ".bias" : "", heads, features);
  };
  const std::size_t q = project("query", {'q', head});
  const std::size_t k = project("key", {'d', head});
  const std::size_t v = project("value", {'d', head});
  const std::string out = own + "attention.output.dense";
  const std::size_t mixed = block.attention(q, k, v, false);
  const std::size_t added = block.from_heads(mixed, out + ".weight", out + ".bias", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(added, size.dropout))));
}

/// x + Linear(GELU(Linear(LayerNorm(x)))).
Block feed_forward_half(std::int64_t layer, const VitSize& size, const Dims& stream) {
  const std::string own = fmt::format("vit.encoder.layer.{}.", layer);
  BlockBuilder block(fmt::format("layer{}.mlp", layer), stream);
  const std::size_t norm = norm_of(block, block.in(), own + "layernorm_after", size);
  const std::size_t wide = block.linear(norm, own + "intermediate.dense.weight", own + "intermediate.dense.bias",
                                        {'f', hidden_of(size)});
  const std::size_t hidden = block.apply(op::Gelu{}, {wide}, {}, block.dims(wide));
  const std::size_t out = block.linear(hidden, own + "output.dense.weight", own + "output.dense.bias", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

}  // namespace

ModelSettings vit_settings(const VitSize& size) {
  const VitSize usual;
  return ModelSettings()
      .add("depth", size.depth)
      .add("heads", size.heads)
      .add("dim", size.dim)
      .add("patch", size.patch)
      .add("image", size.image)
      .add("classes", size.classes)
      .add_unless("hidden", hidden_of(size), 4 * size.dim)
      .add_unless("channels", size.channels, usual.channels)
      .add_unless("eps", size.epsilon, usual.epsilon)
      .add_unless("qkv-bias", size.qkv_bias, usual.qkv_bias)
      .add_unless("dropout", size.dropout, 0.0);
}

const std::vector<Preset>& vit_presets() {
  static const std::vector<Preset> presets{
      {"vit-tiny", vit_settings(VitSize{12, 3, 192, 16, 224, 1000})},
      {"vit-small", vit_settings(VitSize{12, 6, 384, 16, 224, 1000})},
      {"vit-base", vit_settings(VitSize{12, 12, 768, 16, 224, 1000})},
      {"vit-large", vit_settings(VitSize{24, 16, 1024, 16, 224, 1000})},
  };
  return presets;
}

Model vit(const VitSize& size) {
  check(size.depth > 0 && size.heads > 0 && size.dim > 0 && size.patch > 0 && size.image > 0 && size.classes > 0,
        "a vision transformer of no size");
  if (size.dim % size.heads != 0) {
    throw usage_error("the {} features of the vit model cannot be divided evenly over {} heads", size.dim, size.heads);
  }
  if (size.image % size.patch != 0) {
    throw usage_error("an image of {} × {} cannot be cut evenly into patches of {} × {}", size.image, size.image, size.patch,
                      size.patch);
  }
  const std::int64_t side = size.image / size.patch;
  const Dims stream{{'t', side * side + 1}, batch, {'c', size.dim}};
  std::vector<Block> blocks;
  BlockBuilder first("embed", {batch, {'c', size.channels}, {'y', size.image}, {'x', size.image}});
  const std::size_t patches = first.conv2d(first.in(), "vit.embeddings.patch_embeddings.projection", size.dim,
                                           {.size = size.patch, .stride = size.patch});
  const std::size_t token = first.parameter("vit.embeddings.cls_token", {size.dim}, size.dim);
  const std::size_t sequence = first.in_stream(first.apply(op::ImageToSequence{}, {patches}, {token}, stream));
  const std::size_t positions = first.parameter("vit.embeddings.position_embeddings", {side * side + 1, size.dim}, size.dim);
  const std::size_t placed = first.in_stream(first.apply(op::AddPositions{}, {sequence}, {positions}, stream));
  blocks.push_back(first.finish(first.dropout(placed, size.dropout)));
  for (std::int64_t layer = 0; layer < size.depth; ++layer) {
    blocks.push_back(attention_half(layer, size, stream));
    blocks.push_back(feed_forward_half(layer, size, stream));
  }
  BlockBuilder head("head", stream);
  const std::size_t state = head.in_stream(head.apply(op::FirstPosition{}, {head.in()}, {}, {batch, stream.back()}));
  const std::size_t norm = norm_of(head, state, "vit.layernorm", size);
  blocks.push_back(head.finish(head.linear(norm, "classifier.weight", "classifier.bias", {'v', size.classes})));
  return Model(name_of("vit", vit_settings(size), vit_presets()), std::move(blocks), Output::scores);
}

Model parse_vit(const ModelSettings& settings) { return vit(parse_vit_size(settings)); }

VitSize parse_vit_size(const ModelSettings& given) {
  VitSize size;
  const std::array settings{Setting{"depth", &size.depth, max_depth},
                            Setting{"heads", &size.heads, max_width},
                            Setting{"dim", &size.dim, max_width},
                            Setting{"patch", &size.patch, max_image_side},
                            Setting{"image", &size.image, max_image_side},
                            Setting{"classes", &size.classes, max_width},
                            Setting{"hidden", &size.hidden, max_width, true},
                            Setting{"channels", &size.channels, max_width},
                            Setting{"eps", &size.epsilon},
                            Setting{"qkv-bias", &size.qkv_bias},
                            Setting{"dropout", &size.dropout}};
  read_settings("vit", given, settings, "vit:depth=2,heads=2,dim=32,patch=4,image=16,classes=10");
  return size;
}

}  // namespace baton::model
