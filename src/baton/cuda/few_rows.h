#pragma once

#include <cuda_runtime_api.h>

#include "baton/base/dtype.h"

namespace baton::cuda {

/// The capabilities of a GPU, beyond those that every GPU has, that decide which code a task gets.
struct Capability {
  int code = 0;          // code_version()
  int shared_bytes = 0;  // the most shared memory that a block may have
};

/// 16-bit copies of a weight and its bias as they are after a step; null if there are none.
struct WeightCopies {
  void* weight = nullptr;
  void* bias = nullptr;
};

/// Products of a linear layer for few rows, whose time is that of reading the weights: the weights go by once, through all
/// multiprocessors, and what they give is added up in an order that depends on the shape and the device only.
/// float32, row-major; with `tf32` the products see ten bits of the operands' digits.
struct FewRows {
  int rows;
  int in;
  int out;
  bool tf32;
  int multiprocessors;

  /// Shared memory of a block, as much as any of the kernels asks for.
  static constexpr int most_shared_bytes = 196 * 1024;

  /// True if there is a kernel for it on such a GPU.
  bool fits(const Capability& capability) const;

  /// y = x Wᵀ + b (b may be null), and with `relu` max(0, ·). Here and below, `early` says that the weights may be read while
  /// kernels before this one still run.
  void forward(const float* x, const float* weight, const float* bias, float* y, bool relu, bool early, cudaStream_t stream) const;
  /// dx = dy W, zero where `mask` ≤ 0 (a null mask masks nothing).
  void backward_input(const float* dy, const float* weight, const float* mask, float* dx, bool early, cudaStream_t stream) const;
  /// dW = keep · dW + factor · dyᵀ x, db (may be null) likewise with Σ dy; `keep` is 0 or 1. `operands` is the type of x and dy:
  /// with 16 bits they are multiplied as they are and summed in float32, which takes `fits_narrow`. `copies` are then written too,
  /// in that type.
  void backward_weight(DType operands, const void* x, const void* dy, float* dw, float* db, const WeightCopies& copies, float keep,
                       float factor, bool early, cudaStream_t stream) const;
  bool fits_narrow(const Capability& capability) const { return fits(capability) && in % 8 == 0 && out % 8 == 0; }
};

}  // namespace baton::cuda
