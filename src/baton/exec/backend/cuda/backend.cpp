#include <algorithm>
#include <cstdlib>

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/cuda.h"
#include "baton/exec/backend/cuda/engine.h"
#include "baton/exec/backend/cuda/launch.h"
#include "baton/exec/backend/cuda/status.h"
#include "baton/exec/engine.h"

namespace baton::exec {
namespace {

/// CUDA's count, which starts CUDA.
cudaError_t ask_for_gpus(int& count) {
  // By default eight queues serve all streams, and what shares a queue waits for each other. Read when CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return cudaGetDeviceCount(&count);
}

/// How many GPUs there are; a usage error where there is none.
int count_gpus() {
  int count = 0;
  const cudaError_t status = ask_for_gpus(count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver > 0) {
      throw usage_error("the GPU's driver knows CUDA {}.{}, but this baton needs {}.{}: update the driver, or use --devices cpu",
                        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
  }
  if (status != cudaSuccess || count == 0) {
    cudaGetLastError();
    throw usage_error("there is no NVIDIA GPU here that this process may use: use --devices cpu");
  }
  return count;
}

int capability(int count) {
  int least = 1 << 20;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int major = 0;
    cuda::require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal), "reading what it is");
    least = std::min(least, major);
  }
  return least;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend() : capability_(capability(count_gpus())) {}

  std::string_view name() const override { return "cuda"; }
  strategy::Target target() const override {
    return {.linear_with_relu = true,
            .linear_with_mask = true,
            .linear_with_sgd = true,
            .narrow_linear_with_sgd = true,
            .all_reduce_with_sgd = true,
            .workspace = [capability = capability_](std::span<const plan::Buffer> buffers, const plan::Task& task, std::size_t) {
              return cuda::launch_workspace(buffers, task, capability);
            }};
  }
  bool is_native(DType type) const override { return type != DType::f64; }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return cuda::has_launch(plan, task); }
  std::unique_ptr<Engine> open(Assignment assignment) const override {
    return cuda::make_engine(std::move(assignment), capability_);
  }

 private:
  int capability_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() { return std::make_unique<CudaBackend>(); }

std::vector<cluster::Gpu> find_gpus() {
  std::vector<cluster::Gpu> gpus;
  for (int ordinal = 0, count = count_gpus(); ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    cuda::require(cudaGetDeviceProperties(&properties, ordinal), "reading what it is");
    std::size_t free = 0;
    std::size_t total = 0;
    cuda::require(cudaSetDevice(ordinal), "selecting it");
    cuda::require(cudaMemGetInfo(&free, &total), "asking for its memory");
    gpus.push_back({properties.name, Bytes(static_cast<std::int64_t>(free)), properties.multiProcessorCount});
  }
  return gpus;
}

bool has_gpu() {
  int count = 0;
  const bool found = ask_for_gpus(count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return found;
}

}  // namespace baton::exec
