#include "baton/cuda/arena.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/status.h"

namespace baton::cuda {

Arena::Arena(const GpuPlace& place, Bytes size) {
  place.enter();
  std::size_t free = 0;
  std::size_t total = 0;
  require(cudaMemGetInfo(&free, &total), "asking for its memory");
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(size.count, 256));
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    throw failure("GPU {} has {} of memory free, but a device of the plan needs {}", place.ordinal(),
                  to_text(Bytes(static_cast<std::int64_t>(free))), to_text(size));
  }
  base_.reset(static_cast<std::byte*>(memory));
  noise(DType::f32, base_.get(), static_cast<std::int64_t>(bytes / 4), place.stream(plan::Lane::compute));
  require(cudaStreamSynchronize(place.stream(plan::Lane::compute)), "filling its memory");
}

Pinned::Pinned(std::int64_t bytes) {
  void* memory = nullptr;
  if (bytes > 0) {
    require(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)), "taking host memory");
  }
  data_.reset(static_cast<std::byte*>(memory));
}

}  // namespace baton::cuda
