#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

namespace baton::cuda {

/// Throws a failure that says what could not be done, and what CUDA says of it: "the GPU failed at copying: ...".
void require(cudaError_t status, std::string_view what);
void require(CUresult status, std::string_view what);

/// Throws such a failure if the last launch failed: a launch returns no status of its own.
void require_launched(std::string_view what);

}  // namespace baton::cuda
