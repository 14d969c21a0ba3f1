#include "baton/model/cnn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/base/error.h"
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

Model parse_cnn(const ModelSettings& settings) {
  CnnSize size;
  if (settings.empty()) {
    throw usage_error("a cnn needs the channels of its convolutions, as in cnn:32-64,image=28,channels=1,classes=10");
  }
  settings.for_each([&](const ModelSetting& setting, const std::string& key) {
    if (!setting.key && &setting == &settings.list().front()) {
      size.channels = setting.sizes("a number of channels of the cnn", 1, max_channels);
    } else if (key == "image" && !size.channels.empty()) {
      size.image = setting.whole("image of the cnn", 1, max_image);
    } else if (key == "channels" && !size.channels.empty()) {
      size.image_channels = setting.whole("channels of the cnn", 1, max_channels);
    } else if (key == "classes" && !size.channels.empty()) {
      size.classes = setting.whole("classes of the cnn", 1, max_channels);
    } else {
      throw usage_error(
          "model 'cnn:{}' has '{}', but it takes the channels of its convolutions and image=N,channels=N,classes=N, "
          "as in cnn:32-64,image=28,channels=1,classes=10",
          settings.text(), setting.text());
    }
  });
  return cnn(size);
}

}  // namespace baton::model
