#include "baton/model/resnet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/builder.h"
#include "baton/model/settings.h"

namespace baton::model {
namespace {

using Window = BlockBuilder::Window;

constexpr std::int64_t max_resnet_extent = 1 << 14;
constexpr std::int64_t small_image = 64;
constexpr std::size_t stage_count = 4;
constexpr std::size_t most_stages = 8;
constexpr std::int64_t most_blocks = 1 << 12;
constexpr std::int64_t narrowing = 4;  // the factor by which a bottleneck has fewer channels

struct Stages {
  std::int64_t depth;
  std::array<std::int64_t, stage_count> blocks;  // by stage
  bool bottlenecks;
};
constexpr std::array<Stages, 4> known_depths{
    Stages{18, {2, 2, 2, 2}, false}, {34, {3, 4, 6, 3}, false}, {50, {3, 4, 6, 3}, true}, {101, {3, 4, 23, 3}, true}};

/// "3-4-6-3".
std::vector<std::int64_t> read_list(const ModelSetting& setting, std::string_view what, std::int64_t most) {
  std::vector<std::int64_t> list = setting.sizes(what, 1, most);
  if (list.size() > most_stages) {
    throw usage_error("the resnet has {} stages, but at most {} are possible", list.size(), most_stages);
  }
  return list;
}

/// A convolution without bias and the norm after it.
struct NormedConvolutions {
  BlockBuilder& block;
  std::int64_t group;

