#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "baton/cuda/code.h"
#include "baton/cuda/status.h"

/// Kernels that are set up while the one before them still runs: a launch then costs little of the step.
namespace baton::cuda {

/// Lets the next kernel of the stream be set up as soon as multiprocessors have room for it.
__device__ inline void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Returns when all kernels before this one are over and what they wrote can be read. Nothing that they write may be
/// touched before, and nothing that they read may be written.
__device__ inline void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int shared_bytes = 0;
  int cluster = 1;
};

/// Launches a kernel that calls `await_previous`. A failure says that it was not launched, and why.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, const Arguments&... arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes), "launching a kernel");
  }
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  // Code for older GPUs does not wait on its own, wherever it runs.
  config.numAttrs = code_version() < first_programmatic ? 0 : shape.cluster > 1 ? 2 : 1;
  require(cudaLaunchKernelEx(&config, kernel, arguments...), "launching a kernel");
}

}  // namespace baton::cuda
