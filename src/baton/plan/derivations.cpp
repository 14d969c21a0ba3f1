#include "baton/plan/derivations.h"

#include <algorithm>

#include "baton/op/gradient.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::plan {
namespace {

using Tensor = LogicalTensor::Tensor;

LogicalTensor value(ValueId id) { return {Tensor::value, id.value}; }
LogicalTensor gradient(ValueId id) { return {Tensor::gradient, id.value}; }

/// The inputs of a forward op that get a gradient: by a call of its backward, or passed on.
std::vector<bool> inputs_with_gradient(const op::Op& op, std::size_t inputs) {
  std::vector<bool> has(inputs, false);
  for (const op::BackwardCall& call : op::gradient(op)) {
    for (const op::Ref& ref : call.writes) {
      if (ref.kind == op::Ref::Tensor::input_gradient && ref.index < inputs) {
        has[ref.index] = true;
      }
    }
  }
  for (const std::size_t input : op::passed_on(op)) {
    if (input < inputs) {
      has[input] = true;
    }
  }
  return has;
}

/// Joins `second` in one op with each of `firsts` that can be joined with it; these write the first tensor that it reads.
std::vector<Derivation> joined(const std::vector<Derivation>& firsts, const Derivation& second) {
  std::vector<Derivation> list;
  for (const Derivation& first : firsts) {
    const std::optional<op::Joined> both = op::joined(first.op, second.op);
    if (!both || first.writes.size() != 1) {
      continue;
    }
    Derivation joint{op::plain(both->op), first.reads, second.writes, second.use};
    for (const std::size_t operand : both->reads) {
      joint.reads.push_back(second.reads[operand]);
    }
    if (both->keeps_first) {
      joint.writes.push_back(first.writes[0]);
      joint.use.push_back(first.use[0]);
    }
    list.push_back(std::move(joint));
  }
  return list;
}

}  // namespace

Derivations::Derivations(const Graph& graph, std::size_t parameters)
    : graph_(graph),
      values_(graph.values.size()),
      unfinished_(graph.values.size()),
      loss_terms_(graph.values.size()),
      gradients_(graph.values.size()),
      parameters_(parameters),
      statistics_(parameters),
      uses_(graph.values.size(), 0),
      parameter_uses_(parameters, 0),
      passed_(graph.values.size()) {
  for (const Graph::Node& node : graph.nodes) {
    std::vector<std::uint32_t>& use = use_.emplace_back(node.reads.size(), 0);
    const std::vector<bool> has = inputs_with_gradient(node.op, node.reads.size());
    for (std::size_t i = 0; i < node.reads.size(); ++i) {
      if (has[i] || (op::is_loss(node.op) && i == 0)) {
        use[i] = uses_[node.reads[i].index()]++;
      }
    }
    std::vector<std::uint32_t>& own = parameter_use_.emplace_back();
    for (const std::uint32_t parameter : node.parameters) {
      own.push_back(parameter_uses_[parameter]++);
    }
    for (const std::size_t input : op::passed_on(node.op)) {
      passed_[node.reads[input].index()].push_back({use[input], node.writes[0].value});
    }
  }
  for (const Graph::Node& node : graph.nodes) {
    if (op::tracks(node.op)) {
      add_tracking(node);
      continue;
    }
    Derivation whole{op::plain(node.op), {}, {}, {}};
    for (std::size_t i = 0; i < node.reads.size() + node.parameters.size(); ++i) {
      whole.reads.push_back(tensor_of(node, i));
    }
    for (const ValueId id : node.writes) {
      whole.writes.push_back(value(id));
      whole.use.push_back(0);
    }
    if (op::is_loss(node.op)) {
      whole.writes.push_back(canonical(gradient(node.reads[0])));
      whole.use.push_back(use_[static_cast<std::size_t>(&node - graph.nodes.data())][0]);
      add_merged(node, whole);
      add(std::move(whole));
      continue;
    }
    add(std::move(whole));
    add_backward(node, node.op);
    if (const std::optional<op::DividedSum> divided = op::divided_sum(node.op)) {
      const LogicalTensor written{divided->finish ? Tensor::unfinished : Tensor::value, node.writes[0].value};
      Derivation term{op::plain(divided->term), {}, {written}, {0}};
      for (const std::size_t operand : divided->term_reads) {
        term.reads.push_back(tensor_of(node, operand));
      }
      add(std::move(term));
      if (divided->finish) {
        Derivation finish{op::plain(*divided->finish), {written}, {value(node.writes[0])}, {0}};
        for (const std::size_t operand : divided->finish_reads) {
          finish.reads.push_back(tensor_of(node, operand));
        }
        add(std::move(finish));
      }
      add_backward(node, divided->term);
    }
  }
  join_forward();
  join_backward();
}

LogicalTensor Derivations::tensor_of(const Graph::Node& node, std::size_t operand) const {
  return operand < node.reads.size() ? value(node.reads[operand])
                                     : LogicalTensor{Tensor::parameter, node.parameters[operand - node.reads.size()]};
}

void Derivations::add(Derivation derivation) {
  const LogicalTensor& first = derivation.writes[0];
  std::vector<Derivation>& list = first.kind == Tensor::value        ? values_[first.id]
                                  : first.kind == Tensor::unfinished ? unfinished_[first.id]
                                  : first.kind == Tensor::loss_terms ? loss_terms_[first.id]
                                  : first.kind == Tensor::gradient   ? gradients_[first.id]
                                  : first.kind == Tensor::parameter  ? statistics_[first.id]
                                                                     : parameters_[first.id];
  list.push_back(std::move(derivation));
}

