#include "baton/cuda/attention_tiles.cuh"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

/// `Blocks` blocks of 16 queries per warp.
template <typename Element, int Size, int Blocks, int Warps, int Keys>
struct Forward {
  using Tile = HeadTile<Element, Size>;
  static constexpr int threads = 32 * Warps;
  static constexpr int queries = 16 * Blocks * Warps;
  static constexpr int query_bytes = queries * Tile::row_bytes;
  static constexpr int key_bytes = Keys * Tile::row_bytes;
  static constexpr int shared_bytes = query_bytes + 4 * key_bytes;  // keys and values, two tiles each
};

/// One block per tile of queries of a head; the tiles with the most keys first.
template <typename Element, int Size, int Blocks, int Warps, int Keys>
__global__ void __launch_bounds__(32 * Warps) attention_kernel(const Element* q, const Element* k, const Element* v, Element* o,
                                                               float* lse, AttentionShape shape, Strides strides) {
  using Plan = Forward<Element, Size, Blocks, Warps, Keys>;
  using Tile = HeadTile<Element, Size>;
  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t query_tile = shared_address_of(memory);
  const std::uint32_t key_tiles = query_tile + Plan::query_bytes;
  const std::uint32_t value_tiles = key_tiles + 2 * Plan::key_bytes;

  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int first_query = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Plan::queries;
  const std::int64_t query_head = blockIdx.x;
  const std::int64_t key_head = query_head / shape.heads;
  const Element* keys = k + key_head * size;
  const Element* values = v + key_head * size;
  const int last_key = shape.causal ? min(positions, first_query + Plan::queries) : positions;  // none from here on
  const int tiles = (last_key + Keys - 1) / Keys;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = first_query + 16 * Blocks * warp;  // the first row of the warp

  allow_next();
  await_previous();
  const auto fetch = [&](int tile) {
    const auto stage = static_cast<std::uint32_t>(tile % 2 * Plan::key_bytes);
    Tile::template fetch<Keys, Plan::threads>(key_tiles + stage, keys, strides.keys, tile * Keys, positions, size);
    Tile::template fetch<Keys, Plan::threads>(value_tiles + stage, values, strides.keys, tile * Keys, positions, size);
    end_of_copies();
  };
  Tile::template fetch<Plan::queries, Plan::threads>(query_tile, q + query_head * size, strides.queries, first_query, positions,
                                                     size);
  fetch(0);

  std::uint32_t query[Blocks][Tile::steps][4];
  float result[Blocks][Size / 8][4] = {};
  float largest[Blocks][2];
  float total[Blocks][2] = {};
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
    largest[block][0] = largest[block][1] = -INFINITY;
  }
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;

  for (int tile = 0; tile < tiles; ++tile) {
    await_copies();
    __syncthreads();
    if (tile + 1 < tiles) {
      fetch(tile + 1);
    }
    if (tile == 0) {
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
#pragma unroll
        for (int step = 0; step < Tile::steps; ++step) {
          load_left<Element, Size>(query[block][step], query_tile, 16 * (Blocks * warp + block), step);
        }
      }
    }
    const int first_key = tile * Keys;
    if (shape.causal && first_key >= first_row + 16 * Blocks) {
      continue;  // beyond what the warp's rows see
    }
    const auto stage = static_cast<std::uint32_t>(tile % 2 * Plan::key_bytes);
    float scores[Blocks][Keys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
#pragma unroll
      for (int pair = 0; pair < Keys / 16; ++pair) {
        std::uint32_t right[4];
        load_right<Element, Size>(right, key_tiles + stage, 16 * pair, step);
#pragma unroll
        for (int block = 0; block < Blocks; ++block) {
          multiply_fragments<Element>(scores[block][2 * pair], query[block][step], right[0], right[1]);
          multiply_fragments<Element>(scores[block][2 * pair + 1], query[block][step], right[2], right[3]);
        }
      }
    }
    const bool at_edge = first_key + Keys > positions || (shape.causal && first_key + Keys > first_row + 1);
