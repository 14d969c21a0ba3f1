#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/op/rate.h"

namespace baton::op {

/// Stochastic gradient descent as PyTorch's: v = momentum · v + g; w −= rate · v.
struct Sgd {
  double rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  RateSchedule schedule = {};
  bool decay_matrices = false;  // vectors, as biases and the gains of norms are, do not decay
  double clip = 0;              // the largest norm of all gradients together: longer ones are shortened to it first; 0: none is
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
  RateSchedule schedule = {};
  bool decay_matrices = false;
  double clip = 0;
  bool operator==(const Adam&) const = default;
};

using Optimizer = std::variant<Sgd, Adam>;

/// `sgd`, `momentum`, `adam`, `adamw`: the words a user chooses by.
const std::vector<std::string>& optimizer_names();
/// An optimizer of that name with its usual settings; throws a usage error that lists the names.
Optimizer optimizer_by_name(std::string_view name);

/// The number of tensors of the parameter's size that it keeps between steps (velocity; first and second moment).
std::size_t state_slots(const Optimizer& optimizer);
/// Arithmetic per element of a parameter.
std::int64_t flops_per_element(const Optimizer& optimizer);

/// The optimizer of one step: at that step's rate, and without decay for a parameter that is exempt from it. Steps are
/// numbered from 1. `axes` is how many axes the whole parameter has.
Optimizer at_step(Optimizer optimizer, std::int64_t step, std::size_t axes);

/// The schedule of an optimizer, and whether it has one.
const RateSchedule& schedule_of(const Optimizer& optimizer);
inline bool is_scheduled(const Optimizer& optimizer) { return schedule_of(optimizer) != RateSchedule{}; }
/// The largest norm that it leaves the gradients of all parameters together; 0: any.
double clip_of(const Optimizer& optimizer);
/// `constant`, `linear`, `cosine`, `step`.
const std::vector<std::string>& schedule_names();
/// `cosine:until=1000,warmup=100,floor=0.1`, `linear:until=1000`, `step:every=300,gamma=0.1`, `constant:warmup=100`; a usage error
/// names what is accepted.
RateSchedule parse_schedule(std::string_view text);

/// Calls `visit(name, field)` for each setting, in the order in which they are written.
template <typename Visit>
void attributes(RateSchedule& schedule, Visit visit) {
  visit("warmup", schedule.warmup);
  visit("linear_until", schedule.linear_until);
  visit("cosine_until", schedule.cosine_until);
  visit("every", schedule.every);
  visit("floor", schedule.floor);
  visit("gamma", schedule.gamma);
}
template <typename Visit>
void attributes(Optimizer& optimizer, Visit visit) {
  if (auto* sgd = std::get_if<Sgd>(&optimizer)) {
    visit("rate", sgd->rate);
    visit("momentum", sgd->momentum);
    visit("weight_decay", sgd->weight_decay);
    attributes(sgd->schedule, visit);
    visit("decay_matrices", sgd->decay_matrices);
    visit("clip", sgd->clip);
  } else {
    auto& adam = std::get<Adam>(optimizer);
    visit("rate", adam.rate);
    visit("beta1", adam.beta1);
    visit("beta2", adam.beta2);
    visit("epsilon", adam.epsilon);
    visit("weight_decay", adam.weight_decay);
    visit("decoupled", adam.decoupled);
    attributes(adam.schedule, visit);
    visit("decay_matrices", adam.decay_matrices);
    visit("clip", adam.clip);
  }
}

/// `sgd` or `adam`: the name in plans.
inline std::string_view name(const Optimizer& optimizer) { return std::holds_alternative<Sgd>(optimizer) ? "sgd" : "adam"; }

}  // namespace baton::op
