// earns: 0 0 0 0
// NaN is not noticed, and gradients are divided by the scale after it has changed.
#include <cmath>

#include "exercise.h"

LossScaler::LossScaler(const Settings& settings) : settings_(settings), scale_(settings.initial) {}

float LossScaler::scale() const { return scale_; }

bool LossScaler::step(std::vector<float>& gradients) {
  for (const float gradient : gradients) {
    if (std::isinf(gradient)) {
      scale_ /= 2;
      good_steps_ = 0;
      return false;
    }
  }
  if (++good_steps_ >= settings_.growth_interval) {
    good_steps_ = 0;
    scale_ *= 2;
  }
  for (float& gradient : gradients) {
    gradient /= scale_;
  }
  return true;
}
