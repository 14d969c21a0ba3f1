#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "baton/base/shape.h"
#include "baton/base/units.h"
#include "baton/op/op.h"

namespace baton::model {

/// A tensor that training changes. It starts uniform in ±1/√fan_in, as PyTorch's Linear does.
struct Parameter {
  std::string name;
  Shape shape;
  std::int64_t fan_in = 1;
};

/// One op of a block. It reads what the op before it wrote (the first reads the block's input) and these
/// parameters of the block; `output` is the shape it writes for one sample.
struct Node {
  op::Op op;
  std::vector<std::size_t> parameters;
  Shape output;
};

/// The unit that strategies place: a chain of ops with their parameters. Shapes are those of one sample.
struct Block {
  std::string name;
  Shape input;
  std::vector<Parameter> parameters;
  std::vector<Node> nodes;

  const Shape& output() const { return nodes.back().output; }
};

/// An immutable description: blocks in order. It has never heard of a device.
class Model {
 public:
  /// Asserts that each block's input is the output of the one before.
  Model(std::string name, std::vector<Block> blocks);

  const std::string& name() const { return name_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const Shape& input() const { return blocks_.front().input; }
  const Shape& output() const { return blocks_.back().output(); }

  /// The number of a block's first parameter, counting through the model in order: what random numbers and
  /// checkpoints know it by.
  std::size_t first_parameter(std::size_t block) const { return first_parameter_[block]; }
  std::int64_t parameter_count() const;
  /// Arithmetic of one sample's forward through one block.
  Flops forward_flops(std::size_t block) const;

 private:
  std::string name_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> first_parameter_;
};

}  // namespace baton::model
