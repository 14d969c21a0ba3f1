#include "baton/model/model.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "baton/base/error.h"
#include "baton/op/traits.h"

namespace baton::model {
namespace {

std::vector<op::Operand> operands(const Block& block, const std::vector<std::size_t>& values, std::int64_t rows) {
  std::vector<op::Operand> list;
  for (const std::size_t value : values) {
    list.push_back({block.values[value].shape(rows), block.values[value].integers ? DType::i32 : DType::f32});
  }
  return list;
}

op::Operand operand(const Parameter& parameter) {
  return {parameter.shape, parameter.kept == Kept::count ? DType::i32 : DType::f32};
}

std::vector<op::Operand> reads_of(const Block& block, const Node& node, std::int64_t rows) {
  std::vector<op::Operand> reads = operands(block, node.reads, rows);
  for (const std::size_t parameter : node.parameters) {
    reads.push_back(operand(block.parameters[parameter]));
  }
  return reads;
}

std::vector<op::Operand> writes_of(const Block& block, const Node& node, std::int64_t rows) {
  std::vector<op::Operand> writes = operands(block, node.writes, rows);
  if (op::tracks(node.op)) {
    for (const std::size_t parameter : node.parameters) {
      writes.push_back(operand(block.parameters[parameter]));
    }
  }
  return writes;
}

/// A batch that every op of a block takes.
std::int64_t some_batch(const Block& block) {
  std::int64_t rows = 2;
  for (const Node& node : block.nodes) {
    rows = std::lcm(rows, std::max<std::int64_t>(1, op::samples_together(node.op)));
  }
  return rows;
}

void check_block(const Block& block) {
  check(!block.nodes.empty(), "block {} is empty", block.name);
  std::vector<bool> written(block.values.size(), false);
  std::vector<bool> read(block.values.size(), false);
  written[0] = true;
  read[block.out] = true;
  const std::int64_t rows = some_batch(block);
  for (const Value& value : block.values) {
    value.batch_axis();
  }
  for (const Node& node : block.nodes) {
    for (const std::size_t value : node.reads) {
      check(value < written.size() && written[value], "{} of block {} reads a value before it is written", op::name(node.op),
            block.name);
      read[value] = true;
    }
    for (std::size_t i = 0; i < node.writes.size(); ++i) {
      const std::size_t value = node.writes[i];
      check(value < written.size() && !written[value], "{} of block {} writes a value again", op::name(node.op), block.name);
      written[value] = true;
      read[value] = read[value] || i > 0;  // what is kept for the backward alone
    }
    const auto why = op::mismatch(node.op, reads_of(block, node, rows), writes_of(block, node, rows));
    check(!why, "block {}: {}", block.name, why.value_or(""));
  }
  for (std::size_t v = 0; v < block.values.size(); ++v) {
    check(read[v] && written[v], "no op {} {} of block {}", read[v] ? "writes" : "reads", block.values[v].name, block.name);
  }
}

/// Numbers the ops that draw random numbers, in order.
void number_draws(std::vector<Block>& blocks, std::int64_t seed) {
  std::int64_t number = 0;
  for (Block& block : blocks) {
    for (Node& node : block.nodes) {
      if (op::depends_on_step(node.op)) {
        node.op = op::drawing(node.op, seed, number++);
      }
    }
  }
}

/// Leaves out the parameters that no op of the block reads.
void drop_unread_parameters(Block& block) {
  std::vector<bool> is_read(block.parameters.size(), false);
  for (const Node& node : block.nodes) {
    for (const std::size_t p : node.parameters) {
      is_read[p] = true;
    }
  }
  std::vector<std::size_t> numbers;
  std::vector<Parameter> left;
  for (std::size_t p = 0; p < block.parameters.size(); ++p) {
    numbers.push_back(left.size());
    if (is_read[p]) {
      left.push_back(block.parameters[p]);
    }
  }
  for (Node& node : block.nodes) {
    for (std::size_t& p : node.parameters) {
      p = numbers[p];
    }
  }
  block.parameters = std::move(left);
}

}  // namespace

std::size_t Value::batch_axis() const {
  const auto found = std::find_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.name == batch.name; });
  const std::size_t axis = static_cast<std::size_t>(found - dims.begin());
  check(found != dims.end() && axis <= 1 && (axis == 0 || dims[0].name == 't'),
        "value {} has its batch neither first nor after its sequence", name);
  return axis;
}

Shape Value::shape(std::int64_t rows) const {
  Shape::Extents extents;
  for (const Dim& dim : dims) {
    extents.push_back(dim.name == batch.name ? rows : dim.extent);
  }
  return Shape(std::move(extents));
}

Shape Value::sample() const {
  Shape::Extents extents;
  for (const Dim& dim : dims) {
    if (dim.name != batch.name) {
      extents.push_back(dim.extent);
    }
  }
  return Shape(std::move(extents));
}

Model Model::with_seed(std::int64_t seed) const {
  Body body = *body_;
  number_draws(body.blocks, seed);
  Model other = *this;
  other.body_ = std::make_shared<const Body>(std::move(body));
  return other;
}

Model::Model(std::string name, std::vector<Block> blocks, Output output)
    : body_(std::make_shared<const Body>(
          checked({.name = std::move(name), .blocks = std::move(blocks), .output_kind = output, .ordinals = {}}))) {}

