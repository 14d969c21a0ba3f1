#include "baton/model/model.h"

#include "baton/base/error.h"

namespace baton::model {

Model::Model(std::string name, std::vector<Block> blocks) : name_(std::move(name)), blocks_(std::move(blocks)) {
  check(!blocks_.empty(), "model {} has no blocks", name_);
  std::size_t parameters = 0;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    check(!block.nodes.empty(), "block {} of model {} is empty", block.name, name_);
    check(b == 0 || blocks_[b - 1].output() == block.input, "block {} takes {}, but the one before gives {}", block.name,
          to_text(block.input), b == 0 ? "" : to_text(blocks_[b - 1].output()));
    first_parameter_.push_back(parameters);
    parameters += block.parameters.size();
  }
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const Block& block : blocks_) {
    for (const Parameter& parameter : block.parameters) {
      count += parameter.shape.elements();
    }
  }
  return count;
}

Flops Model::forward_flops(std::size_t block) const {
  Flops total;
  Shape input = blocks_[block].input;
  for (const Node& node : blocks_[block].nodes) {
    std::vector<op::Operand> reads{{input.batched(1)}};
    for (const std::size_t parameter : node.parameters) {
      reads.push_back({blocks_[block].parameters[parameter].shape});
    }
    total += op::work(node.op, reads, std::vector<op::Operand>{{node.output.batched(1)}}).flops;
    input = node.output;
  }
  return total;
}

}  // namespace baton::model
