#pragma once

#include <span>
#include <vector>

#include "baton/cuda/gpu_place.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch.h"

namespace baton::cuda {

/// The most elements of a run.
inline constexpr std::int64_t sum_elements = 4096;

/// `sum_runs` by tables that are copied to the place and live as long as the launch; `tables` has the counts but that of the
/// runs, the members and the rate.
Launch launch_sums(DType type, std::span<const SumRun> runs, std::span<void* const> sources, std::span<void* const> targets,
                   SumTables tables, std::int64_t min_duration, const GpuPlace& place);

/// A sum that lies on the device, and where it goes.
struct Applied {
  std::byte* sum;
  std::byte* target;
  std::int64_t elements;
};

/// target −= rate · sum, by the code that sums and applies in one go: the bits are the same.
Launch apply_sums(DType type, std::span<const Applied> sums, double rate, const GpuPlace& place);

}  // namespace baton::cuda
