#include "baton/cuda/status.h"

#include <algorithm>
#include <array>

#include "baton/base/error.h"

namespace baton::cuda {
namespace {

// The driver's interface numbers its errors as the runtime's does, so one table serves both.
static_assert(static_cast<int>(CUDA_ERROR_DEVICE_UNAVAILABLE) == static_cast<int>(cudaErrorDevicesUnavailable) &&
              static_cast<int>(CUDA_ERROR_ECC_UNCORRECTABLE) == static_cast<int>(cudaErrorECCUncorrectable) &&
              static_cast<int>(CUDA_ERROR_NVLINK_UNCORRECTABLE) == static_cast<int>(cudaErrorNvlinkUncorrectable) &&
              static_cast<int>(CUDA_ERROR_HARDWARE_STACK_ERROR) == static_cast<int>(cudaErrorHardwareStackError));

/// After these a GPU computes no more in this process.
constexpr std::array<int, 6> lost{cudaErrorDevicesUnavailable,  cudaErrorNoDevice,           cudaErrorECCUncorrectable,
                                  cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError, cudaErrorUnknown};

[[noreturn]] void fail(int status, std::string_view what, std::string_view text) {
  if (std::find(lost.begin(), lost.end(), status) != lost.end()) {
    throw failure("the GPU was lost at {} ({}): see what its driver says in `dmesg`, and start again from the last checkpoint",
                  what, text);
  }
  throw failure("the GPU failed at {}: {}", what, text);
}

}  // namespace

void require(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) {
    fail(status, what, cudaGetErrorString(status));
  }
}

void require(CUresult status, std::string_view what) {
  if (status != CUDA_SUCCESS) {
    // The runtime knows the same numbers, and needs no driver to name them.
    fail(status, what, cudaGetErrorString(static_cast<cudaError_t>(status)));
  }
}

void require_launched(std::string_view what) { require(cudaGetLastError(), what); }

}  // namespace baton::cuda
