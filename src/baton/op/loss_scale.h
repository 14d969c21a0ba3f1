#pragma once

#include <cmath>
#include <cstdint>

namespace baton::op {

/// The state of loss scaling between steps: four floats, in the order of the buffer. Counts are exact up to
/// 2²⁴.
struct ScaleState {
  float scale = 1;
  float good_steps = 0;     // in a row, since the scale last changed
  float skipped_steps = 0;  // in all
  float steps = 0;          // in all, the skipped ones included

  static constexpr std::int64_t elements = 4;
  /// The number of the update about to be done, 1-based; skipped steps are not counted.
  std::int64_t update_number() const { return static_cast<std::int64_t>(steps - skipped_steps) + 1; }
  bool operator==(const ScaleState&) const = default;
};

/// The state after a step whose gradients were finite or not. The scale is halved by those that were not and
/// doubled, as long as it stays finite, after `growth_interval` in a row that were; at 0 it stays as it is.
inline ScaleState adjusted(ScaleState state, bool finite, std::int64_t growth_interval) {
  state.steps += 1;
  if (!finite) {
    state.skipped_steps += 1;
    state.good_steps = 0;
    state.scale *= growth_interval > 0 ? 0.5F : 1.0F;
    return state;
  }
  state.good_steps += 1;
  if (growth_interval > 0 && state.good_steps >= static_cast<float>(growth_interval)) {
    state.good_steps = 0;
    state.scale *= std::isfinite(state.scale * 2) ? 2.0F : 1.0F;
  }
  return state;
}

}  // namespace baton::op
