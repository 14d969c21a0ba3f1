#include "baton/exec/backend/cuda/attention_tiles.cuh"
#include "baton/exec/backend/cuda/programmatic.cuh"

/// Attention of 16 bits by the products that Hopper's warp groups have: four warps multiply 64 rows in their registers by a tile in
/// shared memory, while they do other work. Built for compute capability 9.0 alone, which the instructions need. Heads of at most
/// 64 elements, whose rows are then the 128 bytes that the tensor cores read at once.
namespace baton::exec::cuda {
namespace {

constexpr int head_size = 64;
constexpr int tile_rows = 64;  // keys or queries per tile that goes by
constexpr int group_rows = 64;
constexpr int group_threads = 128;
constexpr int groups = 2;  // of warps, per block
constexpr int threads = groups * group_threads;
constexpr int own_rows = groups * group_rows;  // of a block
constexpr int steps = head_size / 16;          // of a product over the head, and over a tile's rows
constexpr int sum_tiles = head_size / 8;
constexpr int row_bytes = 128;
constexpr int tile_bytes = tile_rows * row_bytes;
constexpr int own_bytes = own_rows * row_bytes;
constexpr int alignment = 1024;  // of tiles: the tensor cores permute the chunks of 8 rows by their addresses

/// A tile as a product's right operand: rows of 128 bytes, their chunks permuted, groups of 8 rows 1024 bytes apart.
__device__ std::uint64_t described(std::uint32_t address) {
  constexpr std::uint64_t permuted_by_128 = 1;
  return static_cast<std::uint64_t>((address & 0x3ffffU) >> 4) | std::uint64_t{1} << 16 | std::uint64_t{alignment >> 4} << 32 |
         permuted_by_128 << 62;
}
/// Its columns are the tile's rows, and step `step` has 16 elements of the head.
__device__ std::uint64_t over_head(std::uint32_t tile, int step) { return described(tile + static_cast<std::uint32_t>(32 * step)); }
/// Its columns are the head's elements, and step `step` has 16 rows of the tile.
__device__ std::uint64_t over_rows(std::uint32_t tile, int step) {
  return described(tile + static_cast<std::uint32_t>(16 * row_bytes * step));
}

/// Before products whose registers were written by other instructions.
__device__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Returns when all but the last `Pending` groups of products are done.
template <int Pending>
__device__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// What was copied to shared memory is seen by products after the next barrier.
__device__ void show_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// 64 × 64 sums of a warp group, as `multiply_fragments` has them of a warp; added to those that are there, or not. `Turned`: the
/// right operand is `over_rows`.
template <typename Element, bool Turned>
__device__ void multiply_group(float (&s)[sum_tiles][4], const std::uint32_t (&left)[4], std::uint64_t right, bool add) {
#define BATON_ROW(i) "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3])
#define BATON_MULTIPLY(types)                                                                                               \
  asm volatile(                                                                                                             \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"                                                                      \
      "wgmma.mma_async.sync.aligned.m64n64k16." types                                                                       \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"    \
      "%30,%31}, {%32,%33,%34,%35}, %36, add, 1, 1, %38;\n}"                                                                \
      : BATON_ROW(0), BATON_ROW(1), BATON_ROW(2), BATON_ROW(3), BATON_ROW(4), BATON_ROW(5), BATON_ROW(6), BATON_ROW(7)      \
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)), "n"(Turned ? 1 : 0) \
      : "memory")
  if constexpr (std::is_same_v<Element, __half>) {
    BATON_MULTIPLY("f32.f16.f16");
  } else {
    BATON_MULTIPLY("f32.bf16.bf16");
  }
#undef BATON_MULTIPLY
#undef BATON_ROW
}

template <typename Element, bool Turned>
__device__ void multiply_steps(float (&sums)[sum_tiles][4], const std::uint32_t (&left)[steps][4], std::uint32_t tile, bool add) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    multiply_group<Element, Turned>(sums, left[step], Turned ? over_rows(tile, step) : over_head(tile, step), add || step > 0);
  }
}

