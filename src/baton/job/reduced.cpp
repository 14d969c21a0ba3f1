#include "baton/job/reduced.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

namespace baton::job {
namespace {

std::string list_of(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (const std::size_t n : numbers) {
    text += fmt::format("{} ", n);
  }
  return text + ";";
}

/// Equal for blocks that compute the same on values and parameters of the same shapes.
std::string kind_of(const model::Block& block) {
  std::string text;
  for (const model::Value& value : block.values) {
    text += value.integers ? "i" : value.statistics ? "s" : value.wide ? "w" : "v";
    for (const model::Dim& dim : value.dims) {
      text += fmt::format("{}{} ", dim.name, dim.extent);
    }
  }
  for (const model::Parameter& parameter : block.parameters) {
    text += fmt::format("p{}{}", static_cast<int>(parameter.kept), to_text(parameter.shape));
  }
  for (const model::Node& node : block.nodes) {
    text += fmt::format("{} {}{}{}", op::name(node.op), list_of(node.reads), list_of(node.parameters), list_of(node.writes));
  }
  return text;
}

}  // namespace

Reduced reduced(const model::Model& model) {
  const std::vector<model::Block>& blocks = model.blocks();
  std::map<std::string, std::size_t> known;
  std::vector<std::size_t> kinds;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const std::string end = b == 0 ? "first " : b + 1 == blocks.size() ? "last " : "";
    kinds.push_back(known.try_emplace(end + kind_of(blocks[b]), known.size()).first->second);
  }
  std::vector<std::size_t> kept(blocks.size());
  for (std::size_t b = 0; b < kept.size(); ++b) {
    kept[b] = b;
  }
  constexpr std::size_t longest = 16;
  for (std::size_t length = 1; length <= longest; ++length) {
    for (std::size_t at = 0; at + 2 * length <= kept.size();) {
      const auto begin = kept.begin() + static_cast<std::ptrdiff_t>(at);
      const auto middle = begin + static_cast<std::ptrdiff_t>(length);
      const bool again = std::equal(begin, middle, middle, [&](std::size_t a, std::size_t b) { return kinds[a] == kinds[b]; });
      if (again) {
        kept.erase(middle, middle + static_cast<std::ptrdiff_t>(length));
      } else {
        ++at;
      }
    }
  }
  std::vector<model::Block> left;
  std::map<std::size_t, std::size_t> place;  // by kind
  for (const std::size_t b : kept) {
    place.try_emplace(kinds[b], left.size());
    left.push_back(blocks[b]);
  }
  Reduced result{model::Model(model.name(), std::move(left), model.output_kind()), {}};
  for (const std::size_t kind : kinds) {
    result.block_of.push_back(place.at(kind));
  }
  return result;
}

}  // namespace baton::job
