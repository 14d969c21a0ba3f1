#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "baton/plan/plan.h"

/// What tasks may compute, derived from a plan's graph by the rules in `op`: each op itself, its form for a divided sum, its
/// backward, and the joint forms of two ops.
namespace baton::plan {

/// What a buffer holds, or what an operand of a task must be, without the indices.
struct Thing {
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
  std::uint32_t id = 0;    // of the value, or the parameter's ordinal
  std::uint32_t slot = 0;  // of an optimizer's state
  bool operator==(const Thing&) const = default;
};

/// One way in which a task may make things: the op with what passes may change in it (accumulation, tf32, loss scaling, a step
/// taken at once, the part of a dimension) left out.
struct Making {
  op::Op op;
  std::vector<Thing> reads;
  std::vector<Thing> writes;
  /// By thing that is written: which of its terms, if it is a sum over the readers of the value or the parameter.
  std::vector<std::uint32_t> use;
};

/// The op without what passes may change in it.
op::Op plain(op::Op op);

class Meaning {
 public:
  /// Values and parameters that the graph names must be there; `parameters` counts ordinals.
  Meaning(const Graph& graph, std::size_t parameters);

  /// The ways in which a thing can be made, as the first that a task writes.
  std::span<const Making> makings(const Thing& thing) const;
  /// The number of terms of the gradient of a value or a parameter: one per reader.
  std::uint32_t uses(const Thing& thing) const;
  /// The same thing under one name: the gradient of a value that is only passed on is that of another.
  Thing canonical(Thing thing) const;
  /// Which terms of a value's gradient another gradient is: the gradient of a sum is a term of each summand's.
  std::vector<std::uint32_t> passed_terms(const Thing& sum, const Thing& term) const;

 private:
  struct Passed {
    std::uint32_t use;
    std::uint32_t from;  // the value whose gradient is passed on
  };
  void add_tracking(const Graph::Node& node);
  void add_merged(const Graph::Node& node, const Making& whole);
  void add_backward(const Graph::Node& node, const op::Op& form);
  void join_forward();
  void join_backward();
  void add(Making making);
  Thing thing_of(const Graph::Node& node, std::size_t operand) const;

  const Graph& graph_;
  std::vector<std::vector<Making>> values_;
  std::vector<std::vector<Making>> unfinished_;
  std::vector<std::vector<Making>> loss_terms_;
  std::vector<std::vector<Making>> gradients_;
  std::vector<std::vector<Making>> parameters_;  // of their gradients
  std::vector<std::vector<Making>> statistics_;  // by ordinal
  std::vector<std::uint32_t> uses_;              // by value
  std::vector<std::uint32_t> parameter_uses_;
  std::vector<std::vector<Passed>> passed_;                // by value
  std::vector<std::vector<std::uint32_t>> use_;            // by node and read
  std::vector<std::vector<std::uint32_t>> parameter_use_;  // by node and parameter
};

}  // namespace baton::plan
