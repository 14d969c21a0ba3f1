#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "baton/cuda/status.h"

namespace baton::cuda {

/// Copies to the GPU and returns when the bytes are there. A plain cudaMemcpy of few bytes returns when they are on their way,
/// and streams of other contexts, or that do not block, would not wait for them.
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copying");
  require(cudaStreamSynchronize(cudaStreamLegacy), "copying");
}

}  // namespace baton::cuda
