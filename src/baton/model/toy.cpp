#include "baton/model/toy.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/model/builder.h"

namespace baton::model {
namespace {

Model without_settings(std::string_view name, const ModelSettings& settings, std::int64_t layers) {
  if (!settings.empty()) {
    throw usage_error("model '{}' takes no settings, but has '{}'", name, settings.text());
  }
  return toy(layers);
}

}  // namespace

Model toy(std::int64_t layers) {
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < layers; ++i) {
    const bool last = i + 1 == layers;
    // As in an mlp, layers stand in pairs with features of their own between them.
    const Dim in{i % 2 == 1 ? 'f' : 'c', 10};
    const Dim out{i % 2 == 0 && !last ? 'f' : 'c', last ? 5 : 10};
    BlockBuilder block(fmt::format("net{}", i + 1), {batch, in});
    const std::size_t linear = block.linear(block.in(), "", out);
    blocks.push_back(block.finish(last ? linear : block.relu(linear)));
  }
  return Model(layers == 2 ? "toy" : fmt::format("toy-{}", layers), std::move(blocks));
}

Model parse_toy(const ModelSettings& settings) { return without_settings("toy", settings, 2); }
Model parse_toy_4(const ModelSettings& settings) { return without_settings("toy-4", settings, 4); }

}  // namespace baton::model
