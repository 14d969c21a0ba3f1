#include "baton/base/error.h"
#include "baton/cuda/cuda.h"

namespace baton::cuda {
namespace {

Error no_cuda() {
  return usage_error("this baton was built without CUDA ({}): install what is missing and build again, or use --devices cpu",
                     BATON_CUDA_MISSING);
}

}  // namespace

std::unique_ptr<exec::Backend> make_backend() { throw no_cuda(); }

std::vector<cluster::Gpu> find_gpus() { throw no_cuda(); }

bool has_gpu() { return false; }

bool has_nccl() { return false; }

}  // namespace baton::cuda