template <typename Element>
__device__ void fragments_of(std::uint32_t (&left)[steps][4], const float (&sums)[sum_tiles][4]) {
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    left_of<Element>(left[step], sums, step);
  }
}

constexpr int forward_bytes = own_bytes + 4 * tile_bytes + alignment;

/// One block per tile of queries of a head; the tiles with the most keys first.
template <typename Element>
__global__ void __launch_bounds__(threads, 2)
    hopper_attention_kernel(const Element* q, const Element* k, const Element* v, Element* o, float* lse, AttentionShape shape,
                            Strides strides) {
  using Tile = HeadTile<Element, head_size>;
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
    Tile::template fetch<tile_rows, threads>(key_tiles + stage, keys, strides.keys, tile * tile_rows, positions, size);
    Tile::template fetch<tile_rows, threads>(value_tiles + stage, values, strides.keys, tile * tile_rows, positions, size);
    end_of_copies();
  };
  Tile::template fetch<own_rows, threads>(query_tile, q + query_head * size, strides.queries, first_query, positions, size);
  fetch(0);

  std::uint32_t query[steps][4];
  float result[sum_tiles][4] = {};
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
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        load_left<Element, head_size>(query[step], query_tile, 16 * warp, step);
      }
    }
    const int first_key = tile * tile_rows;
    if (shape.causal && first_key >= group_row + group_rows) {
      continue;  // beyond what the group's rows see
    }
    const auto stage = static_cast<std::uint32_t>(tile % 2 * tile_bytes);
    float scores[sum_tiles][4];
    begin_products();
    multiply_steps<Element, false>(scores, query, key_tiles + stage, false);
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
      for (int n = 0; n < sum_tiles; ++n) {
        result[n][2 * half] *= kept;
        result[n][2 * half + 1] *= kept;
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
    std::uint32_t shares[steps][4];
    fragments_of<Element>(shares, scores);
    begin_products();
    multiply_steps<Element, true>(result, shares, value_tiles + stage, true);
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
  store_rows(o + query_head * size, strides.queries, first_row, positions, size, result, factor[0], factor[1]);
}

constexpr int sum_bytes = tile_rows * static_cast<int>(sizeof(float2));
constexpr int backward_bytes = 2 * own_bytes + 4 * tile_bytes + 2 * sum_bytes + alignment;

