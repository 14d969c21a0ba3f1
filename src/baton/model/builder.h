#pragma once

#include <string>
#include <vector>

#include "baton/model/model.h"

namespace baton::model {

/// Puts a block together, op by op. Values and parameters are known by the numbers that it gives out.
///
///   BlockBuilder block("ffn", {batch, {'c', 64}});
///   const std::size_t hidden = block.relu(block.linear(block.in(), "up", {'f', 256}));
///   return block.finish(block.add(block.in(), block.linear(hidden, "down", {'c', 64})));
class BlockBuilder {
 public:
  BlockBuilder(std::string name, Dims input, bool integers = false);

  /// The value that the block is given.
  std::size_t in() const { return 0; }
  const Dims& dims(std::size_t value) const { return block_.values[value].dims; }

  /// A parameter of that name; one that is there already where the name is.
  std::size_t parameter(std::string name, Shape shape, std::int64_t fan_in);
  /// Any op that writes one value, of these dimensions.
  std::size_t apply(op::Op op, std::vector<std::size_t> reads, std::vector<std::size_t> parameters, Dims dims);

  /// x Wᵀ + b on the last dimension, which becomes `out`. Its parameters are `BLOCK.NAME.weight` and `.bias`, without the name
  /// where that is empty.
  std::size_t linear(std::size_t x, const std::string& name, Dim out);
  /// The same with parameters of these full names, which others may share.
  std::size_t linear(std::size_t x, const std::string& weight, const std::string& bias, Dim out);
  std::size_t relu(std::size_t x);
  /// Over the last dimension. Its parameters are `BLOCK.NAME.weight` and `.bias`.
  std::size_t layer_norm(std::size_t x, const std::string& name);
  /// Vectors of `out` for integers below the extent of `vocabulary`; the parameter has this full name, which others may share.
  std::size_t embed(std::size_t ids, const std::string& weight, std::int64_t vocabulary, Dim out);
  std::size_t add(std::size_t a, std::size_t b);

  /// The block, giving this value to the next.
  Block finish(std::size_t out);

 private:
  Block block_;
};

}  // namespace baton::model
