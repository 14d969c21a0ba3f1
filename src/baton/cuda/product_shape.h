#pragma once

#include <compare>
#include <cstdint>

#include "baton/base/dtype.h"

namespace baton::cuda {

/// D = alpha · op(A) op(B) + beta · D, column-major as in cuBLAS: op(A) is m × k, op(B) is k × n. With `bias` a vector of
/// m is added to each column, and with `relu` what is below zero becomes zero. With `gelu` each element is multiplied by the slope
/// of a GELU (tanh) at the matching element of a further matrix, which has the layout of D. What is added to may be another matrix
/// than D.
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
  bool gelu = false;
  float alpha = 1;
  float beta = 0;

  auto operator<=>(const ProductShape&) const = default;
};

}  // namespace baton::cuda
