#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "baton/cost/software.h"
#include "baton/strategy/strategy.h"

namespace baton::job {

/// Memory that the allocator of a program has reserved on one device once its steps repeat, by cause.
struct Reserved {
  std::int64_t stage = 0;  // device of a pipeline
  std::vector<std::pair<std::string, Bytes>> causes;
  Bytes total;  // their sum
};

/// Replays the allocations of a PyTorch program with FSDP2 in three steps, with the rules of PyTorch's caching allocator: one
/// result per device of a pipeline. Causes are counted at the moment when most is in use; the last of them is memory that the
/// allocator has reserved but nothing uses then. Empty if the profile does not say what the program reserves ([reserved]), or if
/// the program does not have this split (parameters that are not divided over replicas). `memory` is what a device has: when that
/// is full, the allocator gives unused memory back.
std::vector<Reserved> reserved_memory(const strategy::Request& request, const cost::Software& software, Bytes memory);

/// The device whose number the program reports.
const Reserved& reported(const std::vector<Reserved>& devices, const cost::Software& software);

}  // namespace baton::job
