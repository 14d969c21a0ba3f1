#pragma once

#include <algorithm>
#include <cstdint>

#include "baton/exec/run.h"

namespace baton::cuda {

/// The steps of a run that have events around every task, and are not timed: the last ones of the warm-up, or the first if
/// there is none.
struct TracedSteps {
  explicit TracedSteps(const exec::RunOptions& options) {
    constexpr std::int64_t most = 3;
    const std::int64_t warmup = std::min(options.warmup, options.steps);
    count = warmup > 0 ? std::min(warmup, most) : std::min<std::int64_t>(1, options.steps);
    first = std::max<std::int64_t>(warmup - count, 0);
  }
  bool contains(std::int64_t step) const { return step >= first && step < first + count; }
  /// The number of traced steps before a step.
  std::size_t before(std::int64_t step) const { return static_cast<std::size_t>(std::clamp<std::int64_t>(step - first, 0, count)); }

  std::int64_t first = 0;
  std::int64_t count = 0;
};

}  // namespace baton::cuda
