#pragma once

#include <cstdint>

#include "baton/cuda/attention.h"
#include "baton/cuda/element.cuh"
#include "baton/cuda/fragments.cuh"

/// The parts of attention on tensor cores: tiles of heads in shared memory.
namespace baton::cuda {

/// The strides of a head's rows in memory.
struct Strides {
  std::int64_t queries;  // elements from one position to the next
  std::int64_t keys;
  std::int64_t row_sums;  // elements from one head to the next
};

inline Strides strides_of(const AttentionShape& shape) {
  return {shape.samples * shape.groups * shape.heads * shape.size, shape.samples * shape.groups * shape.size,
          row_sums_stride(shape.positions)};
}

constexpr float log2_e = 1.44269504F;

/// Rows of a head, `Size` elements each, in chunks of 16 bytes. The chunks of a row are permuted by its number, so that neither
/// rows nor columns of chunks meet in one bank.
template <typename Element, int Size>
struct HeadTile {
  static constexpr int chunk = 16 / sizeof(Element);  // elements
  static constexpr int chunks = Size / chunk;
  static constexpr int row_bytes = Size * sizeof(Element);
  static constexpr int steps = chunks / 2;  // steps of a product over the head

  static __device__ std::uint32_t at(std::uint32_t tile, int row, int column) {
    return tile + static_cast<std::uint32_t>(row * row_bytes + ((column ^ (row & 7)) << 4));
  }

  /// Copies `Rows` rows from position `first` on. Rows from `positions` on, and elements that a shorter head lacks, become zero.
  template <int Rows, int Threads>
  static __device__ void fetch(std::uint32_t tile, const Element* head, std::int64_t stride, int first, int positions, int size) {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += Threads) {
      const int row = i / chunks;
      const int column = i % chunks;
      const bool valid = first + row < positions && column * chunk < size;
      copy_chunk(at(tile, row, column), valid ? head + (first + row) * stride + column * chunk : head, valid);
    }
  }
};

/// The left operand: rows from `row` on, at step `step` of the head.
template <typename Element, int Size>
__device__ void load_left(std::uint32_t (&fragment)[4], std::uint32_t tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_fragments(fragment, HeadTile<Element, Size>::at(tile, row + lane % 16, 2 * step + lane / 16));
}

/// The right operand of a product over the head: two fragments whose columns are the 16 rows from `row` on.
template <typename Element, int Size>
__device__ void load_right(std::uint32_t (&fragments)[4], std::uint32_t tile, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_fragments(fragments, HeadTile<Element, Size>::at(tile, row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
}

/// The right operand of a product over rows: two fragments whose columns are 16 of the head's, from 16 · `pair` on. Step `step`
/// takes 16 rows in 16 bits; in float32 it takes 8, in the order in which `left_of` has them.
template <typename Element, int Size>
__device__ void load_turned(std::uint32_t (&fragments)[4], std::uint32_t tile, int step, int pair) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  using Tile = HeadTile<Element, Size>;
  if constexpr (sizeof(Element) == 2) {
    load_turned_fragments(fragments, Tile::at(tile, 16 * step + lane % 16, 2 * pair + lane / 16));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 8 * step + 2 * (lane % 4) + i % 2;
      const int column = 16 * pair + i / 2 * 8 + lane / 4;
      const std::uint32_t address = Tile::at(tile, row, column / 4) + static_cast<std::uint32_t>(column % 4 * 4);
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(fragments[i]) : "r"(address) : "memory");
    }
  }
}

/// The number of steps of the product over `Columns` columns of sums.
template <typename Element>
__host__ __device__ constexpr int steps_over(int columns) {
  return columns / (32 / static_cast<int>(sizeof(Element)));
}

/// Sums of 16 × Columns as the left operand of another product, at its step `step`.
template <typename Element, int Tiles>
__device__ void left_of(std::uint32_t (&fragment)[4], const float (&sums)[Tiles][4], int step) {
  if constexpr (sizeof(Element) == 2) {
    fragment[0] = pair_of<Element>(sums[2 * step][0], sums[2 * step][1]);
    fragment[1] = pair_of<Element>(sums[2 * step][2], sums[2 * step][3]);
    fragment[2] = pair_of<Element>(sums[2 * step + 1][0], sums[2 * step + 1][1]);
    fragment[3] = pair_of<Element>(sums[2 * step + 1][2], sums[2 * step + 1][3]);
  } else {
    fragment[0] = ten_bits(sums[step][0]);
    fragment[1] = ten_bits(sums[step][2]);
    fragment[2] = ten_bits(sums[step][1]);
    fragment[3] = ten_bits(sums[step][3]);
  }
}

/// Two neighbours of a row.
template <typename Element>
__device__ void store_pair(Element* to, float low, float high) {
  if constexpr (sizeof(Element) == 2) {
    *reinterpret_cast<std::uint32_t*>(to) = pair_of<Element>(low, high);
  } else {
    *reinterpret_cast<float2*>(to) = make_float2(low, high);
  }
}

/// Writes a warp's sums of 16 rows to a head's rows from position `first` on, times `factor`.
template <typename Element, int Tiles>
__device__ void store_rows(Element* head, std::int64_t stride, int first, int positions, int size, const float (&sums)[Tiles][4],
                           float upper_factor, float lower_factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = first + lane / 4 + 8 * half;
    if (position >= positions) {
      continue;
    }
    Element* row = head + position * stride;
    const float factor = half == 0 ? upper_factor : lower_factor;
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      const int column = 8 * n + 2 * (lane % 4);
      if (column < size) {
        store_pair(row + column, sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
      }
    }
  }
}

inline __device__ float power_of_2(float exponent) {
  float result = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(exponent));
  return result;
}

/// The kernels on tensor cores (attention_forward.cu, attention_backward.cu), for heads of at most 128 elements, whole chunks.
template <typename Element>
constexpr bool suits_tensor_cores(std::int64_t size) {
  return size <= 128 && size % (16 / static_cast<std::int64_t>(sizeof(Element))) == 0;
}
template <typename Element>
void attention_by_tiles(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                        cudaStream_t stream);
/// `rows` has for each row of scores its lse, in powers of two, and the sum of dy · o; [samples, groups, heads, row_sums_stride].
template <typename Element>
void attention_backward_by_tiles(const AttentionShape& shape, const AttentionGradients& operands, const float2* rows,
                                 cudaStream_t stream);

/// The kernels by Hopper's warp groups (attention_hopper.cu), for heads of at most 128 elements of 16 bits, whole chunks.
template <typename Element>
constexpr bool suits_warp_groups(std::int64_t size) {
  return sizeof(Element) == 2 && size <= 128 && size % 8 == 0;
}
template <typename Element>
void attention_by_groups(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                         cudaStream_t stream);
/// Fills `rows` itself.
template <typename Element>
void attention_backward_by_groups(const AttentionShape& shape, const AttentionGradients& operands, float2* rows,
                                  cudaStream_t stream);

}  // namespace baton::cuda
