#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "baton/base/units.h"
#include "baton/cuda/gpu_place.h"

namespace baton::cuda {

struct FreeDeviceMemory {
  void operator()(void* memory) const { cudaFree(memory); }
};

/// Memory of one device, filled with noise. A failure says how much there is if it does not suffice.
class Arena {
 public:
  Arena(const GpuPlace& place, Bytes size);

  std::byte* at(std::int64_t offset) const { return base_.get() + offset; }

 private:
  std::unique_ptr<std::byte, FreeDeviceMemory> base_;
};

/// Host memory that GPUs read and write on their own.
class Pinned {
 public:
  explicit Pinned(std::int64_t bytes);

  std::byte* at(std::int64_t offset) const { return data_.get() + offset; }
  /// Does not free it: something may still be written into it.
  void abandon() { static_cast<void>(data_.release()); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace baton::cuda
