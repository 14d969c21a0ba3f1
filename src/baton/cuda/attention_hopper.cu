#include "baton/cuda/attention_tiles.cuh"
#include "baton/cuda/programmatic.cuh"
#include "baton/cuda/warp_group.cuh"

/// Attention of 16 bits by the products of warp groups. Built for compute capability 9.0 alone, which the instructions need. A head
/// has one or two halves of 64 elements, whose rows are the 128 bytes that the tensor cores read at once; a tile has its halves
/// after each other.
namespace baton::cuda {
namespace {

constexpr int half_size = 64;  // of a head
constexpr int tile_rows = 64;  // keys or queries per tile that goes by
constexpr int groups = 2;      // of warps, per block
constexpr int threads = groups * group_threads;
constexpr int own_rows = groups * group_rows;  // of a block
constexpr int steps = half_size / 16;          // of a product over half a head, and over a tile's rows
constexpr int sum_tiles = half_size / 8;
constexpr int row_bytes = line_bytes;
constexpr int half_tile_bytes = tile_rows * row_bytes;
constexpr int half_own_bytes = own_rows * row_bytes;
constexpr int alignment = tile_alignment;

/// Its columns are the tile's rows, and step `step` has 16 elements of the head.
__device__ std::uint64_t over_head(std::uint32_t tile, int step) { return described(tile + static_cast<std::uint32_t>(32 * step)); }
/// Its columns are the head's elements, and step `step` has 16 rows of the tile.
__device__ std::uint64_t over_rows(std::uint32_t tile, int step) {
  return described(tile + static_cast<std::uint32_t>(16 * row_bytes * step));
}

using Sums = float[sum_tiles][4];  // 64 × 64 of a warp group, as `multiply_fragments` has 16 × 8 of a warp
using Fragments = std::uint32_t[steps][4];

#define BATON_SUMS(i) "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3])
#define BATON_ALL_SUMS \
  BATON_SUMS(0), BATON_SUMS(1), BATON_SUMS(2), BATON_SUMS(3), BATON_SUMS(4), BATON_SUMS(5), BATON_SUMS(6), BATON_SUMS(7)
#define BATON_PRODUCT(types)                                                                                         \
  "wgmma.mma_async.sync.aligned.m64n64k16." types                                                                    \
  " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31}, "

/// Adds to the sums that are there, or not. `Turned`: the right operand is `over_rows`.
template <typename Element, bool Turned>
__device__ void multiply_group(Sums& s, const std::uint32_t (&left)[4], std::uint64_t right, bool add) {
#define BATON_MULTIPLY(types)                                                                                                     \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n" BATON_PRODUCT(types) "{%32,%33,%34,%35}, %36, add, 1, 1, %38;\n}" \
               : BATON_ALL_SUMS                                                                                                   \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)),                  \
                 "n"(Turned ? 1 : 0)                                                                                              \
               : "memory")
  if constexpr (std::is_same_v<Element, __half>) {
    BATON_MULTIPLY("f32.f16.f16");
  } else {
    BATON_MULTIPLY("f32.bf16.bf16");
  }
#undef BATON_MULTIPLY
}

/// The left operand too in shared memory, `over_head`.
template <typename Element>
__device__ void multiply_tiles(Sums& s, std::uint64_t left, std::uint64_t right, bool add) {
#define BATON_MULTIPLY(types)                                                                                        \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" BATON_PRODUCT(types) "%32, %33, add, 1, 1, 0, 0;\n}" \
               : BATON_ALL_SUMS                                                                                      \
               : "l"(left), "l"(right), "r"(static_cast<int>(add))                                                   \
               : "memory")
  if constexpr (std::is_same_v<Element, __half>) {
    BATON_MULTIPLY("f32.f16.f16");
  } else {
    BATON_MULTIPLY("f32.bf16.bf16");
  }
#undef BATON_MULTIPLY
}

/// Rows of a head that a warp group has: in registers, or in shared memory if they are too many.
template <typename Element, int Halves, bool InRegisters>
struct GroupRows {
  Fragments fragments[InRegisters ? Halves : 1];
  std::uint32_t tile;

