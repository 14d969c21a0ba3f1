#pragma once

#include "baton/exec/backend/reference/loops.h"
#include "baton/op/clip.h"

namespace baton::exec::reference {

template <typename Real>
void Loops<Real>::update(const plan::Update& update) const {
  std::int64_t number = step;
  double scale = 1;
  if (update.scaled) {
    if (*in<float>(task.reads.size() - 2) != 0) {
      return;
    }
    const auto* state = in<op::ScaleState>(task.reads.size() - 1);
    scale = static_cast<double>(state->scale);
    number = state->update_number();
  }
  const double clip = op::clip_of(update.optimizer);
  const double factor = clip > 0 ? op::clip_factor(clip, *in<double>(task.reads.size() - (update.scaled ? 3 : 1)), scale) : 1;
  const std::size_t slots = op::state_slots(update.optimizer);
  const std::size_t count = plan::updated_count(task);
  for (std::size_t p = 0; p < count; ++p) {
    Real* state_0 = slots > 0 ? out(count + p * slots) : nullptr;
    Real* state_1 = slots > 1 ? out(count + p * slots + 1) : nullptr;
    const op::Optimizer optimizer = op::at_step(update.optimizer, number, plan::axes_of_whole(plan[task.writes[p]]));
    for (std::int64_t i = 0; i < out_shape(p).elements(); ++i) {
      const double gradient = any_value(p, i) / scale * factor;
      if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
        descend(*sgd, gradient, out(p)[i], state_0 == nullptr ? nullptr : state_0 + i);
      } else {
        adapt(std::get<op::Adam>(optimizer), gradient, out(p)[i], state_0[i], state_1[i], number);
      }
    }
    if (update.copies) {
      const std::size_t copy = count * (1 + slots) + p;
      rounding += narrow(plan[task.writes[copy]].dtype, out<float>(p), at.writes[copy], out_shape(p).elements());
    }
  }
}

template <typename Real>
void Loops<Real>::descend(const op::Sgd& sgd, double gradient, Real& weight, Real* velocity) const {
  gradient += sgd.weight_decay * widened(weight);
  if (velocity != nullptr) {
    gradient += sgd.momentum * widened(*velocity);
    *velocity = rounded(gradient);
  }
  weight = rounded(widened(weight) - sgd.rate * gradient);
}

template <typename Real>
void Loops<Real>::adapt(const op::Adam& adam, double gradient, Real& weight, Real& first, Real& second, std::int64_t number) const {
  double value = widened(weight);
  if (adam.decoupled) {
    value -= adam.rate * adam.weight_decay * value;
  } else {
    gradient += adam.weight_decay * value;
  }
  const double m = adam.beta1 * widened(first) + (1 - adam.beta1) * gradient;
  const double v = adam.beta2 * widened(second) + (1 - adam.beta2) * gradient * gradient;
  first = rounded(m);
  second = rounded(v);
  const double unbiased_m = m / (1 - std::pow(adam.beta1, static_cast<double>(number)));
  const double unbiased_v = v / (1 - std::pow(adam.beta2, static_cast<double>(number)));
  weight = rounded(value - adam.rate * unbiased_m / (std::sqrt(unbiased_v) + adam.epsilon));
}

}  // namespace baton::exec::reference
