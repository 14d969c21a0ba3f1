#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <stdexcept>

#include "baton/base/dtype.h"

/// The types of elements, as kernels see them.
namespace baton::cuda {

__device__ inline float widened(float value) { return value; }
__device__ inline double widened(double value) { return value; }
__device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widened(__half value) { return __half2float(value); }

template <typename Element, typename Wide>
__device__ Element rounded(Wide value) {
  if constexpr (sizeof(Element) == 2) {
    if constexpr (std::is_same_v<Element, __half>) {
      return __float2half_rn(value);
    } else {
      return __float2bfloat16_rn(value);
    }
  } else {
    return static_cast<Element>(value);
  }
}

/// Sixteen bytes of elements, read and written at once.
template <typename Element>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(Element);
  Element elements[size];
};

/// Calls `run` with an element of the type.
template <typename Run>
void with_element(DType type, Run run) {
  switch (type) {
    case DType::f32:
      return run(float{});
    case DType::bf16:
      return run(__nv_bfloat16{});
    case DType::f16:
      return run(__half{});
    default:
      throw std::runtime_error("no kernel for elements of this type");
  }
}

/// Calls `run` with an element of the type and one of a second, which is the same or float32.
template <typename Run>
void with_elements(DType type, DType wide, Run run) {
  with_element(type, [&](auto element) {
    if (wide == type) {
      run(element, element);
    } else if (wide == DType::f32) {
      run(element, float{});
    } else {
      throw std::runtime_error("no kernel for elements of these types");
    }
  });
}

/// Calls `run` with elements of two types, of which one may be float32 if the other has 16 bits.
template <typename Run>
void with_either(DType a, DType b, Run run) {
  if (a == DType::f32) {
    with_element(b, [&](auto element) { run(float{}, element); });
  } else {
    with_elements(a, b, run);
  }
}

}  // namespace baton::cuda