  /// Of a block's tile, after it was copied.
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
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const std::uint64_t right = over_head(columns + half * half_tile_bytes, step);
        if constexpr (InRegisters) {
          multiply_group<Element, false>(sums, fragments[half][step], right, half + step > 0);
        } else {
          multiply_tiles<Element>(sums, over_head(tile + half * half_own_bytes, step), right, half + step > 0);
        }
      }
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
      multiply_group<Element, true>(sums[half], shares[step], over_rows(tile + half * half_tile_bytes, step), true);
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

template <typename Element, int Halves, int Rows>
__device__ void fetch_rows(std::uint32_t tile, const Element* head, std::int64_t stride, int first, int positions, int size) {
#pragma unroll
  for (int half = 0; half < Halves; ++half) {
    HeadTile<Element, half_size>::template fetch<Rows, threads>(tile + half * Rows * row_bytes, head + half * half_size, stride,
                                                                first, positions, size - half * half_size);
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

constexpr int forward_bytes(int halves) { return halves * (half_own_bytes + 4 * half_tile_bytes) + alignment; }

/// One block per tile of queries of a head; the tiles with the most keys first.
template <typename Element, int Halves>
__global__ void __launch_bounds__(threads, Halves == 1 ? 2 : 1)
    hopper_attention_kernel(const Element* q, const Element* k, const Element* v, Element* o, float* lse, AttentionShape shape,
                            Strides strides) {
  constexpr int tile_bytes = Halves * half_tile_bytes;
  constexpr int own_bytes = Halves * half_own_bytes;
  extern __shared__ unsigned char memory[];
  const std::uint32_t query_tile = (shared_address_of(memory) + alignment - 1) / alignment * alignment;
  const std::uint32_t key_tiles = query_tile + own_bytes;
  const std::uint32_t value_tiles = key_tiles + 2 * tile_bytes;
  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * own_rows;
  const std::int64_t query_head = blockIdx.x;
  const std::int64_t key_head = query_head / shape.heads;
  const Element* keys = k + key_head * size;
  const Element* values = v + key_head * size;
  const int last_key = shape.causal ? min(positions, first_query + own_rows) : positions;  // none from here on
  const int tiles = (last_key + tile_rows - 1) / tile_rows;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_row = first_query + warp / 4 * group_rows;
  const int first_row = first_query + 16 * warp;  // of the warp

  allow_next();
  await_previous();
  const auto fetch = [&](int tile) {
    const auto stage = static_cast<std::uint32_t>(tile % 2 * tile_bytes);
    fetch_rows<Element, Halves, tile_rows>(key_tiles + stage, keys, strides.keys, tile * tile_rows, positions, size);
    fetch_rows<Element, Halves, tile_rows>(value_tiles + stage, values, strides.keys, tile * tile_rows, positions, size);
    end_of_copies();
  };
  fetch_rows<Element, Halves, own_rows>(query_tile, q + query_head * size, strides.queries, first_query, positions, size);
  fetch(0);

  GroupRows<Element, Halves, true> query;
  Sums result[Halves] = {};
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;
  for (int tile = 0; tile < tiles; ++tile) {
    await_copies();
    show_copies();
    __syncthreads();
    if (tile + 1 < tiles) {
      fetch(tile + 1);
    }
    if (tile == 0) {
      query.take(query_tile);
    }
    const int first_key = tile * tile_rows;
    if (shape.causal && first_key >= group_row + group_rows) {
      continue;  // beyond what the group's rows see
    }
    const auto stage = static_cast<std::uint32_t>(tile % 2 * tile_bytes);
    Sums scores;
    begin_products();
    query.multiply(scores, key_tiles + stage);
    end_products();
    await_products<0>();
    const bool at_edge = first_key + tile_rows > positions || (shape.causal && first_key + tile_rows > group_row + 1);
    float most[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (at_edge) {
          const int key = first_key + 8 * n + 2 * (lane % 4) + e % 2;
          const int row = first_row + lane / 4 + e / 2 * 8;
          if (key >= positions || (shape.causal && key > row)) {
            scores[n][e] = -INFINITY;
          }
        }
        most[e / 2] = fmaxf(most[e / 2], scores[n][e]);
      }
    }
    float offset[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 1));
      most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 2));
      const float kept = power_of_2((largest[half] - most[half]) * scale_2);
      largest[half] = most[half];
      offset[half] = most[half] * scale_2;
      total[half] *= kept;
