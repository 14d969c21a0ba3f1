#include "baton/model/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

using Window = BlockBuilder::Window;

constexpr std::int64_t max_resnet_extent = 1 << 14;
constexpr std::int64_t small_image = 64;
constexpr std::size_t stage_count = 4;

struct Stages {
  std::int64_t depth;
  std::array<std::int64_t, stage_count> blocks;  // by stage
  bool bottlenecks;
};
constexpr std::array<Stages, 4> known_depths{
    Stages{18, {2, 2, 2, 2}, false}, {34, {3, 4, 6, 3}, false}, {50, {3, 4, 6, 3}, true}, {101, {3, 4, 23, 3}, true}};

const Stages* stages_of(std::int64_t depth) {
  for (const Stages& one : known_depths) {
    if (one.depth == depth) {
      return &one;
    }
  }
  return nullptr;
}

/// A convolution without bias and the norm behind it.
struct NormedConvolutions {
  BlockBuilder& block;
  std::int64_t group;

  std::size_t operator()(std::size_t x, const std::string& convolution, const std::string& norm, std::int64_t channels,
                         const Window& window, char out = 'c') const {
    return block.batch_norm(block.conv2d(x, convolution, channels, window, false, out), norm, group);
  }
};

/// Two convolutions of 3×3, or three of which the middle one is and has a quarter of the channels that come out; what is read is
/// added behind them, itself or by a convolution that gives it the same shape. The channels between the last two are a dimension of
/// their own, `f`, which tensor parallelism divides.
Block residual_block(const std::string& name, const Dims& stream, std::int64_t channels, std::int64_t stride, bool bottleneck,
                     std::int64_t group) {
  BlockBuilder block(name, stream);
  const NormedConvolutions normed{block, group};
  const auto numbered = [&](std::size_t x, int number, std::int64_t out, const Window& window, char dim = 'c') {
    return normed(x, fmt::format("{}.conv{}", name, number), fmt::format("{}.bn{}", name, number), out, window, dim);
  };
  const Window three{.size = 3, .padding = 1};
  const Window moving{.size = 3, .stride = stride, .padding = 1};
  const std::int64_t out = bottleneck ? 4 * channels : channels;
  std::size_t x = block.in();
  if (bottleneck) {
    x = block.relu(numbered(x, 1, channels, {.size = 1}));
    x = block.relu(numbered(x, 2, channels, moving, 'f'));
    x = numbered(x, 3, out, {.size = 1});
  } else {
    x = block.relu(numbered(x, 1, channels, moving, 'f'));
    x = numbered(x, 2, out, three);
  }
  const bool same = stride == 1 && stream[1].extent == out;
  const std::size_t read = same ? block.in()
                                : normed(block.in(), name + ".downsample.0", name + ".downsample.1", out,
                                         {.size = 1, .stride = stride});
  return block.finish(block.relu(block.add(x, read)));
}

}  // namespace

Model resnet(const ResnetSize& size) {
  const Stages* stages = stages_of(size.depth);
  check(stages != nullptr, "a resnet of {} layers", size.depth);
  const bool small = size.image <= small_image;
  std::vector<Block> blocks;
  BlockBuilder stem("stem", {batch, {'c', 3}, {'y', size.image}, {'x', size.image}});
  std::size_t x = stem.relu(
      NormedConvolutions{stem, size.group}(stem.in(), "conv1", "bn1", size.width,
                                           small ? Window{.size = 3, .padding = 1} : Window{.size = 7, .stride = 2, .padding = 3}));
  x = small ? x : stem.max_pool(x, {.size = 3, .stride = 2, .padding = 1});
  blocks.push_back(stem.finish(x));
  const auto stream = [&] { return blocks.back().values[blocks.back().out].dims; };
  for (std::size_t s = 0; s < stage_count; ++s) {
    for (std::int64_t i = 0; i < stages->blocks[s]; ++i) {
      blocks.push_back(residual_block(fmt::format("layer{}.{}", s + 1, i), stream(), size.width << s, s > 0 && i == 0 ? 2 : 1,
                                      stages->bottlenecks, size.group));
    }
  }
  BlockBuilder head("head", stream());
  blocks.push_back(head.finish(head.linear(head.average_pool(head.in()), "fc.weight", "fc.bias", {'c', size.classes})));
  return Model(fmt::format("resnet:{},image={},classes={}{}{}", size.depth, size.image, size.classes,
                           size.width == ResnetSize().width ? "" : fmt::format(",width={}", size.width),
                           size.group == 0 ? "" : fmt::format(",group={}", size.group)),
               std::move(blocks), Output::scores);
}

Model parse_resnet(std::string_view arguments) {
  constexpr std::string_view form =
      "resnet:18, resnet:34, resnet:50 or resnet:101, and after that image=N,classes=N,width=N,group=N";
  ResnetSize size;
  bool first = true;
  for_each_setting(arguments, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (std::exchange(first, false)) {
      const auto found = std::find_if(known_depths.begin(), known_depths.end(),
                                      [&](const Stages& one) { return fmt::format("{}", one.depth) == setting; });
      if (found == known_depths.end()) {
        throw usage_error("there is no resnet of '{}' layers: write {}", setting, form);
      }
      size.depth = found->depth;
    } else if (key == "image") {
      size.image = parse_integer(value, "image of the resnet", 1, max_resnet_extent);
    } else if (key == "classes") {
      size.classes = parse_integer(value, "classes of the resnet", 1, 1 << 20);
    } else if (key == "width") {
      size.width = parse_integer(value, "width of the resnet", 1, max_resnet_extent);
    } else if (key == "group") {
      size.group = parse_integer(value, "group of the resnet", 0, 1 << 20);
    } else {
      throw usage_error("model 'resnet:{}' has '{}', but it takes {}", arguments, setting, form);
    }
  });
  return resnet(size);
}

}  // namespace baton::model
