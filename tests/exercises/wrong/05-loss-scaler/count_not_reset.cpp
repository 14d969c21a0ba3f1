// earns: 3 2 2 0
// The good steps before a skipped one are counted on.
#include <cmath>

#include "exercise.h"

LossScaler::LossScaler(const Settings& settings) : settings_(settings), scale_(settings.initial) {}

float LossScaler::scale() const { return scale_; }

bool LossScaler::step(std::vector<float>& gradients) {
  for (const float gradient : gradients) {
    if (!std::isfinite(gradient)) {
      scale_ /= 2;
      return false;
    }
  }
  for (float& gradient : gradients) {
    gradient /= scale_;
  }
  if (++good_steps_ >= settings_.growth_interval) {
    good_steps_ = 0;
    scale_ = std::isfinite(scale_ * 2) ? scale_ * 2 : scale_;
  }
  return true;
}