#pragma unroll
      for (int n = 0; n < Halves * sum_tiles; ++n) {
        result[n / sum_tiles][n % sum_tiles][2 * half] *= kept;
        result[n / sum_tiles][n % sum_tiles][2 * half + 1] *= kept;
      }
    }
#pragma unroll
    for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[n][e] = power_of_2(scores[n][e] * scale_2 - offset[e / 2]);
        total[e / 2] += scores[n][e];
      }
    }
    Fragments shares;
    fragments_of<Element>(shares, scores);
    begin_products();
    add_rows<Element>(result, shares, value_tiles + stage);
    end_products();
    await_products<0>();
  }

  const std::int64_t rows_per_position = shape.samples * shape.groups * shape.heads;
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = total[half];
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    sum += __shfl_xor_sync(0xffffffffU, sum, 2);
    factor[half] = 1 / sum;
    const int position = first_row + lane / 4 + 8 * half;
    if (lane % 4 == 0 && position < positions) {
      lse[position * rows_per_position + query_head] = largest[half] * scale + logf(sum);
    }
  }
  store_sums(o + query_head * size, strides.queries, first_row, positions, size, result, factor[0], factor[1]);
}

constexpr int sum_bytes = tile_rows * static_cast<int>(sizeof(float2));
constexpr int backward_bytes(int halves) { return halves * (2 * half_own_bytes + 4 * half_tile_bytes) + 2 * sum_bytes + alignment; }

