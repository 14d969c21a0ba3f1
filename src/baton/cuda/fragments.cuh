#pragma once

#include <cstdint>
#include <type_traits>

#include "baton/cuda/element.cuh"

/// Products on tensor cores. A fragment is the part of a matrix that a warp's lanes hold: of the left operand 16 rows of 32 bytes,
/// of the right one 8 columns of 32 bytes. So a step of a product spans 32 bytes: 16 elements of 16 bits, or 8 of float32, of which
/// the hardware reads ten bits.
namespace baton::cuda {

inline __device__ std::uint32_t shared_address_of(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Sixteen bytes, or as many zeros if they are not valid.
inline __device__ void copy_chunk(std::uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
}
inline __device__ void copy_pair(std::uint32_t shared, const void* global, bool valid) {
  const int bytes = valid ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(global), "r"(bytes));
}
inline __device__ void end_of_copies() { asm volatile("cp.async.commit_group;"); }
inline __device__ void await_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

/// Four 8 × 8 matrices of 16 bits, or 8 × 4 of 32, whose rows' addresses the lanes bring.
inline __device__ void load_fragments(std::uint32_t (&fragments)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address)
               : "memory");
}
inline __device__ void load_turned_fragments(std::uint32_t (&fragments)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address)
               : "memory");
}

template <typename Element>
__device__ std::uint32_t pair_of(float low, float high) {
  if constexpr (std::is_same_v<Element, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

inline __device__ std::uint32_t ten_bits(float value) {
  std::uint32_t result = 0;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(value));
  return result;
}

/// 16 × 8 sums. Lane l has rows l / 4 and l / 4 + 8, of each columns 2 · (l % 4) and the next.
template <typename Element>
__device__ void multiply_fragments(float (&sums)[4], const std::uint32_t (&left)[4], std::uint32_t right_0, std::uint32_t right_1) {
#define BATON_MULTIPLY(shape_and_types)                                                            \
  asm("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                 \
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1))
  if constexpr (std::is_same_v<Element, __half>) {
    BATON_MULTIPLY("m16n8k16.row.col.f32.f16.f16.f32");
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    BATON_MULTIPLY("m16n8k16.row.col.f32.bf16.bf16.f32");
  } else {
    BATON_MULTIPLY("m16n8k8.row.col.f32.tf32.tf32.f32");
  }
#undef BATON_MULTIPLY
}

}  // namespace baton::cuda
