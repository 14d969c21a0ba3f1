#include "baton/plan/meaning.h"

#include <algorithm>
#include <type_traits>

#include "baton/op/gradient.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::plan {
namespace {

using Tensor = Thing::Tensor;

Thing value(ValueId id) { return {Tensor::value, id.value}; }
Thing gradient(ValueId id) { return {Tensor::gradient, id.value}; }

/// Which inputs of a forward op get a gradient: by a call of its backward, or passed on.
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

}  // namespace

op::Op plain(op::Op op) {
  op::attributes(op, [](std::string_view name, auto& field) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(field)>, bool>) {
      field = field && name != "tf32" && name != "accumulate" && name != "scaled";
    } else if (name == "sgd_rate" || name == "first" || name == "of" || name == "parts") {
      field = 0;
    }
  });
  return op;
}

Meaning::Meaning(const Graph& graph, std::size_t parameters)
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
    Making whole{plain(node.op), {}, {}, {}};
    for (std::size_t i = 0; i < node.reads.size() + node.parameters.size(); ++i) {
      whole.reads.push_back(thing_of(node, i));
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
      const Thing written{divided->finish ? Tensor::unfinished : Tensor::value, node.writes[0].value};
      Making term{plain(divided->term), {}, {written}, {0}};
      for (const std::size_t operand : divided->term_reads) {
        term.reads.push_back(thing_of(node, operand));
      }
      add(std::move(term));
      if (divided->finish) {
        Making finish{plain(*divided->finish), {written}, {value(node.writes[0])}, {0}};
        for (const std::size_t operand : divided->finish_reads) {
          finish.reads.push_back(thing_of(node, operand));
        }
        add(std::move(finish));
      }
      add_backward(node, divided->term);
    }
  }
  join_forward();
  join_backward();
}

Thing Meaning::thing_of(const Graph::Node& node, std::size_t operand) const {
  return operand < node.reads.size() ? value(node.reads[operand])
                                     : Thing{Tensor::parameter, node.parameters[operand - node.reads.size()]};
}

void Meaning::add(Making making) {
  const Thing& first = making.writes[0];
  std::vector<Making>& list = first.kind == Tensor::value        ? values_[first.id]
                              : first.kind == Tensor::unfinished ? unfinished_[first.id]
                              : first.kind == Tensor::loss_terms ? loss_terms_[first.id]
                              : first.kind == Tensor::gradient   ? gradients_[first.id]
                              : first.kind == Tensor::parameter  ? statistics_[first.id]
                                                                 : parameters_[first.id];
  list.push_back(std::move(making));
}

/// Statistics of a value are kept where they are.
void Meaning::add_tracking(const Graph::Node& node) {
  Making making{plain(node.op), {}, {}, {}};
  for (const ValueId id : node.reads) {
    making.reads.push_back(value(id));
  }
  for (const std::uint32_t parameter : node.parameters) {
    making.writes.push_back({Tensor::parameter, parameter});
    making.use.push_back(0);
  }
  if (!making.writes.empty()) {
    add(std::move(making));
  }
}

/// The forms of a loss whose scores are divided: the terms that each part contributes, and the loss that reads those of all.
void Meaning::add_merged(const Graph::Node& node, const Making& whole) {
  if (const std::optional<op::MergedLoss> merged = op::merged(node.op, 1)) {
    const Thing terms{Tensor::loss_terms, node.writes[0].value};
    add({plain(merged->terms), whole.reads, {terms}, {0}});
    Making part = whole;
    part.op = plain(merged->loss);
    part.reads.push_back(terms);
    add(std::move(part));
  }
}

void Meaning::add_backward(const Graph::Node& node, const op::Op& form) {
  const auto n = static_cast<std::size_t>(&node - graph_.nodes.data());
  using Ref = op::Ref::Tensor;
  const auto thing = [&](const op::Ref& ref) -> Thing {
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
    Making making{plain(call.op), {}, {}, {}};
    for (const op::Ref& ref : call.reads) {
      making.reads.push_back(thing(ref));
    }
    for (const op::Ref& ref : call.writes) {
      making.writes.push_back(thing(ref));
      making.use.push_back(ref.kind == Ref::parameter_gradient ? parameter_use_[n][ref.index] : use_[n][ref.index]);
    }
    const std::span<const Making> known = makings(making.writes[0]);
    const bool again = std::any_of(known.begin(), known.end(), [&](const Making& other) {
      return other.op == making.op && other.reads == making.reads && other.writes == making.writes && other.use == making.use;
    });
    if (!again) {
      add(std::move(making));
    }
  }
}

void Meaning::join_forward() {
  for (std::size_t v = 0; v < values_.size(); ++v) {
    const std::vector<Making> seconds = values_[v];
    for (const Making& second : seconds) {
      if (second.reads.empty() || second.reads[0].kind != Tensor::value) {
        continue;
      }
      for (const Making& first : values_[second.reads[0].id]) {
        const std::optional<op::Joined> both = op::joined(first.op, second.op);
        if (!both || first.writes.size() != 1) {
          continue;
        }
        Making joint{plain(both->op), first.reads, second.writes, second.use};
        for (const std::size_t operand : both->reads) {
          joint.reads.push_back(second.reads[operand]);
        }
        values_[v].push_back(std::move(joint));
      }
    }
  }
}

void Meaning::join_backward() {
  for (std::size_t v = 0; v < gradients_.size(); ++v) {
    const std::vector<Making> seconds = gradients_[v];
    for (const Making& second : seconds) {
      // What is between the two must be one term, or the second would take a part of the sum for the whole.
      if (second.reads.empty() || second.reads[0].kind != Tensor::gradient || uses(second.reads[0]) != 1) {
        continue;
      }
      for (const Making& first : gradients_[second.reads[0].id]) {
        const std::optional<op::Joined> both = op::joined(first.op, second.op);
        if (!both || first.writes.size() != 1) {
          continue;
        }
        Making joint{plain(both->op), first.reads, second.writes, second.use};
        for (const std::size_t operand : both->reads) {
          joint.reads.push_back(second.reads[operand]);
        }
        gradients_[v].push_back(std::move(joint));
      }
    }
  }
}

std::span<const Making> Meaning::makings(const Thing& thing) const {
  switch (thing.kind) {
    case Tensor::value:
      return values_[thing.id];
    case Tensor::unfinished:
      return unfinished_[thing.id];
    case Tensor::loss_terms:
      return loss_terms_[thing.id];
    case Tensor::gradient:
      return gradients_[thing.id];
    case Tensor::parameter_gradient:
      return parameters_[thing.id];
    case Tensor::parameter:
      return statistics_[thing.id];
    default:
      return {};
  }
}

std::uint32_t Meaning::uses(const Thing& thing) const {
  return thing.kind == Tensor::gradient             ? std::max(1U, uses_[thing.id])
         : thing.kind == Tensor::parameter_gradient ? std::max(1U, parameter_uses_[thing.id])
                                                    : 1;
}

Thing Meaning::canonical(Thing thing) const {
  while (thing.kind == Tensor::gradient && uses_[thing.id] == 1 && passed_[thing.id].size() == 1) {
    thing.id = passed_[thing.id][0].from;
  }
  return thing;
}

std::vector<std::uint32_t> Meaning::passed_terms(const Thing& sum, const Thing& term) const {
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
