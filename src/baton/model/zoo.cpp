#include "baton/model/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/base/error.h"
#include "baton/base/text.h"

namespace baton::model {
namespace {

constexpr std::int64_t max_width = 1 << 20;
constexpr std::int64_t max_depth = 1 << 16;

Model parse_mlp(std::string_view arguments) {
  if (arguments.empty()) {
    throw usage_error("an mlp needs its size, as in mlp:dim=1024,depth=2 or mlp:1000-2000-1000");
  }
  if (arguments.find('=') == std::string_view::npos) {
    std::vector<std::int64_t> widths;
    for (const std::string_view width : split(arguments, '-')) {
      widths.push_back(parse_integer(width, "a width of the mlp", 1, max_width));
    }
    if (widths.size() < 2) {
      throw usage_error("model 'mlp:{}' needs at least two widths, as in mlp:1000-2000-1000", arguments);
    }
    return mlp(widths);
  }
  std::int64_t dim = 0;
  std::int64_t depth = 0;
  for_each_setting(arguments, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (key == "dim") {
      dim = parse_integer(value, "dim of the mlp", 1, max_width);
    } else if (key == "depth") {
      depth = parse_integer(value, "depth of the mlp", 1, max_depth);
    } else {
      throw usage_error("model 'mlp:{}' has '{}', but an mlp takes dim=N,depth=N", arguments, setting);
    }
  });
  if (dim == 0 || depth == 0) {
    throw usage_error("model 'mlp:{}' needs both dim and depth, as in mlp:dim=1024,depth=2", arguments);
  }
  return mlp(std::vector<std::int64_t>(static_cast<std::size_t>(depth) + 1, dim));
}

Model parse_first_split(std::string_view arguments) {
  if (!arguments.empty()) {
    throw usage_error("model 'first-split' takes no settings, but has '{}'", arguments);
  }
  return mlp({1000, 2000, 1000});
}

}  // namespace

Block linear_relu(std::string name, std::int64_t in, std::int64_t out) {
  Block block{std::move(name), {in}, {}, {}};
  block.parameters.push_back({block.name + ".weight", {out, in}, in});
  block.parameters.push_back({block.name + ".bias", {out}, in});
  block.nodes.push_back({op::Linear{}, {0, 1}, {out}});
  block.nodes.push_back({op::Relu{}, {}, {out}});
  return block;
}

Model mlp(const std::vector<std::int64_t>& widths) {
  check(widths.size() >= 2, "an mlp of {} widths has no layer", widths.size());
  std::vector<Block> blocks;
  bool uniform = true;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    blocks.push_back(linear_relu(fmt::format("block{}", i), widths[i], widths[i + 1]));
    uniform = uniform && widths[i] == widths[i + 1];
  }
  std::string name = uniform ? fmt::format("mlp:dim={},depth={}", widths[0], blocks.size())
                             : fmt::format("mlp:{}", fmt::join(widths, "-"));
  return Model(std::move(name), std::move(blocks));
}

const std::vector<Kind>& zoo() {
  static const std::vector<Kind> kinds{
      {"mlp", "mlp:dim=1024,depth=2 (Linear+ReLU blocks) or mlp:1000-2000-1000 (by widths)", parse_mlp},
      {"first-split", "first-split (Linear(1000,2000)+ReLU, Linear(2000,1000)+ReLU)", parse_first_split},
  };
  return kinds;
}

Model parse_model(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string name = canonical(text.substr(0, colon));
  std::vector<std::string> names;
  std::vector<std::string> forms;
  for (const Kind& kind : zoo()) {
    if (kind.name == name) {
      return kind.parse(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1));
    }
    names.push_back(kind.name);
    forms.push_back(kind.forms);
  }
  throw usage_error("unknown model '{}'{}: write {}", text, did_you_mean(name, names), either(forms));
}

}  // namespace baton::model