/// Statistics of a value are kept where they are.
void Derivations::add_tracking(const Graph::Node& node) {
  Derivation derivation{op::plain(node.op), {}, {}, {}};
  for (const ValueId id : node.reads) {
    derivation.reads.push_back(value(id));
  }
  for (const std::uint32_t parameter : node.parameters) {
    derivation.writes.push_back({Tensor::parameter, parameter});
    derivation.use.push_back(0);
  }
  if (!derivation.writes.empty()) {
    add(std::move(derivation));
  }
}

/// The forms of a loss whose scores are divided: the terms that each part contributes, and the loss that reads those of all.
void Derivations::add_merged(const Graph::Node& node, const Derivation& whole) {
  if (const std::optional<op::MergedLoss> merged = op::merged(node.op, 1)) {
    const LogicalTensor terms{Tensor::loss_terms, node.writes[0].value};
    add({op::plain(merged->terms), whole.reads, {terms}, {0}});
    Derivation part = whole;
    part.op = op::plain(merged->loss);
    part.reads.push_back(terms);
    add(std::move(part));
  }
}

void Derivations::add_backward(const Graph::Node& node, const op::Op& form) {
  const auto n = static_cast<std::size_t>(&node - graph_.nodes.data());
  using Ref = op::Ref::Tensor;
  const auto tensor = [&](const op::Ref& ref) -> LogicalTensor {
    switch (ref.kind) {
      case Ref::input:
        return value(node.reads[ref.index]);
      case Ref::output:
        return value(node.writes[ref.index]);
      case Ref::parameter:
        return {Tensor::parameter, node.parameters[ref.index]};
      case Ref::output_gradient:
        return canonical(gradient(node.writes[ref.index]));
      case Ref::input_gradient:
        return canonical(gradient(node.reads[ref.index]));
      case Ref::parameter_gradient:
        return {Tensor::parameter_gradient, node.parameters[ref.index]};
    }
    return {};
  };
  for (const op::BackwardCall& call : op::gradient(form)) {
    Derivation derivation{op::plain(call.op), {}, {}, {}};
    for (const op::Ref& ref : call.reads) {
      derivation.reads.push_back(tensor(ref));
    }
    for (const op::Ref& ref : call.writes) {
      derivation.writes.push_back(tensor(ref));
      derivation.use.push_back(ref.kind == Ref::parameter_gradient ? parameter_use_[n][ref.index] : use_[n][ref.index]);
    }
    const std::span<const Derivation> known = of(derivation.writes[0]);
    const bool again = std::any_of(known.begin(), known.end(), [&](const Derivation& other) {
      return other.op == derivation.op && other.reads == derivation.reads && other.writes == derivation.writes &&
             other.use == derivation.use;
    });
    if (!again) {
      add(std::move(derivation));
    }
  }
}

void Derivations::join_forward() {
  for (std::size_t v = 0; v < values_.size(); ++v) {
    const std::vector<Derivation> seconds = values_[v];
    for (const Derivation& second : seconds) {
      if (second.reads.empty() || second.reads[0].kind != Tensor::value) {
        continue;
      }
      const std::vector<Derivation> joints = joined(values_[second.reads[0].id], second);
      values_[v].insert(values_[v].end(), joints.begin(), joints.end());
    }
  }
}

void Derivations::join_backward() {
  for (std::size_t v = 0; v < gradients_.size(); ++v) {
    const std::vector<Derivation> seconds = gradients_[v];
    for (const Derivation& second : seconds) {
      // The gradient between the two must be one term, or the second would take a part of the sum for the whole.
      if (second.reads.empty() || second.reads[0].kind != Tensor::gradient || uses(second.reads[0]) != 1) {
        continue;
      }
      const std::vector<Derivation> joints = joined(gradients_[second.reads[0].id], second);
      gradients_[v].insert(gradients_[v].end(), joints.begin(), joints.end());
    }
  }
}

std::span<const Derivation> Derivations::of(const LogicalTensor& tensor) const {
  switch (tensor.kind) {
    case Tensor::value:
      return values_[tensor.id];
    case Tensor::unfinished:
      return unfinished_[tensor.id];
    case Tensor::loss_terms:
      return loss_terms_[tensor.id];
    case Tensor::gradient:
      return gradients_[tensor.id];
    case Tensor::parameter_gradient:
      return parameters_[tensor.id];
    case Tensor::parameter:
      return statistics_[tensor.id];
    default:
      return {};
  }
}

std::uint32_t Derivations::uses(const LogicalTensor& tensor) const {
  return tensor.kind == Tensor::gradient             ? std::max(1U, uses_[tensor.id])
         : tensor.kind == Tensor::parameter_gradient ? std::max(1U, parameter_uses_[tensor.id])
                                                     : 1;
}

LogicalTensor Derivations::canonical(LogicalTensor tensor) const {
  while (tensor.kind == Tensor::gradient && uses_[tensor.id] == 1 && passed_[tensor.id].size() == 1) {
    tensor.id = passed_[tensor.id][0].from;
  }
  return tensor;
}

std::vector<std::uint32_t> Derivations::passed_terms(const LogicalTensor& sum, const LogicalTensor& term) const {
  std::vector<std::uint32_t> uses;
  if (sum.kind == Tensor::gradient && term.kind == Tensor::gradient) {
    for (const Passed& passed : passed_[sum.id]) {
      if (canonical({Tensor::gradient, passed.from}) == term) {
        uses.push_back(passed.use);
      }
    }
  }
  return uses;
}

}  // namespace baton::plan