/// Checks the blocks, and numbers their parameters and the ops that draw random numbers.
Model::Body Model::checked(Body body) {
  std::vector<Block>& blocks = body.blocks;
  check(!blocks.empty(), "model {} has no blocks", body.name);
  number_draws(blocks, 0);
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    blocks[b].values[0].wide = blocks[b - 1].values[blocks[b - 1].out].wide;
  }
  std::map<std::string, std::pair<std::size_t, Parameter>> known;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    check_block(block);
    if (b > 0) {
      const Value& before = blocks[b - 1].values[blocks[b - 1].out];
      check(before.dims == block.values[0].dims && before.integers == block.values[0].integers,
            "block {} takes {}, but the one before gives {}", block.name, to_text(block.input()), to_text(before.sample()));
    }
    body.ordinals.emplace_back(block.parameters.size());
  }
  for (const bool trained : {true, false}) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (std::size_t p = 0; p < blocks[b].parameters.size(); ++p) {
        const Parameter& parameter = blocks[b].parameters[p];
        if ((parameter.kept == Kept::trained) != trained) {
          continue;
        }
        const auto [found, added] = known.try_emplace(parameter.name, known.size(), parameter);
        check(added || found->second.second == parameter, "parameter {} has two shapes", parameter.name);
        body.ordinals[b][p] = found->second.first;
      }
    }
  }
  return body;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  std::size_t next = 0;
  for (std::size_t b = 0; b < blocks().size(); ++b) {
    for (std::size_t p = 0; p < blocks()[b].parameters.size(); ++p) {
      const Parameter& parameter = blocks()[b].parameters[p];
      if (ordinal(b, p) == next && parameter.kept == Kept::trained) {  // the first of those that share a name
        count += parameter.shape.elements();
        ++next;
      }
    }
  }
  return count;
}

Flops Model::forward_flops(std::size_t block) const {
  Flops total;
  for (const Node& node : blocks()[block].nodes) {
    total += op::work(node.op, reads_of(blocks()[block], node, 1), writes_of(blocks()[block], node, 1)).flops;
  }
  return total;
}

std::vector<op::ProductExtents> Model::products(std::size_t block) const {
  std::vector<op::ProductExtents> list;
  for (const Node& node : blocks()[block].nodes) {
    if (op::is_product(node.op) && op::weight_operand(node.op)) {
      list.push_back(*op::product_extents(node.op, reads_of(blocks()[block], node, 1), operands(blocks()[block], node.writes, 1)));
    }
  }
  return list;
}

Model for_evaluation(const Model& model) {
  std::vector<Block> blocks;
  for (const Block& trained : model.blocks()) {
    Block& block = blocks.emplace_back(trained);
    block.nodes.clear();
    for (const Node& node : trained.nodes) {
      if (op::tracks(node.op)) {
        continue;
      }
      Node& added = block.nodes.emplace_back(node);
      const std::optional<op::EvaluationForm> form = op::evaluation_form(node.op);
      added.op = form ? form->op : node.op;
      if (form && form->statistics > 0) {
        const auto tracker = std::find_if(trained.nodes.begin(), trained.nodes.end(), [&](const Node& other) {
          return op::tracks(other.op) && other.reads[0] == node.reads[0];
        });
        check(tracker != trained.nodes.end(), "nothing keeps statistics for {} of block {}", op::name(node.op), block.name);
        added.parameters.insert(added.parameters.end(), tracker->parameters.begin(),
                                tracker->parameters.begin() + static_cast<std::ptrdiff_t>(form->statistics));
      }
    }
    drop_unread_parameters(block);
  }
  return Model(model.name(), std::move(blocks), model.output_kind());
}

bool is_same_network(const Model& a, const Model& b) {
  struct NumberedNode {
    op::Op op;
    std::vector<Parameter> parameters;
    Dims dims;
    std::vector<std::size_t> reads;  // by the order in which a block's values are written; 0 is its input
    bool operator==(const NumberedNode&) const = default;
  };
  const auto nodes_of = [](const Model& model) {
    constexpr std::string_view of_positions = "btnpyx";  // extents along these may differ
    std::vector<NumberedNode> nodes;
    for (const Block& block : model.blocks()) {
      std::vector<std::size_t> number(block.values.size(), 0);
      std::size_t written = 0;
      for (const Node& node : block.nodes) {
        if (std::holds_alternative<op::Dropout>(node.op)) {
          number[node.writes[0]] = number[node.reads[0]];
          continue;
        }
        NumberedNode& one = nodes.emplace_back(
            NumberedNode{node.op, {}, node.writes.empty() ? Dims() : block.values[node.writes[0]].dims, {}});
        for (const std::size_t value : node.reads) {
          one.reads.push_back(number[value]);
        }
        for (const std::size_t value : node.writes) {
          number[value] = ++written;
        }
        for (const std::size_t parameter : node.parameters) {
          one.parameters.push_back(block.parameters[parameter]);
        }
        for (Dim& dim : one.dims) {
          dim.extent = of_positions.find(dim.name) == std::string_view::npos ? dim.extent : 0;
        }
      }
    }
    return nodes;
  };
  return nodes_of(a) == nodes_of(b);
}

}  // namespace baton::model
