#include "baton/model/builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::model {

BlockBuilder::BlockBuilder(std::string name, Dims input, bool integers) {
  block_.name = std::move(name);
  block_.values.push_back({"x", std::move(input), integers});
}

std::size_t BlockBuilder::parameter(std::string name, Shape shape, std::int64_t fan_in, Kept kept) {
  const auto found = std::find_if(block_.parameters.begin(), block_.parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == name; });
  if (found != block_.parameters.end()) {
    return static_cast<std::size_t>(found - block_.parameters.begin());
  }
  block_.parameters.push_back({std::move(name), std::move(shape), fan_in, kept});
  return block_.parameters.size() - 1;
}

std::size_t BlockBuilder::apply(op::Op op, std::vector<std::size_t> reads, std::vector<std::size_t> parameters, Dims dims) {
  block_.values.push_back({fmt::format("{}.{}", block_.name, op::name(op)), std::move(dims)});
  block_.nodes.push_back({op, std::move(reads), std::move(parameters), {block_.values.size() - 1}});
  return block_.values.size() - 1;
}

std::size_t BlockBuilder::apply_with_statistics(op::Op op, std::vector<std::size_t> reads, Dims dims, Dims statistics) {
  const std::size_t value = apply(op, std::move(reads), {}, std::move(dims));
  block_.values.push_back({.name = block_.values.back().name + ".statistics", .dims = std::move(statistics), .statistics = true});
  block_.nodes.back().writes.push_back(block_.values.size() - 1);
  return value;
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
  return layer_norm(x, full + ".weight", full + ".bias");
}

std::size_t BlockBuilder::layer_norm(std::size_t x, const std::string& weight, const std::string& bias, double epsilon) {
  const Dims dims = block_.values[x].dims;
  const std::size_t gain = parameter(weight, {dims.back().extent}, starts_at_ones);
  const std::size_t added = parameter(bias, {dims.back().extent}, starts_at_zeros);
  return apply(op::LayerNorm{epsilon}, {x}, {gain, added}, dims);
}

std::size_t BlockBuilder::rms_norm(std::size_t x, const std::string& weight, double epsilon) {
  const Dims dims = block_.values[x].dims;
  return apply(op::RmsNorm{epsilon}, {x}, {parameter(weight, {dims.back().extent}, starts_at_ones)}, dims);
}

std::size_t BlockBuilder::linear_without_bias(std::size_t x, const std::string& weight, Dim out) {
  Dims dims = block_.values[x].dims;
  const std::int64_t in = dims.back().extent;
  dims.back() = out;
  return apply(op::Linear{.no_bias = true}, {x}, {parameter(weight, {out.extent, in}, in)}, std::move(dims));
}

std::size_t BlockBuilder::to_heads(std::size_t x, const std::string& weight, const std::string& bias, Dim heads, Dim features) {
  Dims dims = block_.values[x].dims;
  const std::int64_t in = dims.back().extent;
  dims.back() = heads;
  dims.push_back(features);
  std::vector<std::size_t> parameters{parameter(weight, {heads.extent, features.extent, in}, in)};
  if (!bias.empty()) {
    parameters.push_back(parameter(bias, {heads.extent, features.extent}, in));
  }
  return apply(op::Linear{.out_heads = true, .no_bias = bias.empty()}, {x}, std::move(parameters), std::move(dims));
}

std::size_t BlockBuilder::from_heads(std::size_t x, const std::string& weight, const std::string& bias, Dim out) {
  Dims dims = block_.values[x].dims;
  const std::int64_t features = dims.back().extent;
  dims.pop_back();
  const std::int64_t heads = dims.back().extent;
  dims.back() = out;
  std::vector<std::size_t> parameters{parameter(weight, {out.extent, heads, features}, heads * features)};
  if (!bias.empty()) {
    parameters.push_back(parameter(bias, {out.extent}, heads * features));
  }
  return apply(op::Linear{.in_heads = true, .no_bias = bias.empty()}, {x}, std::move(parameters), std::move(dims));
}

std::size_t BlockBuilder::attention(std::size_t q, std::size_t k, std::size_t v, bool causal) {
  const Dims dims = block_.values[q].dims;
  Dims sums = dims;
  sums.back() = {'r', dims.back().extent / block_.values[k].dims.back().extent};
  return apply_with_statistics(op::Attention{causal}, {q, k, v}, dims, std::move(sums));
}

