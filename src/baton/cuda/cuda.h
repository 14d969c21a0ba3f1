#pragma once

#include <memory>
#include <vector>

#include "baton/cluster/gpu.h"
#include "baton/exec/backend.h"

namespace baton::cuda {

/// NVIDIA GPUs, whole or in parts; products by cuBLASLt and kernels of our own; float32, bf16 and f16.
/// A usage error says why there is none: built without CUDA, no GPU, a driver that is too old, no code for this GPU.
std::unique_ptr<exec::Backend> make_backend();

/// The GPUs that this process may use; the same errors.
std::vector<cluster::Gpu> find_gpus();

/// True if there is one; throws nothing.
bool has_gpu();
/// True if NCCL is found here.
bool has_nccl();

}  // namespace baton::cuda
