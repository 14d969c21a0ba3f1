#include "exercise.h"

LossScaler::LossScaler(const Settings& settings) : settings_(settings), scale_(settings.initial) {}

float LossScaler::scale() const { return scale_; }

bool LossScaler::step(std::vector<float>& gradients) {
  // To do: every step is taken as good, gradients keep their scale, and the scale never changes.
  return true;
}
