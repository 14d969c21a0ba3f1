#include "baton/base/error.h"
#include "baton/exec/backend/cuda/cuda.h"

namespace baton::exec {
namespace {

Error no_cuda() {
  return usage_error("this baton was built without CUDA: install the CUDA toolkit (nvcc) and build again, or use --devices cpu");
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() { throw no_cuda(); }

std::vector<cluster::Gpu> find_gpus() { throw no_cuda(); }

bool has_gpu() { return false; }

}  // namespace baton::exec
