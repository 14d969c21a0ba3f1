#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/base/ids.h"
#include "baton/base/shape.h"
#include "baton/op/op.h"
#include "baton/op/optimizer.h"

namespace baton::plan {

using ValueId = Id<struct ValueTag>;

/// The computation of a plan, as one device would do it with the whole batch at once: the values of a model's forward, and
/// the ops between them. It says nothing of devices, micro-batches or ways of splitting. The backward is not in it: it
/// follows from each op's gradient. `verify` compares every task with it.
struct Graph {
  /// Inputs, targets, what the ops write, and the losses, one per row.
  struct Value {
    std::string name;
    Shape shape;        // the shape for the whole batch
    bool wide = false;  // it and its gradient are float32 if others have 16 bits
    bool operator==(const Value&) const = default;
  };
  /// One op, which reads values and after them parameters (by ordinal). A loss writes its losses, and makes the first gradient.
  struct Node {
    op::Op op;
    std::vector<ValueId> reads;
    std::vector<std::uint32_t> parameters;
    std::vector<ValueId> writes;
    bool operator==(const Node&) const = default;
  };

  std::vector<Value> values;
  std::vector<Node> nodes;
  /// The optimizer of every update. nullopt: the step computes gradients and updates nothing.
  std::optional<op::Optimizer> optimizer;

  bool empty() const { return nodes.empty(); }
  bool operator==(const Graph&) const = default;
};

}  // namespace baton::plan