/// The two passes of attention_backward.cu.
template <typename Element, int Halves, bool OverKeys>
__global__ void __launch_bounds__(threads, 1)
    hopper_backward_kernel(const AttentionGradients given, const float2* row_sums, AttentionShape shape, Strides strides) {
  constexpr int tile_bytes = Halves * half_tile_bytes;
  constexpr int own_bytes = Halves * half_own_bytes;
  extern __shared__ unsigned char memory[];
  const std::uint32_t row_tile = (shared_address_of(memory) + alignment - 1) / alignment * alignment;  // of q, or k
  const std::uint32_t other_row_tile = row_tile + own_bytes;                                           // of dy, or v
  const std::uint32_t column_tiles = other_row_tile + own_bytes;                                       // of k, or q
  const std::uint32_t other_column_tiles = column_tiles + 2 * tile_bytes;                              // of v, or dy
  const std::uint32_t sum_pairs = other_column_tiles + 2 * tile_bytes;
  const auto* sums = reinterpret_cast<const float2*>(memory + (sum_pairs - shared_address_of(memory)));

  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int heads = static_cast<int>(shape.heads);
  const int row_block = static_cast<int>(OverKeys ? blockIdx.y : gridDim.y - 1 - blockIdx.y);
  const int block_row = row_block * own_rows;
  const std::int64_t key_head = OverKeys ? blockIdx.x : blockIdx.x / shape.heads;
  const std::int64_t query_head = OverKeys ? key_head * heads : blockIdx.x;  // the first one
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group_row = block_row + warp / 4 * group_rows;
  const int warp_row = block_row + 16 * warp;
  const auto* q = static_cast<const Element*>(given.q);
  const auto* dy = static_cast<const Element*>(given.dy);
  const auto* k = static_cast<const Element*>(given.k) + key_head * size;
  const auto* v = static_cast<const Element*>(given.v) + key_head * size;

  const int all_tiles = (positions + tile_rows - 1) / tile_rows;
  const int first_tile = OverKeys && shape.causal ? block_row / tile_rows : 0;
  const int last_tile = !OverKeys && shape.causal ? (min(positions, block_row + own_rows) + tile_rows - 1) / tile_rows : all_tiles;
  const int tiles = last_tile - first_tile;  // per head of queries
  const int rounds = OverKeys ? tiles * heads : tiles;

  allow_next();
  await_previous();
  const auto fetch = [&](int round) {
    const int first = (first_tile + round % tiles) * tile_rows;
    const auto stage = static_cast<std::uint32_t>(round % 2);
    const std::uint32_t to = column_tiles + stage * tile_bytes;
    const std::uint32_t other = other_column_tiles + stage * tile_bytes;
    if constexpr (OverKeys) {
      const std::int64_t head = query_head + round / tiles;
      fetch_rows<Element, Halves, tile_rows>(to, q + head * size, strides.queries, first, positions, size);
      fetch_rows<Element, Halves, tile_rows>(other, dy + head * size, strides.queries, first, positions, size);
      const int i = static_cast<int>(threadIdx.x);
      if (i < tile_rows) {
        const bool valid = first + i < positions;
        copy_pair(sum_pairs + stage * sum_bytes + static_cast<std::uint32_t>(i * static_cast<int>(sizeof(float2))),
                  row_sums + head * positions + (valid ? first + i : 0), valid);
      }
    } else {
      fetch_rows<Element, Halves, tile_rows>(to, k, strides.keys, first, positions, size);
      fetch_rows<Element, Halves, tile_rows>(other, v, strides.keys, first, positions, size);
    }
    end_of_copies();
  };
  const Element* own = OverKeys ? k : q + query_head * size;
  const Element* other_own = OverKeys ? v : dy + query_head * size;
  const std::int64_t own_stride = OverKeys ? strides.keys : strides.queries;
  fetch_rows<Element, Halves, own_rows>(row_tile, own, own_stride, block_row, positions, size);
  fetch_rows<Element, Halves, own_rows>(other_row_tile, other_own, own_stride, block_row, positions, size);
  fetch(0);

  float2 of_rows[2] = {};  // the rows l / 4 and l / 4 + 8
  if constexpr (!OverKeys) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = warp_row + lane / 4 + 8 * half;
      if (position < positions) {
        of_rows[half] = row_sums[query_head * positions + position];
      }
    }
  }
  constexpr bool in_registers = Halves == 1 || !OverKeys;
  GroupRows<Element, Halves, in_registers> row;
  GroupRows<Element, Halves, in_registers> other_row;
  Sums gradient[Halves] = {};                       // dq, or dk
  Sums value_gradient[OverKeys ? Halves : 1] = {};  // dv
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;
  for (int round = 0; round < rounds; ++round) {
    await_copies();
    show_copies();
    __syncthreads();
    if (round + 1 < rounds) {
      fetch(round + 1);
    }
    if (round == 0) {
      row.take(row_tile);
      other_row.take(other_row_tile);
    }
    const int first_column = (first_tile + round % tiles) * tile_rows;
    if (shape.causal && (OverKeys ? first_column + tile_rows <= group_row : first_column >= group_row + group_rows)) {
      continue;  // nothing of it is seen by the group's rows, or sees them
    }
    const auto stage = static_cast<std::uint32_t>(round % 2);
    const std::uint32_t columns = column_tiles + stage * tile_bytes;
    const std::uint32_t other_columns = other_column_tiles + stage * tile_bytes;
    Sums shares;  // first the scores, then what softmax makes of them
    Sums slopes;  // first the gradient of the shares, then that of the scores
    begin_products();
    row.multiply(shares, columns);
    end_products();
    other_row.multiply(slopes, other_columns);
    end_products();
    await_products<1>();
    const bool at_edge = OverKeys
                             ? shape.causal && first_column < group_row + group_rows - 1
                             : first_column + tile_rows > positions || (shape.causal && first_column + tile_rows > group_row + 1);
#pragma unroll
    for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int in_tile = 8 * n + 2 * (lane % 4) + e % 2;
        const float offset = OverKeys ? sums[static_cast<int>(stage) * tile_rows + in_tile].x : of_rows[e / 2].x;
        float exponent = shares[n][e] * scale_2 - offset;
        if (at_edge) {
          const int column = first_column + in_tile;
          const int own_position = warp_row + lane / 4 + e / 2 * 8;
          const int key = OverKeys ? own_position : column;
          const int query = OverKeys ? column : own_position;
          if (key >= positions || (shape.causal && key > query)) {
            exponent = -INFINITY;
          }
        }
        shares[n][e] = power_of_2(exponent);
      }
    }
    Fragments share;
    if constexpr (OverKeys) {
      fragments_of<Element>(share, shares);
      begin_products();
      add_rows<Element>(value_gradient, share, other_columns);
      end_products();
      await_products<1>();
    } else {
      await_products<0>();
    }
