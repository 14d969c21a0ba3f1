#pragma once

#include <span>
#include <vector>

#include "baton/exec/backend/cuda/launch.h"
#include "baton/exec/backend/cuda/place.h"

namespace baton::exec::cuda {

/// A sum that lies on the device, and where it goes.
struct Applied {
  std::byte* sum;
  std::byte* target;
  std::int64_t elements;
};

/// target −= rate · sum, by the code that sums and applies in one go: the bits are the same.
Launch apply_sums(DType type, std::span<const Applied> sums, double rate, const Place& place);

}  // namespace baton::exec::cuda
