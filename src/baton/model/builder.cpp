#include "baton/model/builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::model {

BlockBuilder::BlockBuilder(std::string name, Dims input, bool integers) {
  block_.name = std::move(name);
  block_.values.push_back({"x", std::move(input), integers});
}

std::size_t BlockBuilder::parameter(std::string name, Shape shape, std::int64_t fan_in) {
  const auto found = std::find_if(block_.parameters.begin(), block_.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  if (found != block_.parameters.end()) {
    return static_cast<std::size_t>(found - block_.parameters.begin());
  }
  block_.parameters.push_back({std::move(name), std::move(shape), fan_in});
  return block_.parameters.size() - 1;
}

std::size_t BlockBuilder::apply(op::Op op, std::vector<std::size_t> reads, std::vector<std::size_t> parameters, Dims dims) {
  block_.values.push_back({fmt::format("{}.{}", block_.name, op::name(op)), std::move(dims)});
  block_.nodes.push_back({op, std::move(reads), std::move(parameters), {block_.values.size() - 1}});
  return block_.values.size() - 1;
}

std::size_t BlockBuilder::linear(std::size_t x, const std::string& name, Dim out) {
  const std::string full = name.empty() ? block_.name : fmt::format("{}.{}", block_.name, name);
  return linear(x, full + ".weight", full + ".bias", out);
}

std::size_t BlockBuilder::linear(std::size_t x, const std::string& weight, const std::string& bias, Dim out) {
  Dims dims = block_.values[x].dims;
  const std::int64_t in = dims.back().extent;
  dims.back() = out;
  const std::size_t w = parameter(weight, {out.extent, in}, in);
  const std::size_t b = parameter(bias, {out.extent}, in);
  return apply(op::Linear{}, {x}, {w, b}, std::move(dims));
}

std::size_t BlockBuilder::layer_norm(std::size_t x, const std::string& name) {
  const Dims dims = block_.values[x].dims;
  const std::string full = fmt::format("{}.{}", block_.name, name);
  const std::size_t weight = parameter(full + ".weight", {dims.back().extent}, starts_at_ones);
  const std::size_t bias = parameter(full + ".bias", {dims.back().extent}, starts_at_zeros);
  return apply(op::LayerNorm{}, {x}, {weight, bias}, dims);
}

std::size_t BlockBuilder::embed(std::size_t ids, const std::string& weight, std::int64_t vocabulary, Dim out) {
  Dims dims = block_.values[ids].dims;
  dims.push_back(out);
  const std::size_t w = parameter(weight, {vocabulary, out.extent}, out.extent);
  return apply(op::Embed{}, {ids}, {w}, std::move(dims));
}

std::size_t BlockBuilder::relu(std::size_t x) { return apply(op::Relu{}, {x}, {}, block_.values[x].dims); }

std::size_t BlockBuilder::add(std::size_t a, std::size_t b) { return apply(op::Add{}, {a, b}, {}, block_.values[a].dims); }

Block BlockBuilder::finish(std::size_t out) {
  block_.out = out;
  return std::move(block_);
}

}  // namespace baton::model
