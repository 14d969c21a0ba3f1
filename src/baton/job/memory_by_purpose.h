#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/plan.h"

namespace baton::job {

/// The memory of one device by purpose, at the moment when most is alive, as if its tasks ran one after the other. A plan needs
/// more, because lanes run side by side.
struct MemoryByPurpose {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t states = 0;
  std::int64_t activations = 0;
  std::int64_t communication = 0;  // what only messages read or write
  std::int64_t other = 0;          // losses, and what tasks need while they run

  std::int64_t sum() const { return parameters + gradients + states + activations + communication + other; }
};

/// The memory of each device, by device. Walks the tasks in the order of the plan; a buffer is there from the first task that
/// touches it to the last.
std::vector<MemoryByPurpose> memory_at_peak(const plan::Plan& plan);

}  // namespace baton::job
