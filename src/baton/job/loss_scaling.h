#pragma once

#include <cstdint>

namespace baton::job {

/// The factor by which the loss is multiplied before the backward.
struct LossScaling {
  enum class Mode : std::uint8_t { by_precision, none, dynamic, fixed };  // by precision: dynamic for fp16, none otherwise
  Mode mode = Mode::by_precision;
  double scale = 0;  // if it is fixed
  bool operator==(const LossScaling&) const = default;
};

}  // namespace baton::job
