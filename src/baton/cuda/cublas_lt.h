#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "baton/cuda/gpu_place.h"
#include "baton/cuda/kept_choices.h"
#include "baton/cuda/product_shape.h"

namespace baton::cuda {

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  const void* c = nullptr;  // what beta is a factor of; null: what D holds
  const void* x = nullptr;  // the places at which the slopes of a GELU are taken
};

/// Workspace that a product of this size is given.
std::int64_t product_workspace(std::int64_t m, std::int64_t n);

/// Workspace beyond it by which the product may first turn B, or none if that would not help. In float32 the library is faster
/// with B transposed: on an H200 37.1 ms against 40.4 for 10000 x 10000 x 10000, and turning takes 0.2.
std::int64_t turning_workspace(const ProductShape& shape);

/// A product by cuBLASLt, its algorithm chosen.
class Product {
 public:
  virtual ~Product() = default;
  virtual void run(cudaStream_t stream) const = 0;
};

/// cuBLASLt, loaded at run time, for one place.
class BlasLt {
 public:
  /// The place must be entered. A usage error refuses a BATON_CUDA_CACHE that says nothing.
  explicit BlasLt(const GpuPlace& place);
  ~BlasLt();

  /// Chooses an algorithm by timing the likeliest ones on the operands (whose contents are lost), among those that give
  /// the same bits as the likeliest of all; so timing decides how fast a product is and never its result. If the workspace
  /// has room for turning B, that is tried too. A choice is kept in a file (kept_choices.h); if one was kept and the library
  /// accepts it, nothing is timed and the operands stay as they are. BATON_CUDA_CACHE=off keeps choices for the process only,
  /// and a folder's path keeps them there.
  std::unique_ptr<Product> prepare(const ProductShape& shape, const ProductOperands& operands, void* workspace,
                                   std::int64_t workspace_bytes, cudaStream_t stream);

 private:
  const GpuPlace& place_;
  KeptChoices& choices_;
  void* handle_ = nullptr;
};

}  // namespace baton::cuda
