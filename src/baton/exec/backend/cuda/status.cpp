#include "baton/exec/backend/cuda/status.h"

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/driver.h"

namespace baton::exec::cuda {

void require(cudaError_t status, std::string_view what) {
  if (status == cudaErrorECCUncorrectable || status == cudaErrorDevicesUnavailable || status == cudaErrorNoDevice ||
      status == cudaErrorUnknown) {
    throw failure("the GPU was lost at {} ({}): see what its driver says in `dmesg`, and start again from the last checkpoint",
                  what, cudaGetErrorString(status));
  }
  if (status != cudaSuccess) {
    throw failure("the GPU failed at {}: {}", what, cudaGetErrorString(status));
  }
}

void require(CUresult status, std::string_view what) {
  if (status != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver().get_error_string(status, &text);
    throw failure("the GPU failed at {}: {}", what, text == nullptr ? "unknown error" : text);
  }
}

void require_launched(std::string_view what) { require(cudaGetLastError(), what); }

}  // namespace baton::exec::cuda
