#pragma once

#include <algorithm>
#include <cstdint>

#include "baton/cuda/attention_tiles.cuh"
#include "baton/cuda/warp_group.cuh"

/// The parts of attention by warp groups. A head has one or two halves of 64 elements, whose rows are the 128 bytes that the tensor
/// cores read at once; a tile has its halves after each other. Boxes of 64 rows are copied by hardware.
namespace baton::cuda {

constexpr int half_size = 64;  // features of half a head
constexpr int tile_rows = 64;  // keys or queries per tile that goes by
constexpr int groups = 2;      // warp groups that multiply, per block
constexpr int multiplying_warps = groups * group_threads / 32;
constexpr int own_rows = groups * group_rows;  // rows that a block keeps
constexpr int steps = half_size / 16;          // steps of a product over half a head, and over the rows of a tile
constexpr int sum_tiles = half_size / 8;
constexpr int row_bytes = line_bytes;
constexpr int half_tile_bytes = tile_rows * row_bytes;
constexpr int half_own_bytes = own_rows * row_bytes;
constexpr int alignment = tile_alignment;
static_assert(tile_rows == group_rows, "one box has either");

/// A tile as the right operand. Over the head: its columns are the tile's rows, and step `step` has 16 elements of the head.
inline __device__ std::uint64_t over_head(std::uint32_t tile, int step) {
  return described(tile) + static_cast<unsigned>(2 * step);
}
/// Over rows: its columns are the head's elements, and step `step` has 16 rows of the tile.
inline __device__ std::uint64_t over_rows(std::uint32_t tile, int step) {
  return described(tile) + static_cast<unsigned>(row_bytes * step);
}

using Sums = float[sum_tiles][4];  // 64 × 64 of a warp group, as `multiply_fragments` has 16 × 8 of a warp
using Fragments = std::uint32_t[steps][4];

/// After products that wrote the sums: keeps the compiler from moving reads of them before the wait.
inline __device__ void settle(Sums& s) {
#pragma unroll
  for (int n = 0; n < sum_tiles; ++n) {
    asm volatile("" : "+f"(s[n][0]), "+f"(s[n][1]), "+f"(s[n][2]), "+f"(s[n][3])::"memory");
  }
}

/// Keeps the assembler from moving the next wait to before the value is computed. It moves waits as early as it may, so that work
/// that was to be done during a wait comes after it, but it moves none to before a store. The value is never negative, so nothing
/// is stored.
inline __device__ void finish_first(int value) {
  asm volatile("{\n.reg .pred never;\nsetp.lt.s32 never, %0, 0;\n@never st.shared.s32 [%1], %0;\n}" ::"r"(value), "r"(0)
               : "memory");
}
inline __device__ void finish_first(const Sums& sums) {
  int all = 0;
#pragma unroll
  for (int n = 0; n < sum_tiles; ++n) {
    all |= __float_as_int(sums[n][0]) | __float_as_int(sums[n][1]) | __float_as_int(sums[n][2]) | __float_as_int(sums[n][3]);
  }
  finish_first(all);
}

#define BATON_SUMS(constraint, i) constraint(s[i][0]), constraint(s[i][1]), constraint(s[i][2]), constraint(s[i][3])
#define BATON_ALL_SUMS(constraint)                                                                            \
  BATON_SUMS(constraint, 0), BATON_SUMS(constraint, 1), BATON_SUMS(constraint, 2), BATON_SUMS(constraint, 3), \
      BATON_SUMS(constraint, 4), BATON_SUMS(constraint, 5), BATON_SUMS(constraint, 6), BATON_SUMS(constraint, 7)
#define BATON_PRODUCT(types, operands)                                                                               \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." types                                                                \
  " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31}, " operands ";"
// Sums that are not added to are results alone, so that nothing has to be kept for them while other products run.
#define BATON_MULTIPLY(types, operands, ...)                                                      \
  if constexpr (Add) {                                                                            \
    asm volatile(BATON_PRODUCT(types, operands) : BATON_ALL_SUMS("+f") : __VA_ARGS__ : "memory"); \
  } else {                                                                                        \
    asm volatile(BATON_PRODUCT(types, operands) : BATON_ALL_SUMS("=f") : __VA_ARGS__ : "memory"); \
  }
#define BATON_MULTIPLY_TYPED(operands, ...)            \
  if constexpr (std::is_same_v<Element, __half>) {     \
    BATON_MULTIPLY("f16.f16", operands, __VA_ARGS__)   \
  } else {                                             \
    BATON_MULTIPLY("bf16.bf16", operands, __VA_ARGS__) \
  }

/// `Add`: adds to the old sums, otherwise replaces them. `Transposed`: the right operand is `over_rows`.
template <typename Element, bool Add, bool Transposed>
__device__ void multiply_group(Sums& s, const std::uint32_t (&left)[4], std::uint64_t right) {
  BATON_MULTIPLY_TYPED("{%32,%33,%34,%35}, %36, %37, 1, 1, %38", "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),
                       "n"(Add ? 1 : 0), "n"(Transposed ? 1 : 0))
}

/// The left operand too in shared memory, both `over_head`.
template <typename Element, bool Add>
__device__ void multiply_tiles(Sums& s, std::uint64_t left, std::uint64_t right) {
  BATON_MULTIPLY_TYPED("%32, %33, %34, 1, 1, 0, 0", "l"(left), "l"(right), "n"(Add ? 1 : 0))
}
#undef BATON_MULTIPLY_TYPED
#undef BATON_MULTIPLY
#undef BATON_PRODUCT
#undef BATON_ALL_SUMS
#undef BATON_SUMS

/// Rows of a head that a warp group has: in registers, or in shared memory if they are too many.
template <typename Element, int Halves, bool InRegisters>
struct GroupRows {
  Fragments fragments[InRegisters ? Halves : 1];
  std::uint32_t tile;

