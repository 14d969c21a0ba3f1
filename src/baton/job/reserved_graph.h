#pragma once

#include <cstdint>
#include <vector>

#include "baton/cost/software.h"
#include "baton/strategy/strategy.h"

/// Layers as PyTorch's autograd sees them, for `reserved_memory`.
namespace baton::job {

/// The parts into which the layout divides tensors: one device holds one of them.
struct Shares {
  std::int64_t rows = 1;  // samples of a micro-batch
  std::int64_t tp = 1;
  bool sp = false;
};

/// The ops of one layer, or of what stands before or after all layers, on one device. Values and parameters are known by number.
struct LayerGraph {
  struct Value {
    std::int64_t bytes = 0;
    bool kept = false;    // true if it is kept from the forward to the backward
    bool remade = false;  // true if the backward recomputes it before it begins
    bool token = false;   // integers: it has no gradient
  };
  struct Node {
    std::vector<std::size_t> reads;
    std::vector<std::size_t> writes;
    std::vector<std::size_t> backward_reads;  // values that its gradient is computed from
    std::vector<std::size_t> passed_on;       // those of `reads` whose gradient is that of the output itself
    std::vector<std::size_t> parameters;
    bool product = false;
    bool attention = false;
    bool scatters = false;  // terms of a sum to parts of it
  };
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<std::int64_t> parameters;  // elements that a tensor rank has of each
  std::vector<bool> matrices;            // whether the parameter has two dimensions
  std::size_t input = 0;
  std::size_t output = 0;

  std::int64_t elements() const;
};

/// The values that are kept for the backward, as PyTorch decides it: all that gradients are computed from; of a layer that
/// is recomputed its input alone; with selective checkpointing op by op the results of attention, of every second product
/// of the layer and of collectives that scatter.
enum class KeptActivations : std::uint8_t { all, selected, input };

LayerGraph layer_graph(const model::Model& model, std::size_t first_block, std::size_t end_block, const Shares& shares,
                       KeptActivations keeping, bool unread);

/// The blocks of one layer lie together: their names begin alike. The first block of each group, and after them the end.
std::vector<std::size_t> layers_of(const model::Model& model);

}  // namespace baton::job