#pragma unroll
    for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int in_tile = 8 * n + 2 * (lane % 4) + e % 2;
        const float along = OverKeys ? sums[static_cast<int>(stage) * tile_rows + in_tile].y : of_rows[e / 2].y;
        slopes[n][e] = shares[n][e] * (slopes[n][e] - along);
      }
    }
    Fragments slope;
    fragments_of<Element>(slope, slopes);
    begin_products();
    add_rows<Element>(gradient, slope, columns);
    end_products();
    await_products<0>();
  }

  if constexpr (OverKeys) {
    store_sums(static_cast<Element*>(given.dk) + key_head * size, strides.keys, warp_row, positions, size, gradient, scale, scale);
    store_sums(static_cast<Element*>(given.dv) + key_head * size, strides.keys, warp_row, positions, size, value_gradient, 1.0F,
               1.0F);
  } else {
    store_sums(static_cast<Element*>(given.dq) + query_head * size, strides.queries, warp_row, positions, size, gradient, scale,
               scale);
  }
}

unsigned blocks_of(const AttentionShape& shape) { return static_cast<unsigned>((shape.positions + own_rows - 1) / own_rows); }

}  // namespace

template <typename Element>
void attention_by_groups(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                         cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(shape.samples * shape.groups * shape.heads);
  const int halves = shape.size <= half_size ? 1 : 2;
  launch(halves == 1 ? hopper_attention_kernel<Element, 1> : hopper_attention_kernel<Element, 2>,
         {dim3(heads, blocks_of(shape)), dim3(threads), forward_bytes(halves)}, stream, q, k, v, o, lse, shape, strides_of(shape));
}

template <typename Element>
void attention_backward_by_groups(const AttentionShape& shape, const AttentionGradients& operands, const float2* rows,
                                  cudaStream_t stream) {
  const auto key_heads = static_cast<unsigned>(shape.samples * shape.groups);
  const auto query_heads = static_cast<unsigned>(shape.samples * shape.groups * shape.heads);
  const int halves = shape.size <= half_size ? 1 : 2;
  launch(halves == 1 ? hopper_backward_kernel<Element, 1, true> : hopper_backward_kernel<Element, 2, true>,
         {dim3(key_heads, blocks_of(shape)), dim3(threads), backward_bytes(halves)}, stream, operands, rows, shape,
         strides_of(shape));
  launch(halves == 1 ? hopper_backward_kernel<Element, 1, false> : hopper_backward_kernel<Element, 2, false>,
         {dim3(query_heads, blocks_of(shape)), dim3(threads), backward_bytes(halves)}, stream, operands, rows, shape,
         strides_of(shape));
}

template void attention_by_groups(const AttentionShape&, const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                  __nv_bfloat16*, float*, cudaStream_t);
template void attention_by_groups(const AttentionShape&, const __half*, const __half*, const __half*, __half*, float*,
                                  cudaStream_t);
template void attention_backward_by_groups<__nv_bfloat16>(const AttentionShape&, const AttentionGradients&, const float2*,
                                                          cudaStream_t);
template void attention_backward_by_groups<__half>(const AttentionShape&, const AttentionGradients&, const float2*, cudaStream_t);

}  // namespace baton::cuda
