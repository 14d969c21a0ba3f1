#include "baton/model/vit.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

constexpr std::int64_t image_channels = 3;
constexpr double norm_epsilon = 1e-12;

std::size_t norm_of(BlockBuilder& block, std::size_t x, const std::string& name) {
  const Dims dims = block.dims(x);
  const std::size_t gain = block.parameter(name + ".weight", {dims.back().extent}, starts_at_ones);
  const std::size_t bias = block.parameter(name + ".bias", {dims.back().extent}, starts_at_zeros);
  return block.apply(op::LayerNorm{norm_epsilon}, {x}, {gain, bias}, dims);
}

/// x + attention(LayerNorm(x)).
Block attention_half(std::int64_t layer, const VitSize& size, const Dims& stream) {
  const std::string own = fmt::format("vit.encoder.layer.{}.", layer);
  const Dim heads{'h', size.heads};
  const std::int64_t head = size.dim / size.heads;
  BlockBuilder block(fmt::format("layer{}.attn", layer), stream);
  const std::size_t norm = norm_of(block, block.in(), own + "layernorm_before");
  const auto project = [&](const std::string& name, Dim features) {
    const std::string full = own + "attention.attention." + name;
    return block.to_heads(norm, full + ".weight", full + ".bias", heads, features);
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
  const std::size_t norm = norm_of(block, block.in(), own + "layernorm_after");
  const std::size_t wide = block.linear(norm, own + "intermediate.dense.weight", own + "intermediate.dense.bias",
                                        {'f', 4 * size.dim});
  const std::size_t hidden = block.apply(op::Gelu{}, {wide}, {}, block.dims(wide));
  const std::size_t out = block.linear(hidden, own + "output.dense.weight", own + "output.dense.bias", stream.back());
  return block.finish(block.in_stream(block.add(block.in(), block.dropout(out, size.dropout))));
}

std::string arguments_of(const VitSize& size) {
  return fmt::format("depth={},heads={},dim={},patch={},image={},classes={}{}", size.depth, size.heads, size.dim, size.patch,
                     size.image, size.classes, dropout_text(size.dropout));
}

}  // namespace

const std::vector<Preset>& vit_presets() {
  static const std::vector<Preset> presets{
      {"vit-tiny", arguments_of(VitSize{12, 3, 192, 16, 224, 1000})},
      {"vit-small", arguments_of(VitSize{12, 6, 384, 16, 224, 1000})},
      {"vit-base", arguments_of(VitSize{12, 12, 768, 16, 224, 1000})},
      {"vit-large", arguments_of(VitSize{24, 16, 1024, 16, 224, 1000})},
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
  BlockBuilder first("embed", {batch, {'c', image_channels}, {'y', size.image}, {'x', size.image}});
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
  const std::size_t norm = norm_of(head, state, "vit.layernorm");
  blocks.push_back(head.finish(head.linear(norm, "classifier.weight", "classifier.bias", {'v', size.classes})));
  return Model(name_of("vit", arguments_of(size), vit_presets()), std::move(blocks), Output::scores);
}

Model parse_vit(std::string_view arguments) {
  VitSize size;
  const std::array settings{Setting{"depth", &size.depth, max_depth},      Setting{"heads", &size.heads, max_width},
                            Setting{"dim", &size.dim, max_width},          Setting{"patch", &size.patch, max_image_side},
                            Setting{"image", &size.image, max_image_side}, Setting{"classes", &size.classes, max_width}};
  read_settings("vit", arguments, settings, "vit:depth=2,heads=2,dim=32,patch=4,image=16,classes=10",
                std::array{ShareSetting{"dropout", &size.dropout}});
  return vit(size);
}

}  // namespace baton::model
