#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>

#include "baton/base/dtype.h"
#include "baton/exec/backend/cuda/place.h"

namespace baton::exec::cuda {

/// D = alpha · op(A) op(B) + beta · D, column-major as cuBLAS has it: op(A) is m × k, op(B) is k × n. With `bias` a vector of
/// m is added to each column, with `relu` what is below zero becomes zero.
struct ProductShape {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType operands = DType::f32;
  DType result = DType::f32;
  bool tf32 = false;  // float32 operands may be rounded to ten bits
  bool bias = false;
  bool relu = false;
  float alpha = 1;
  float beta = 0;

  auto operator<=>(const ProductShape&) const = default;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
};

/// Workspace that a product of this size is given.
std::int64_t product_workspace(std::int64_t m, std::int64_t n);

/// Workspace beyond it by which the product may first turn B, or none where that would not help. In float32 the library is faster
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
  /// The place must be entered.
  explicit BlasLt(const Place& place);
  ~BlasLt();

  /// Chooses an algorithm by timing the likeliest ones on the operands (whose contents are lost), among those that give
  /// the bits that the likeliest of all gives; so timing decides how fast a product is and never what it is. Where the workspace
  /// has room for turning B, that is tried too. A choice is kept for the process.
  std::unique_ptr<Product> prepare(const ProductShape& shape, const ProductOperands& operands, void* workspace,
                                   std::int64_t workspace_bytes, cudaStream_t stream);

 private:
  const Place& place_;
  void* handle_ = nullptr;
};

}  // namespace baton::exec::cuda
