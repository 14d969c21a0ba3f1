#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baton/plan/plan.h"

/// The tasks that may compute a step, derived from a plan's graph by the rules in `op`: each op itself, its form for a
/// divided sum, its backward, and the joint forms of two ops.
namespace baton::plan {

/// The tensor of the model's training step that a buffer holds or an operand of a task must be, without the indices.
struct LogicalTensor {
  enum class Tensor : std::uint8_t {
    none,
    value,
    unfinished,
    loss_terms,
    gradient,
    parameter,
    parameter_gradient,
    state,
    scaler,
    non_finite,
    squared_norm
  };
  Tensor kind = Tensor::none;
  std::uint32_t id = 0;    // the ordinal of the value or the parameter
  std::uint32_t slot = 0;  // the number of the optimizer state
  bool operator==(const LogicalTensor&) const = default;
};

/// One way in which a task may compute tensors. The op is without what passes may change in it (`op::plain`).
struct Derivation {
  op::Op op;
  std::vector<LogicalTensor> reads;
  std::vector<LogicalTensor> writes;
  /// Says, for each written tensor, which of its terms this is, if the tensor is a sum over the ops that read the value or the
  /// parameter.
  std::vector<std::uint32_t> use;
};

/// All derivations that a graph allows.
class Derivations {
 public:
  /// Values and parameters that the graph names must be there; `parameters` counts ordinals.
  Derivations(const Graph& graph, std::size_t parameters);
  Derivations(Graph&& graph, std::size_t parameters) = delete;  // the graph is referred to

  /// The ways in which a task may compute a tensor, as the first one that it writes.
  std::span<const Derivation> of(const LogicalTensor& tensor) const;
  /// The number of terms that add up to the gradient of a value or a parameter: one per op that reads it.
  std::uint32_t uses(const LogicalTensor& tensor) const;
  /// The one name of a tensor that has several: a gradient that an op only passes on is the gradient of two values.
  LogicalTensor canonical(LogicalTensor tensor) const;
  /// The terms of a value's gradient that another gradient is: the gradient of a sum is a term of each summand's.
  std::vector<std::uint32_t> passed_terms(const LogicalTensor& sum, const LogicalTensor& term) const;

 private:
  struct Passed {
    std::uint32_t use;
    std::uint32_t from;  // the value whose gradient is passed on
  };
  void add_tracking(const Graph::Node& node);
  void add_merged(const Graph::Node& node, const Derivation& whole);
  void add_backward(const Graph::Node& node, const op::Op& form);
  void join_forward();
  void join_backward();
  void add(Derivation derivation);
  LogicalTensor tensor_of(const Graph::Node& node, std::size_t operand) const;

  const Graph& graph_;
  std::vector<std::vector<Derivation>> values_;
  std::vector<std::vector<Derivation>> unfinished_;
  std::vector<std::vector<Derivation>> loss_terms_;
  std::vector<std::vector<Derivation>> gradients_;
  std::vector<std::vector<Derivation>> parameters_;  // the derivations of their gradients
  std::vector<std::vector<Derivation>> statistics_;  // by ordinal
  std::vector<std::uint32_t> uses_;                  // by value
  std::vector<std::uint32_t> parameter_uses_;
  std::vector<std::vector<Passed>> passed_;                // by value
  std::vector<std::vector<std::uint32_t>> use_;            // by node and read
  std::vector<std::vector<std::uint32_t>> parameter_use_;  // by node and parameter
};

}  // namespace baton::plan
