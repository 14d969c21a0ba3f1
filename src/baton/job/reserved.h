#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baton/cost/software.h"
#include "baton/strategy/strategy.h"

namespace baton::job {

/// What the allocator of a program has taken from one device when its steps repeat, by cause.
struct Reserved {
  std::int64_t stage = 0;  // device of a pipeline
  std::vector<std::pair<std::string, Bytes>> causes;
  Bytes total;  // their sum
};

/// Replays what a program of PyTorch's with FSDP2 takes and gives back in three steps, with the rules of PyTorch's caching
/// allocator: one per device of a pipeline. Causes are counted at the moment when most is in use; the last of them is what the
/// allocator has taken but nothing uses then. Empty where the profile does not say what the program reserves ([reserved]), or where
/// the split is none that it has (parameters that are not divided over replicas). `memory` is what a device has: when that is full,
/// the allocator gives back what nothing uses.
std::vector<Reserved> reserved_memory(const strategy::Request& request, const cost::Software& software, Bytes memory);

/// The one that the program reports.
const Reserved& reported(const std::vector<Reserved>& devices, const cost::Software& software);

}  // namespace baton::job