std::size_t BlockBuilder::embed(std::size_t ids, const std::string& weight, std::int64_t vocabulary, Dim out) {
  Dims dims = block_.values[ids].dims;
  dims.push_back(out);
  const std::size_t w = parameter(weight, {vocabulary, out.extent}, out.extent);
  return apply(op::Embed{}, {ids}, {w}, std::move(dims));
}

std::size_t BlockBuilder::relu(std::size_t x) { return apply(op::Relu{}, {x}, {}, block_.values[x].dims); }

std::size_t BlockBuilder::add(std::size_t a, std::size_t b) { return apply(op::Add{}, {a, b}, {}, block_.values[a].dims); }

std::size_t BlockBuilder::in_stream(std::size_t value) {
  block_.values[value].wide = true;
  return value;
}

std::size_t BlockBuilder::dropout(std::size_t x, double rate) {
  if (rate == 0) {
    return x;
  }
  const std::size_t kept = apply(op::Dropout{.rate = rate}, {x}, {}, block_.values[x].dims);
  block_.values[kept].wide = block_.values[x].wide;
  return kept;
}

std::int64_t BlockBuilder::places(const Window& window, std::int64_t extent) {
  const std::int64_t room = extent + 2 * window.padding - window.size;
  return room < 0 ? 0 : room / window.stride + 1;
}

Dims BlockBuilder::moved(std::size_t x, Dim channels, const Window& window) const {
  Dims dims = block_.values[x].dims;
  dims[1] = channels;
  dims[2].extent = places(window, dims[2].extent);
  dims[3].extent = places(window, dims[3].extent);
  return dims;
}

std::size_t BlockBuilder::conv2d(std::size_t x, const std::string& name, std::int64_t channels, const Window& window, bool bias,
                                 char out) {
  const std::int64_t in = block_.values[x].dims[1].extent;
  const std::int64_t fan_in = in * window.size * window.size;
  std::vector<std::size_t> parameters{parameter(name + ".weight", {channels, in, window.size, window.size}, fan_in)};
  if (bias) {
    parameters.push_back(parameter(name + ".bias", {channels}, fan_in));
  }
  return apply(op::Conv2d{.stride = window.stride, .padding = window.padding, .no_bias = !bias}, {x}, std::move(parameters),
               moved(x, {out, channels}, window));
}

std::size_t BlockBuilder::batch_norm(std::size_t x, const std::string& name, std::int64_t group, double epsilon) {
  const Dims dims = block_.values[x].dims;
  const std::size_t weight = parameter(name + ".weight", {dims[1].extent}, starts_at_ones);
  const std::size_t bias = parameter(name + ".bias", {dims[1].extent}, starts_at_zeros);
  const std::size_t mean = parameter(name + ".running_mean", {dims[1].extent}, starts_at_zeros, Kept::statistic);
  const std::size_t variance = parameter(name + ".running_var", {dims[1].extent}, starts_at_ones, Kept::statistic);
  const std::size_t count = parameter(name + ".num_batches_tracked", {1}, starts_at_zeros, Kept::count);
  block_.nodes.push_back({op::TrackMoments{.group = group}, {x}, {mean, variance, count}, {}});
  return apply(op::BatchNorm{.epsilon = epsilon, .group = group}, {x}, {weight, bias}, dims);
}

std::size_t BlockBuilder::max_pool(std::size_t x, const Window& window) {
  return apply(op::MaxPool{window.size, window.stride, window.padding}, {x}, {}, moved(x, block_.values[x].dims[1], window));
}

std::size_t BlockBuilder::average_pool(std::size_t x) {
  const Dims& dims = block_.values[x].dims;
  return apply(op::AveragePool{}, {x}, {}, {dims[0], dims[1]});
}

std::size_t BlockBuilder::flatten(std::size_t x, char name) {
  return apply(op::Flatten{}, {x}, {}, {batch, {name, block_.values[x].sample().elements()}});
}

Block BlockBuilder::finish(std::size_t out) {
  block_.out = out;
  return std::move(block_);
}

}  // namespace baton::model
