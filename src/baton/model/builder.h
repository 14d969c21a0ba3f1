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
  /// Ops so far.
  std::size_t size() const { return block_.nodes.size(); }

  /// The parameter of that name; made if it does not exist yet.
  std::size_t parameter(std::string name, Shape shape, std::int64_t fan_in, Kept kept = Kept::trained);
  /// Any op that writes one value, of these dimensions.
  std::size_t apply(op::Op op, std::vector<std::size_t> reads, std::vector<std::size_t> parameters, Dims dims);
  /// Any op that writes a value and, for its backward alone, float32 statistics of these dimensions. Gives the value.
  std::size_t apply_with_statistics(op::Op op, std::vector<std::size_t> reads, Dims dims, Dims statistics);

  /// x Wᵀ + b on the last dimension, which becomes `out`. Its parameters are `BLOCK.NAME.weight` and `.bias`, without the name
  /// if that is empty.
  std::size_t linear(std::size_t x, const std::string& name, Dim out);
  /// x Wᵀ + b with parameters of these full names, which others may share.
  std::size_t linear(std::size_t x, const std::string& weight, const std::string& bias, Dim out);
  /// x Wᵀ with a parameter of this full name.
  std::size_t linear_without_bias(std::size_t x, const std::string& weight, Dim out);
  /// x Wᵀ + b from the last dimension to `heads` of this many `features` each, which become the last two. The parameters have these
  /// full names; without a bias if that name is empty.
  std::size_t to_heads(std::size_t x, const std::string& weight, const std::string& bias, Dim heads, Dim features);
  /// The way back: from the last two dimensions to `out`.
  std::size_t from_heads(std::size_t x, const std::string& weight, const std::string& bias, Dim out);
  /// Softmax attention of (position, sample, head, feature) values.
  std::size_t attention(std::size_t q, std::size_t k, std::size_t v, bool causal);

  std::size_t relu(std::size_t x);
  /// Over the last dimension. Its parameters are `BLOCK.NAME.weight` and `.bias`.
  std::size_t layer_norm(std::size_t x, const std::string& name);
  /// A layer norm with parameters of these full names.
  std::size_t layer_norm(std::size_t x, const std::string& weight, const std::string& bias,
                         double epsilon = op::LayerNorm{}.epsilon);
  std::size_t rms_norm(std::size_t x, const std::string& weight, double epsilon);
  /// Vectors of `out` for integers below the extent of `vocabulary`; the parameter has this full name, which others may share.
  std::size_t embed(std::size_t ids, const std::string& weight, std::int64_t vocabulary, Dim out);
  std::size_t add(std::size_t a, std::size_t b);
  /// Makes a value part of the residual stream, which stays float32 in 16-bit training; gives it back.
  std::size_t in_stream(std::size_t value);
  /// x itself if the rate is 0.
  std::size_t dropout(std::size_t x, double rate);

  // A window over images, whose dimensions are (b, c, y, x). Parameters are `NAME.weight` and `NAME.bias`, a full name.
  struct Window {
    std::int64_t size = 3;
    std::int64_t stride = 1;
    std::int64_t padding = 0;
  };
  /// The number of positions of a window along an extent; 0 if the extent is too small for it.
  static std::int64_t places(const Window& window, std::int64_t extent);
  /// Its output channels are the dimension `out`.
  std::size_t conv2d(std::size_t x, const std::string& name, std::int64_t channels, const Window& window, bool bias = true,
                     char out = 'c');
  /// It also keeps the running moments, `NAME.running_mean`, `NAME.running_var` and `NAME.num_batches_tracked`.
  std::size_t batch_norm(std::size_t x, const std::string& name, std::int64_t group, double epsilon = op::BatchNorm{}.epsilon);
  std::size_t max_pool(std::size_t x, const Window& window);
  std::size_t average_pool(std::size_t x);
  /// A sample's elements as one dimension of that name.
  std::size_t flatten(std::size_t x, char name);

  /// The block, giving this value to the next.
  Block finish(std::size_t out);

 private:
  /// Dimensions of the images, with these channels, that a moving window leaves.
  Dims moved(std::size_t x, Dim channels, const Window& window) const;

  Block block_;
};

}  // namespace baton::model