#pragma unroll
    for (int block = 0; block < Blocks; ++block) {
      float most[2] = {largest[block][0], largest[block][1]};
#pragma unroll
      for (int n = 0; n < Keys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (at_edge) {
            const int key = first_key + 8 * n + 2 * (lane % 4) + e % 2;
            const int row = first_row + 16 * block + lane / 4 + e / 2 * 8;
            if (key >= positions || (shape.causal && key > row)) {
              scores[block][n][e] = -INFINITY;
            }
          }
          most[e / 2] = fmaxf(most[e / 2], scores[block][n][e]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xffffffffU, most[half], 2));
        const float kept = power_of_2((largest[block][half] - most[half]) * scale_2);
        largest[block][half] = most[half];
        total[block][half] *= kept;
#pragma unroll
        for (int n = 0; n < Size / 8; ++n) {
          result[block][n][2 * half] *= kept;
          result[block][n][2 * half + 1] *= kept;
        }
      }
      const float offset[2] = {most[0] * scale_2, most[1] * scale_2};
#pragma unroll
      for (int n = 0; n < Keys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[block][n][e] = power_of_2(scores[block][n][e] * scale_2 - offset[e / 2]);
          total[block][e / 2] += scores[block][n][e];
        }
      }
    }
#pragma unroll
    for (int step = 0; step < steps_over<Element>(Keys); ++step) {
      std::uint32_t left[Blocks][4];
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        left_of<Element>(left[block], scores[block], step);
      }
#pragma unroll
      for (int pair = 0; pair < Size / 16; ++pair) {
        std::uint32_t right[4];
        load_turned<Element, Size>(right, value_tiles + stage, step, pair);
#pragma unroll
        for (int block = 0; block < Blocks; ++block) {
          multiply_fragments<Element>(result[block][2 * pair], left[block], right[0], right[1]);
          multiply_fragments<Element>(result[block][2 * pair + 1], left[block], right[2], right[3]);
        }
      }
    }
  }

  const std::int64_t rows_per_position = shape.samples * shape.groups * shape.heads;
#pragma unroll
  for (int block = 0; block < Blocks; ++block) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[block][half];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      factor[half] = 1 / sum;
      const int position = first_row + 16 * block + lane / 4 + 8 * half;
      if (lane % 4 == 0 && position < positions) {
        lse[position * rows_per_position + query_head] = largest[block][half] * scale + logf(sum);
      }
    }
    store_rows(o + query_head * size, strides.queries, first_row + 16 * block, positions, size, result[block], factor[0],
               factor[1]);
  }
}

template <typename Element, int Size, int Blocks, int Warps, int Keys>
void run(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
         cudaStream_t stream) {
  using Plan = Forward<Element, Size, Blocks, Warps, Keys>;
  const auto tiles = static_cast<unsigned>((shape.positions + Plan::queries - 1) / Plan::queries);
  launch(attention_kernel<Element, Size, Blocks, Warps, Keys>,
         {dim3(static_cast<unsigned>(shape.samples * shape.groups * shape.heads), tiles), dim3(Plan::threads), Plan::shared_bytes},
         stream, q, k, v, o, lse, shape, strides_of(shape));
}

}  // namespace

template <typename Element>
void attention_by_tiles(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                        cudaStream_t stream) {
  if constexpr (sizeof(Element) == 2) {
    if (shape.size <= 64) {
      run<Element, 64, 2, 4, 64>(shape, q, k, v, o, lse, stream);
    } else {
      run<Element, 128, 1, 8, 64>(shape, q, k, v, o, lse, stream);
    }
  } else if (shape.size <= 64) {
    run<Element, 64, 1, 8, 64>(shape, q, k, v, o, lse, stream);
  } else {
    run<Element, 128, 1, 8, 32>(shape, q, k, v, o, lse, stream);
  }
}

template void attention_by_tiles(const AttentionShape&, const float*, const float*, const float*, float*, float*, cudaStream_t);
template void attention_by_tiles(const AttentionShape&, const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                 __nv_bfloat16*, float*, cudaStream_t);
template void attention_by_tiles(const AttentionShape&, const __half*, const __half*, const __half*, __half*, float*, cudaStream_t);

}  // namespace baton::cuda
