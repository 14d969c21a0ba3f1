#include "baton/cuda/driver.h"

#include <cuda_runtime_api.h>

#include "baton/base/error.h"

namespace baton::cuda {
namespace {

/// The version in which the last of these functions came.
constexpr unsigned needed = 12050;

template <typename Function>
void find(Function& function, const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &address, needed, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || address == nullptr) {
    throw failure("the GPU's driver is too old: baton needs one of CUDA {}.{} or newer", needed / 1000, needed % 1000 / 10);
  }
  function = reinterpret_cast<Function>(address);
}

Driver load() {
  Driver driver{};
  find(driver.cuDeviceGet, "cuDeviceGet");
  find(driver.cuCtxSetCurrent, "cuCtxSetCurrent");
  find(driver.cuDeviceGetDevResource, "cuDeviceGetDevResource");
  find(driver.cuDevSmResourceSplitByCount, "cuDevSmResourceSplitByCount");
  find(driver.cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc");
  find(driver.cuGreenCtxCreate, "cuGreenCtxCreate");
  find(driver.cuGreenCtxDestroy, "cuGreenCtxDestroy");
  find(driver.cuCtxFromGreenCtx, "cuCtxFromGreenCtx");
  find(driver.cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate");
  return driver;
}

}  // namespace

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

}  // namespace baton::cuda
