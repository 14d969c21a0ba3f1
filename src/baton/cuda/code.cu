#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "baton/cuda/code.h"
#include "baton/cuda/status.h"

namespace baton::cuda {
namespace {

/// Stands for all kernels: they are built alike.
__global__ void any_kernel() {}

int ask() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, any_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();
    return 0;
  }
  require(status, "loading the kernels");
  return attributes.ptxVersion;
}

}  // namespace

int code_version() {
  // By GPU, one more than the answer. Launches ask, so it is kept.
  static std::array<std::atomic<int>, 64> known{};
  int ordinal = 0;
  require(cudaGetDevice(&ordinal), "selecting it");
  if (static_cast<std::size_t>(ordinal) >= known.size()) {
    return ask();
  }
  std::atomic<int>& kept = known[static_cast<std::size_t>(ordinal)];
  int answer = kept.load(std::memory_order_relaxed) - 1;
  if (answer < 0) {
    answer = ask();
    kept.store(answer + 1, std::memory_order_relaxed);
  }
  return answer;
}

std::string built_for() {
  std::string text;
  for (const int version : {__CUDA_ARCH_LIST__}) {  // such as 800,900
    text += (text.empty() ? "" : ", ") + std::to_string(version / 100) + "." + std::to_string(version / 10 % 10);
  }
  return text;
}

}  // namespace baton::cuda
