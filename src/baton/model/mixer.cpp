#include "baton/model/mixer.h"

#include <fmt/format.h>

#include <array>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

constexpr std::int64_t colours = 3;
constexpr double mixer_epsilon = 1e-6;

std::size_t mixer_norm(BlockBuilder& block, std::size_t x, const std::string& name) {
  const Dims dims = block.dims(x);
  const std::size_t gain = block.parameter(name + ".weight", {dims.back().extent}, starts_at_ones);
  const std::size_t bias = block.parameter(name + ".bias", {dims.back().extent}, starts_at_zeros);
  return block.apply(op::LayerNorm{mixer_epsilon}, {x}, {gain, bias}, dims);
}

/// Linear(GELU(Linear(x))) on the last dimension.
std::size_t mixed(BlockBuilder& block, std::size_t x, const std::string& name, std::int64_t hidden) {
  const Dim last = block.dims(x).back();
  const std::size_t wide = block.linear(x, name + ".fc1.weight", name + ".fc1.bias", {'f', hidden});
  const std::size_t bent = block.apply(op::Gelu{}, {wide}, {}, block.dims(wide));
  return block.linear(bent, name + ".fc2.weight", name + ".fc2.bias", last);
}

std::size_t transposed(BlockBuilder& block, std::size_t x) {
  const Dims dims = block.dims(x);
  return block.apply(op::Transpose{}, {x}, {}, {dims[0], dims[2], dims[1]});
}

ModelSettings settings_of(const MixerSize& size) {
  return ModelSettings()
      .add("depth", size.depth)
      .add("dim", size.dim)
      .add("tokens", size.tokens)
      .add("channels", size.channels)
      .add("patch", size.patch)
      .add("image", size.image)
      .add("classes", size.classes);
}

}  // namespace

const std::vector<Preset>& mixer_presets() {
  static const std::vector<Preset> presets{
      {"mixer-s16", settings_of(MixerSize{8, 512, 256, 2048, 16, 224, 1000})},
      {"mixer-b16", settings_of(MixerSize{12, 768, 384, 3072, 16, 224, 1000})},
      {"mixer-l16", settings_of(MixerSize{24, 1024, 512, 4096, 16, 224, 1000})},
  };
  return presets;
}

Model mixer(const MixerSize& size) {
  check(size.depth > 0 && size.dim > 0 && size.tokens > 0 && size.channels > 0 && size.patch > 0 && size.image > 0 &&
            size.classes > 0,
        "a mixer of no size");
  if (size.image % size.patch != 0) {
    throw usage_error("an image of {} × {} cannot be cut evenly into patches of {} × {}", size.image, size.image, size.patch,
                      size.patch);
  }
  const std::int64_t side = size.image / size.patch;
  const Dims stream{batch, {'p', side * side}, {'c', size.dim}};
  std::vector<Block> blocks;
  BlockBuilder first("stem", {batch, {'c', colours}, {'y', size.image}, {'x', size.image}});
  const std::size_t patches = first.conv2d(first.in(), "stem.proj", size.dim, {.size = size.patch, .stride = size.patch});
  blocks.push_back(first.finish(first.in_stream(first.apply(op::Transpose{.from_image = true}, {patches}, {}, stream))));
  for (std::int64_t layer = 0; layer < size.depth; ++layer) {
    const std::string own = fmt::format("blocks.{}.", layer);
    BlockBuilder tokens(fmt::format("layer{}.tokens", layer), stream);
    const std::size_t turned = transposed(tokens, mixer_norm(tokens, tokens.in(), own + "norm1"));
    const std::size_t back = transposed(tokens, mixed(tokens, turned, own + "mlp_tokens", size.tokens));
    blocks.push_back(tokens.finish(tokens.in_stream(tokens.add(tokens.in(), back))));
    BlockBuilder channels(fmt::format("layer{}.channels", layer), stream);
    const std::size_t norm = mixer_norm(channels, channels.in(), own + "norm2");
    const std::size_t added = mixed(channels, norm, own + "mlp_channels", size.channels);
    blocks.push_back(channels.finish(channels.in_stream(channels.add(channels.in(), added))));
  }
  BlockBuilder head("head", stream);
  const std::size_t turned = transposed(head, mixer_norm(head, head.in(), "norm"));
  const std::size_t mean = head.apply(op::AveragePool{.places = true}, {turned}, {}, {batch, stream.back()});
  blocks.push_back(head.finish(head.linear(mean, "head.weight", "head.bias", {'v', size.classes})));
  return Model(name_of("mixer", settings_of(size), mixer_presets()), std::move(blocks), Output::scores);
}

Model parse_mixer(const ModelSettings& given) {
  MixerSize size;
  const std::array settings{Setting{"depth", &size.depth, max_depth},      Setting{"dim", &size.dim, max_width},
                            Setting{"tokens", &size.tokens, max_width},    Setting{"channels", &size.channels, max_width},
                            Setting{"patch", &size.patch, max_image_side}, Setting{"image", &size.image, max_image_side},
                            Setting{"classes", &size.classes, max_width}};
  read_settings("mixer", given, settings, "mixer:depth=2,dim=32,tokens=16,channels=64,patch=4,image=16,classes=10");
  return mixer(size);
}

}  // namespace baton::model
