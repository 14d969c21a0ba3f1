#pragma once

#include <vector>

struct Settings {
  float initial = 65536;     // the scale before the first step
  int growth_interval = 10;  // after this many good steps in a row the scale is doubled
};

/// Keeps gradients of 16 bits from vanishing: the loss, and so every gradient, is multiplied by a scale before the backward.
class LossScaler {
 public:
  explicit LossScaler(const Settings& settings);

  /// The factor by which the loss of the next step is multiplied.
  float scale() const;

  /// After the backward of a step. `gradients` are multiplied by scale() and may hold infinities and NaN. If
  /// all are finite it divides them by the scale that they were multiplied by and returns true: the optimizer may step. Otherwise
  /// it returns false: the step is skipped, and the scale is halved for the next. The scale is doubled after `growth_interval` good
  /// steps in a row since it last changed, unless it would become infinite.
  bool step(std::vector<float>& gradients);

 private:
  Settings settings_;
  float scale_ = 0;
  int good_steps_ = 0;
};
