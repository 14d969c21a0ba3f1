#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/base/shape.h"
#include "baton/base/units.h"
#include "baton/op/op.h"
#include "baton/op/traits.h"

namespace baton::model {

/// A named dimension of a value. Strategies divide it by its name. `b` is the batch, whose extent is the step's.
struct Dim {
  char name = 'c';
  std::int64_t extent = 0;
  bool operator==(const Dim&) const = default;
};
using Dims = std::vector<Dim>;
inline constexpr Dim batch{'b', 0};

/// A value that an op reads or writes, dimensions outermost first. The batch is the first of them, or the second after the
/// sequence (`t`).
struct Value {
  std::string name;
  Dims dims;
  bool integers = false;    // int32; otherwise of the step's floating type
  bool statistics = false;  // float32 whatever the step computes in
  bool wide = false;        // float32 if others have 16 bits: the residual stream

  /// The index of the batch's dimension.
  std::size_t batch_axis() const;
  /// Its shape for this many samples.
  Shape shape(std::int64_t rows) const;
  /// Its shape for one, without the batch.
  Shape sample() const;
};

/// A tensor that training changes. It starts uniform in ±1/√fan_in, as PyTorch's Linear does, or at ones or zeros as gains and
/// biases of norms do. Parameters with the same name are one parameter, in whichever blocks they occur.
inline constexpr std::int64_t starts_at_ones = 0;
inline constexpr std::int64_t starts_at_zeros = -1;
/// The way in which training changes it: by gradients; or, as PyTorch's buffers, by an op that keeps statistics
/// (op::tracks), of floating-point numbers or as a count.
enum class Kept : std::uint8_t { trained, statistic, count };
struct Parameter {
  std::string name;
  Shape shape;
  std::int64_t fan_in = 1;
  Kept kept = Kept::trained;
  bool operator==(const Parameter&) const = default;
};

/// One op of a block, by the numbers of the values and parameters of the block. The op reads the values, then the parameters. One
/// that keeps statistics writes no value but those parameters.
struct Node {
  op::Op op;
  std::vector<std::size_t> reads;
  std::vector<std::size_t> parameters;
  std::vector<std::size_t> writes;
};

/// The unit that strategies place: a graph of ops with their parameters. Value 0 is its input; nodes are in an order in
/// which they can run. One value passes from a block to the next.
struct Block {
  std::string name;
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<Node> nodes;
  std::size_t out = 0;

  /// Shapes of one sample.
  Shape input() const { return values.front().sample(); }
  Shape output() const { return values[out].sample(); }
};

/// The output of a model: numbers to compare with others, or scores, one per class. The default loss depends on it.
enum class Output : std::uint8_t { numbers, scores };

/// An immutable description: blocks in order. It knows nothing of devices. Copies share it.
class Model {
 public:
  /// Asserts that each block's input is the output of the one before, that every value is written once before it is read, that
  /// every value but the last is read, and that ops fit their operands.
  Model(std::string name, std::vector<Block> blocks, Output output = Output::numbers);

  /// This model with a seed for ops that draw random numbers. Each op draws different ones, by its number in the model.
  Model with_seed(std::int64_t seed) const;

  const std::string& name() const { return body_->name; }
  const std::vector<Block>& blocks() const { return body_->blocks; }
  Shape input() const { return body_->blocks.front().input(); }
  Shape output() const { return body_->blocks.back().output(); }
  /// Scores if the constructor was told so, or if the last dimension is a vocabulary (`v`).
  Output output_kind() const { return output_value().dims.back().name == 'v' ? Output::scores : body_->output_kind; }
  const Value& output_value() const { return body_->blocks.back().values[body_->blocks.back().out]; }

  /// The number of a parameter, counting through the model in order, shared ones once, and statistics after all that
  /// are trained. Random numbers and checkpoints refer to it by this number.
  std::size_t ordinal(std::size_t block, std::size_t parameter) const { return body_->ordinals[block][parameter]; }
  /// Numbers that are trained.
  std::int64_t parameter_count() const;
  /// Arithmetic of one sample's forward through one block.
  Flops forward_flops(std::size_t block) const;
  /// Rows, inputs and outputs of the products with weights in that.
  std::vector<op::ProductExtents> products(std::size_t block) const;

 private:
  struct Body {
    std::string name;
    std::vector<Block> blocks;
    Output output_kind;
    std::vector<std::vector<std::size_t>> ordinals;
  };
  static Body checked(Body body);

  std::shared_ptr<const Body> body_;
};

/// The model for evaluation: ops that behave differently there have their form for evaluation and read the statistics that training
/// keeps; nothing is tracked. Parameters have the same names.
Model for_evaluation(const Model& model);

/// True if two models compute the same from the same weights, apart from what only training does (dropout), the length of
/// sequences and the size of images.
bool is_same_network(const Model& a, const Model& b);

}  // namespace baton::model
