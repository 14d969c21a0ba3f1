#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace baton::op {

/// Stochastic gradient descent as PyTorch's: v = momentum · v + g; w −= rate · v.
struct Sgd {
  double rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  bool operator==(const Sgd&) const = default;
};

/// Adam; with `decoupled`, AdamW: the decay acts on the weight and not on the gradient.
struct Adam {
  double rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;
  bool operator==(const Adam&) const = default;
};

using Optimizer = std::variant<Sgd, Adam>;

/// `sgd`, `momentum`, `adam`, `adamw`: the words a user chooses by.
const std::vector<std::string>& optimizer_names();
/// An optimizer of that name with its usual settings; throws a usage error that lists the names.
Optimizer optimizer_by_name(std::string_view name);

/// How many tensors of the parameter's size it keeps between steps (velocity; first and second moment).
std::size_t state_slots(const Optimizer& optimizer);
/// Arithmetic an element of a parameter.
std::int64_t flops_per_element(const Optimizer& optimizer);

/// Calls `visit(name, field)` for each setting, in the order in which they are written.
template <typename Visit>
void attributes(Optimizer& optimizer, Visit visit) {
  if (auto* sgd = std::get_if<Sgd>(&optimizer)) {
    visit("rate", sgd->rate);
    visit("momentum", sgd->momentum);
    visit("weight_decay", sgd->weight_decay);
  } else {
    auto& adam = std::get<Adam>(optimizer);
    visit("rate", adam.rate);
    visit("beta1", adam.beta1);
    visit("beta2", adam.beta2);
    visit("epsilon", adam.epsilon);
    visit("weight_decay", adam.weight_decay);
    visit("decoupled", adam.decoupled);
  }
}

/// `sgd` or `adam`: the name in plans.
inline std::string_view name(const Optimizer& optimizer) { return std::holds_alternative<Sgd>(optimizer) ? "sgd" : "adam"; }

}  // namespace baton::op
