#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "baton/base/error.h"
#include "baton/cuda/code.h"
#include "baton/cuda/cuda.h"
#include "baton/cuda/engine.h"
#include "baton/cuda/few_rows.h"
#include "baton/cuda/launch.h"
#include "baton/cuda/nccl.h"
#include "baton/cuda/status.h"
#include "baton/exec/engine.h"
#include "baton/op/traits.h"
#include "baton/plan/target.h"

namespace baton::cuda {
namespace {

/// CUDA's count, which initializes CUDA.
cudaError_t ask_for_gpus(int& count) {
  // By default eight queues serve all streams, and streams that share a queue wait for each other. Read when CUDA starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return cudaGetDeviceCount(&count);
}

/// The number of GPUs; a usage error if there is none.
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

/// The version of the code that a GPU runs; only one of several equal GPUs is asked, since that opens it.
int code_of(int ordinal, int major, int minor) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, int> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find({major, minor}); found != known.end()) {
    return found->second;
  }
  cuda::require(cudaSetDevice(ordinal), "selecting it");
  return known[{major, minor}] = cuda::code_version();
}

cuda::Capability capability_of(int ordinal) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    cuda::require(cudaDeviceGetAttribute(&value, which, ordinal), "reading what it is");
    return value;
  };
  return {.code = code_of(ordinal, attribute(cudaDevAttrComputeCapabilityMajor), attribute(cudaDevAttrComputeCapabilityMinor)),
          .shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
}

Error no_code(int ordinal) {
  cudaDeviceProp properties{};
  cuda::require(cudaGetDeviceProperties(&properties, ordinal), "reading what it is");
  return usage_error(
      "GPU {} ({}) has compute capability {}.{}, but this baton was built for {}: build it again with "
      "-DCMAKE_CUDA_ARCHITECTURES={}{}, or use --devices cpu",
      ordinal, properties.name, properties.major, properties.minor, cuda::built_for(), properties.major, properties.minor);
}

/// The capability that all of the GPUs have; a usage error if one of them cannot run this build.
cuda::Capability common_capability(const std::set<int>& ordinals) {
  cuda::Capability least{.code = std::numeric_limits<int>::max(), .shared_bytes = std::numeric_limits<int>::max()};
  for (const int ordinal : ordinals) {
    const cuda::Capability one = capability_of(ordinal);
    if (one.code == 0) {
      throw no_code(ordinal);
    }
    least = {.code = std::min(least.code, one.code), .shared_bytes = std::min(least.shared_bytes, one.shared_bytes)};
  }
  return least;
}

/// The GPUs that run this build; a usage error if there is none.
std::set<int> usable_gpus() {
  std::set<int> usable;
  for (int ordinal = 0, count = count_gpus(); ordinal < count; ++ordinal) {
    if (capability_of(ordinal).code != 0) {
      usable.insert(ordinal);
    }
  }
  if (usable.empty()) {
    throw no_code(0);
  }
  return usable;
}

class CudaBackend final : public exec::Backend {
 public:
  CudaBackend() : capability_(common_capability(usable_gpus())) {}

  std::string_view name() const override { return "cuda"; }
  plan::Target target() const override {
    return {.joined = op::joint_ops(),
            .gradient_with_sgd = true,
            .narrow_gradient_with_sgd = {DType::bf16, DType::f16},
            .all_reduce_with_sgd = true,
            .adds = true,
            .copies = true,
            .overwrites = true,
            .loads = true,
            .workspace = [capability = capability_](std::span<const plan::Buffer> buffers, const plan::Task& task, std::size_t) {
              return cuda::launch_workspace(buffers, task, capability);
            }};
  }
  bool supports(DType type) const override { return type != DType::f64; }
  bool is_native(DType type) const override { return type != DType::f64; }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return cuda::has_launch(plan, task); }
  std::unique_ptr<exec::Engine> open(exec::Assignment assignment) const override {
    std::set<int> ordinals;
    for (const cluster::Device& device : assignment.cluster.devices()) {
      check(device.gpu.has_value(), "{} is not a GPU", device.name);
      if (assignment.world == nullptr || device.rank == assignment.world->rank()) {
        ordinals.insert(device.gpu->ordinal);
      }
    }
    const cuda::Capability capability = common_capability(ordinals);
    return cuda::make_engine(std::move(assignment), capability);
  }

 private:
  cuda::Capability capability_;  // the abilities that all GPUs have; those of a plan may have more
};

}  // namespace

std::unique_ptr<exec::Backend> make_backend() { return std::make_unique<CudaBackend>(); }

std::vector<cluster::Gpu> find_gpus() {
  std::vector<cluster::Gpu> gpus;
  for (int ordinal = 0, count = count_gpus(); ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    cuda::require(cudaGetDeviceProperties(&properties, ordinal), "reading what it is");
    std::size_t free = 0;
    std::size_t total = 0;
    cuda::require(cudaSetDevice(ordinal), "selecting it");
    cuda::require(cudaMemGetInfo(&free, &total), "asking for its memory");
    std::array<char, 32> bus{};
    cuda::require(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal), "reading what it is");
    gpus.push_back({properties.name, Bytes(static_cast<std::int64_t>(free)), properties.multiProcessorCount, bus.data()});
  }
  return gpus;
}

bool has_gpu() {
  int count = 0;
  const bool found = ask_for_gpus(count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return found;
}

bool has_nccl() { return nccl::is_available(); }

}  // namespace baton::cuda