/// The two passes of attention_backward.cu.
template <typename Element, bool OverKeys>
__global__ void __launch_bounds__(threads, 1)
    hopper_backward_kernel(const AttentionGradients given, const float2* row_sums, AttentionShape shape, Strides strides) {
  using Tile = HeadTile<Element, head_size>;
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
      Tile::template fetch<tile_rows, threads>(to, q + head * size, strides.queries, first, positions, size);
      Tile::template fetch<tile_rows, threads>(other, dy + head * size, strides.queries, first, positions, size);
      const int i = static_cast<int>(threadIdx.x);
      if (i < tile_rows) {
        const bool valid = first + i < positions;
        copy_pair(sum_pairs + stage * sum_bytes + static_cast<std::uint32_t>(i * static_cast<int>(sizeof(float2))),
                  row_sums + head * positions + (valid ? first + i : 0), valid);
      }
    } else {
      Tile::template fetch<tile_rows, threads>(to, k, strides.keys, first, positions, size);
      Tile::template fetch<tile_rows, threads>(other, v, strides.keys, first, positions, size);
    }
    end_of_copies();
  };
  const Element* own = OverKeys ? k : q + query_head * size;
  const Element* other_own = OverKeys ? v : dy + query_head * size;
  const std::int64_t own_stride = OverKeys ? strides.keys : strides.queries;
  Tile::template fetch<own_rows, threads>(row_tile, own, own_stride, block_row, positions, size);
  Tile::template fetch<own_rows, threads>(other_row_tile, other_own, own_stride, block_row, positions, size);
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
  std::uint32_t row[steps][4];
  std::uint32_t other_row[steps][4];
  float gradient[sum_tiles][4] = {};                       // dq, or dk
  float value_gradient[OverKeys ? sum_tiles : 1][4] = {};  // dv
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
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        load_left<Element, head_size>(row[step], row_tile, 16 * warp, step);
        load_left<Element, head_size>(other_row[step], other_row_tile, 16 * warp, step);
      }
    }
    const int first_column = (first_tile + round % tiles) * tile_rows;
    if (shape.causal && (OverKeys ? first_column + tile_rows <= group_row : first_column >= group_row + group_rows)) {
      continue;  // nothing of it is seen by the group's rows, or sees them
    }
    const auto stage = static_cast<std::uint32_t>(round % 2);
    const std::uint32_t columns = column_tiles + stage * tile_bytes;
    const std::uint32_t other_columns = other_column_tiles + stage * tile_bytes;
    float shares[sum_tiles][4];  // first the scores, then what softmax makes of them
    float slopes[sum_tiles][4];  // first the gradient of the shares, then that of the scores
    begin_products();
    multiply_steps<Element, false>(shares, row, columns, false);
    end_products();
    multiply_steps<Element, false>(slopes, other_row, other_columns, false);
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
    std::uint32_t left[steps][4];
    if constexpr (OverKeys) {
      fragments_of<Element>(left, shares);
      begin_products();
      multiply_steps<Element, true>(value_gradient, left, other_columns, true);
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
    std::uint32_t slope[steps][4];
    fragments_of<Element>(slope, slopes);
    begin_products();
    multiply_steps<Element, true>(gradient, slope, columns, true);
    end_products();
    await_products<0>();
  }

  if constexpr (OverKeys) {
    store_rows(static_cast<Element*>(given.dk) + key_head * size, strides.keys, warp_row, positions, size, gradient, scale, scale);
    store_rows(static_cast<Element*>(given.dv) + key_head * size, strides.keys, warp_row, positions, size, value_gradient, 1.0F,
               1.0F);
  } else {
    store_rows(static_cast<Element*>(given.dq) + query_head * size, strides.queries, warp_row, positions, size, gradient, scale,
               scale);
  }
}

unsigned blocks_of(const AttentionShape& shape) { return static_cast<unsigned>((shape.positions + own_rows - 1) / own_rows); }

}  // namespace

template <typename Element>
void attention_by_groups(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                         cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(shape.samples * shape.groups * shape.heads);
  launch(hopper_attention_kernel<Element>, {dim3(heads, blocks_of(shape)), dim3(threads), forward_bytes}, stream, q, k, v, o, lse,
         shape, strides_of(shape));
}

template <typename Element>
void attention_backward_by_groups(const AttentionShape& shape, const AttentionGradients& operands, const float2* rows,
                                  cudaStream_t stream) {
  const auto key_heads = static_cast<unsigned>(shape.samples * shape.groups);
  const auto query_heads = static_cast<unsigned>(shape.samples * shape.groups * shape.heads);
  launch(hopper_backward_kernel<Element, true>, {dim3(key_heads, blocks_of(shape)), dim3(threads), backward_bytes}, stream,
         operands, rows, shape, strides_of(shape));
  launch(hopper_backward_kernel<Element, false>, {dim3(query_heads, blocks_of(shape)), dim3(threads), backward_bytes}, stream,
         operands, rows, shape, strides_of(shape));
}

template void attention_by_groups(const AttentionShape&, const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                  __nv_bfloat16*, float*, cudaStream_t);
template void attention_by_groups(const AttentionShape&, const __half*, const __half*, const __half*, __half*, float*,
                                  cudaStream_t);
template void attention_backward_by_groups<__nv_bfloat16>(const AttentionShape&, const AttentionGradients&, const float2*,
                                                          cudaStream_t);
template void attention_backward_by_groups<__half>(const AttentionShape&, const AttentionGradients&, const float2*, cudaStream_t);

}  // namespace baton::exec::cuda