  std::size_t operator()(std::size_t x, const std::string& convolution, const std::string& norm, std::int64_t channels,
                         const Window& window, char out = 'c') const {
    return block.batch_norm(block.conv2d(x, convolution, channels, window, false, out), norm, group);
  }
};

/// Two convolutions of 3×3, or three of which the middle one is and has a quarter of the channels that come out; the input is added
/// after them, itself or by a convolution that gives it the same shape. The channels between the last two are a dimension of their
/// own, `f`, which tensor parallelism divides.
Block residual_block(const std::string& name, const Dims& stream, std::int64_t out, std::int64_t stride, bool bottleneck,
                     const ResnetSize& size) {
  BlockBuilder block(name, stream);
  const NormedConvolutions normed{block, size.group};
  const auto numbered = [&](std::size_t x, int number, std::int64_t channels, const Window& window, char dim = 'c') {
    return normed(x, fmt::format("{}.conv{}", name, number), fmt::format("{}.bn{}", name, number), channels, window, dim);
  };
  const Window three{.size = 3, .padding = 1};
  const Window moving{.size = 3, .stride = stride, .padding = 1};
  std::size_t x = block.in();
  if (bottleneck) {
    const std::int64_t narrow = out / narrowing;
    x = block.relu(numbered(x, 1, narrow, {.size = 1, .stride = size.early ? stride : 1}));
    x = block.relu(numbered(x, 2, narrow, size.early ? three : moving, 'f'));
    x = numbered(x, 3, out, {.size = 1});
  } else {
    x = block.relu(numbered(x, 1, out, moving, 'f'));
    x = numbered(x, 2, out, three);
  }
  const bool same = stride == 1 && stream[1].extent == out;
  const std::size_t read = same ? block.in()
                                : normed(block.in(), name + ".downsample.0", name + ".downsample.1", out,
                                         {.size = 1, .stride = stride});
  return block.finish(block.relu(block.add(x, read)));
}

}  // namespace

ResnetStages stages_of(const ResnetSize& size) {
  const auto known = std::find_if(known_depths.begin(), known_depths.end(),
                                  [&](const Stages& one) { return one.depth == size.depth; });
  check(known != known_depths.end(), "a resnet of {} layers", size.depth);
  ResnetStages stages{.blocks = size.blocks, .outputs = size.outputs, .bottlenecks = known->bottlenecks};
  if (stages.blocks.empty()) {
    stages.blocks.assign(known->blocks.begin(), known->blocks.end());
  }
  for (std::size_t s = 0; s < stages.blocks.size() && size.outputs.empty(); ++s) {
    stages.outputs.push_back((size.width << s) * (stages.bottlenecks ? narrowing : 1));
  }
  return stages;
}

ModelSettings resnet_settings(const ResnetSize& size) {
  const ResnetSize usual;
  ModelSettings settings;
  settings.add(size.depth)
      .add("image", size.image)
      .add("classes", size.classes)
      .add_unless("width", size.width, usual.width)
      .add_unless("group", size.group, usual.group)
      .add_unless("channels", size.channels, usual.channels);
  if (has_large_stem(size) != (size.image > small_image)) {
    settings.add("stem", has_large_stem(size) ? "large" : "small");
  }
  return settings.add_unless("blocks", size.blocks, {})
      .add_unless("outputs", size.outputs, {})
      .add_unless("early", size.early, usual.early)
      .add_unless("first-moves", size.first_moves, usual.first_moves);
}

bool has_large_stem(const ResnetSize& size) { return size.large_stem.value_or(size.image > small_image); }

Model resnet(const ResnetSize& size) {
  const ResnetStages stages = stages_of(size);
  if (stages.outputs.size() != stages.blocks.size()) {
    throw usage_error("the resnet has blocks of {} stages and outputs of {}", stages.blocks.size(), stages.outputs.size());
  }
  for (const std::int64_t out : stages.outputs) {
    if (stages.bottlenecks && out < narrowing) {
      throw usage_error("a bottleneck of the resnet has {} output channels, but needs at least {}", out, narrowing);
    }
  }
  const bool small = !has_large_stem(size);
  std::vector<Block> blocks;
  BlockBuilder stem("stem", {batch, {'c', size.channels}, {'y', size.image}, {'x', size.image}});
  std::size_t x = stem.relu(
      NormedConvolutions{stem, size.group}(stem.in(), "conv1", "bn1", size.width,
                                           small ? Window{.size = 3, .padding = 1} : Window{.size = 7, .stride = 2, .padding = 3}));
  x = small ? x : stem.max_pool(x, {.size = 3, .stride = 2, .padding = 1});
  blocks.push_back(stem.finish(x));
  const auto stream = [&] { return blocks.back().values[blocks.back().out].dims; };
  for (std::size_t s = 0; s < stages.blocks.size(); ++s) {
    for (std::int64_t i = 0; i < stages.blocks[s]; ++i) {
      const bool moves = i == 0 && (s > 0 || size.first_moves);
      blocks.push_back(residual_block(fmt::format("layer{}.{}", s + 1, i), stream(), stages.outputs[s], moves ? 2 : 1,
                                      stages.bottlenecks, size));
    }
  }
  BlockBuilder head("head", stream());
  blocks.push_back(head.finish(head.linear(head.average_pool(head.in()), "fc.weight", "fc.bias", {'c', size.classes})));
  return Model(ModelName("resnet", resnet_settings(size)).text(), std::move(blocks), Output::scores);
}

Model parse_resnet(const ModelSettings& settings) { return resnet(parse_resnet_size(settings)); }

ResnetSize parse_resnet_size(const ModelSettings& settings) {
  constexpr std::string_view form =
      "resnet:18, resnet:34, resnet:50 or resnet:101, and after that image=N,classes=N,width=N,group=N,channels=N,"
      "stem=large|small,blocks=3-4-6-3,outputs=256-512-1024-2048,early=on|off,first-moves=on|off";
  const std::vector<std::string> switches{"off", "on"};
  ResnetSize size;
  const ModelSetting first = settings.list().empty() ? ModelSetting() : settings.list().front();
  const auto found = std::find_if(known_depths.begin(), known_depths.end(), [&](const Stages& one) {
    return first == ModelSetting{std::nullopt, one.depth};
  });
  if (found == known_depths.end()) {
    throw usage_error("there is no resnet of '{}' layers: write {}", first.text(), form);
  }
  size.depth = found->depth;
  settings.for_each([&](const ModelSetting& value, const std::string& key) {
    if (value == first) {
      return;
    }
    if (key == "image") {
      size.image = value.whole("image of the resnet", 1, max_resnet_extent);
    } else if (key == "classes") {
      size.classes = value.whole("classes of the resnet", 1, 1 << 20);
    } else if (key == "width") {
      size.width = value.whole("width of the resnet", 1, max_resnet_extent);
    } else if (key == "group") {
      size.group = value.whole("group of the resnet", 0, 1 << 20);
    } else if (key == "channels") {
      size.channels = value.whole("channels of the resnet", 1, max_resnet_extent);
    } else if (key == "stem") {
      size.large_stem = value.choice({"small", "large"}, "stem of the resnet") == 1;
    } else if (key == "blocks") {
      size.blocks = read_list(value, "a number of blocks of the resnet", most_blocks);
    } else if (key == "outputs") {
      size.outputs = read_list(value, "a number of outputs of the resnet", max_width);
    } else if (key == "early") {
      size.early = value.choice(switches, "early of the resnet") == 1;
    } else if (key == "first-moves") {
      size.first_moves = value.choice(switches, "first-moves of the resnet") == 1;
    } else {
      throw usage_error("model 'resnet:{}' has '{}', but it takes {}", settings.text(), value.text(), form);
    }
  });
  return size;
}

}  // namespace baton::model
