#include "baton/model/cnn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

constexpr std::int64_t max_channels = 1 << 16;
constexpr std::int64_t max_image = 1 << 14;
constexpr std::int64_t hidden_features = 128;
constexpr BlockBuilder::Window convolution{.size = 3, .padding = 1};
constexpr BlockBuilder::Window pool{.size = 2, .stride = 2};

}  // namespace

Model cnn(const CnnSize& size) {
  std::vector<Block> blocks;
  Dims stream{batch, {'c', size.image_channels}, {'y', size.image}, {'x', size.image}};
  for (const std::int64_t channels : size.channels) {
    if (stream[2].extent < pool.size) {
      throw usage_error("{} halvings of an image of {} × {} leave nothing: give the cnn fewer convolutions or a larger image",
                        size.channels.size(), size.image, size.image);
    }
    const std::string name = fmt::format("conv{}", blocks.size() + 1);
    BlockBuilder block(name, stream);
    const std::size_t out = block.max_pool(block.relu(block.conv2d(block.in(), name, channels, convolution)), pool);
    stream = block.dims(out);
    blocks.push_back(block.finish(out));
  }
  BlockBuilder hidden("fc1", stream);
  blocks.push_back(hidden.finish(hidden.relu(hidden.linear(hidden.flatten(hidden.in(), 'c'), "", {'f', hidden_features}))));
  BlockBuilder scores("fc2", {batch, {'f', hidden_features}});
  blocks.push_back(scores.finish(scores.linear(scores.in(), "", {'c', size.classes})));
  return Model(fmt::format("cnn:{},image={},channels={},classes={}", fmt::join(size.channels, "-"), size.image, size.image_channels,
                           size.classes),
               std::move(blocks), Output::scores);
}

Model parse_cnn(std::string_view arguments) {
  CnnSize size;
  const auto refuse = [&](std::string_view setting) {
    return usage_error(
        "model 'cnn:{}' has '{}', but it takes the channels of its convolutions and image=N,channels=N,classes=N, "
        "as in cnn:32-64,image=28,channels=1,classes=10",
        arguments, setting);
  };
  if (arguments.empty()) {
    throw usage_error("a cnn needs the channels of its convolutions, as in cnn:32-64,image=28,channels=1,classes=10");
  }
  bool first = true;
  for_each_setting(arguments, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (std::exchange(first, false)) {
      if (setting.find('=') != std::string_view::npos) {
        throw refuse(setting);
      }
      for (const std::string_view channels : split(setting, '-')) {
        size.channels.push_back(parse_integer(channels, "a number of channels of the cnn", 1, max_channels));
      }
    } else if (key == "image") {
      size.image = parse_integer(value, "image of the cnn", 1, max_image);
    } else if (key == "channels") {
      size.image_channels = parse_integer(value, "channels of the cnn", 1, max_channels);
    } else if (key == "classes") {
      size.classes = parse_integer(value, "classes of the cnn", 1, max_channels);
    } else {
      throw refuse(setting);
    }
  });
  return cnn(size);
}

}  // namespace baton::model