  /// Takes the rows of this warp group from the tile of its block, after the tile was copied.
  __device__ void take(std::uint32_t block_tile) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    tile = block_tile + static_cast<std::uint32_t>(warp / 4 * group_rows * row_bytes);
    if constexpr (InRegisters) {
#pragma unroll
      for (int half = 0; half < Halves; ++half) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          load_left<Element, half_size>(fragments[half][step], block_tile + half * half_own_bytes, 16 * warp, step);
        }
      }
    }
  }
  /// sums = these rows times those of a tile, over the head.
  __device__ void multiply(Sums& sums, std::uint32_t columns) const {
    multiply_step<false>(sums, columns, 0, 0);
#pragma unroll
    for (int i = 1; i < Halves * steps; ++i) {
      multiply_step<true>(sums, columns, i / steps, i % steps);
    }
  }

 private:
  template <bool Add>
  __device__ void multiply_step(Sums& sums, std::uint32_t columns, int half, int step) const {
    const std::uint64_t right = over_head(columns + half * half_tile_bytes, step);
    if constexpr (InRegisters) {
      multiply_group<Element, Add, false>(sums, fragments[half][step], right);
    } else {
      multiply_tiles<Element, Add>(sums, over_head(tile + half * half_own_bytes, step), right);
    }
  }
};

/// sums += shares · rows of a tile.
template <typename Element, int Halves>
__device__ void add_rows(Sums (&sums)[Halves], const Fragments& shares, std::uint32_t tile) {
#pragma unroll
  for (int half = 0; half < Halves; ++half) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      multiply_group<Element, true, true>(sums[half], shares[step], over_rows(tile + half * half_tile_bytes, step));
    }
  }
}

template <typename Element>
__device__ void fragments_of(Fragments& left, const Sums& sums) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    left_of<Element>(left[step], sums, step);
  }
}

template <typename Element, int Halves>
__device__ void store_sums(Element* head, std::int64_t stride, int first, int positions, int size, const Sums (&sums)[Halves],
                           float upper_factor, float lower_factor) {
#pragma unroll
  for (int half = 0; half < Halves; ++half) {
    store_rows(head + half * half_size, stride, first, positions, size - half * half_size, sums[half], upper_factor, lower_factor);
  }
}

/// A place in the ring of tiles in shared memory: which of the stages, and the parity of the phase in which it is filled.
template <int Stages>
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The tensors whose rows are copied, as the hardware reads them.
struct Tensors {
  CUtensorMap own;        // rows that a block keeps
  CUtensorMap other_own;  // for the backward only
  CUtensorMap passing;    // rows that go by
  CUtensorMap other_passing;
  CUtensorMap result;  // for the backward only
};

/// The order in which blocks of rows are taken: of some heads at a time first all blocks with one number, then all with the next.
struct TileOrder {
  int heads;
  int heads_at_once;
  int row_blocks;

  __host__ __device__ int items() const { return heads * row_blocks; }
  __device__ void find(int item, int& head, int& row_block) const {
    const int items_at_once = heads_at_once * row_blocks;
    const int first = item / items_at_once * heads_at_once;
    const int there = min(heads_at_once, heads - first);
    head = first + item % items_at_once % there;
    row_block = item % items_at_once / there;
  }
};
/// As many heads at a time as leave the tensors that go by in the second-level cache. If blocks differ in length and are few, all
/// heads, so that the last ones are the shortest of all. `sharing` heads use the same tensors.
inline TileOrder order_of(const AttentionShape& shape, std::int64_t heads, std::int64_t sharing, int processors) {
  constexpr std::int64_t few_turns = 32;                                    // turns of blocks on a multiprocessor
  constexpr std::int64_t cached_bytes = std::int64_t{16} << 20;             // a third of an H200's cache
  const std::int64_t passing_bytes = shape.positions * shape.size * 2 * 2;  // two tensors of 16 bits
  const std::int64_t row_blocks = (shape.positions + own_rows - 1) / own_rows;
  const bool few = heads * row_blocks < few_turns * processors;
  const std::int64_t cached = std::max<std::int64_t>(1, cached_bytes / passing_bytes) * sharing;
  return {static_cast<int>(heads), static_cast<int>(shape.causal && few ? heads : std::min(heads, cached)),
          static_cast<int>(row_blocks)};
}

/// Describes tensors to the hardware that copies: [positions, heads, size] as boxes of 64 rows of half a head.
class Boxes {
 public:
  Boxes(const AttentionShape& shape, DType type) : shape_(shape), type_(type) {}
  CUtensorMap of_queries(const void* data) const { return of(data, shape_.samples * shape_.groups * shape_.heads); }
  CUtensorMap of_keys(const void* data) const { return of(data, shape_.samples * shape_.groups); }

 private:
  CUtensorMap of(const void* data, std::int64_t heads) const;

  AttentionShape shape_;
  DType type_;
};

/// The number of multiprocessors of the GPU that is selected.
int multiprocessors();

}  // namespace baton::cuda
