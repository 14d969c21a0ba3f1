#include "baton/cuda/attention_tiles.cuh"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

/// A block has a tile of rows, and tiles of columns go by. The pass over queries has rows of q and dy and columns of k and v; it
/// writes dq. The pass over keys has it the other way round, so its scores are turned, and it writes dk and dv. Each warp has 16
/// rows.
template <typename Element, int Size, int Warps, int Columns>
struct Backward {
  using Tile = HeadTile<Element, Size>;
  static constexpr int threads = 32 * Warps;
  static constexpr int rows = 16 * Warps;
  static constexpr int row_bytes = rows * Tile::row_bytes;
  static constexpr int column_bytes = Columns * Tile::row_bytes;
  static constexpr int sum_bytes = Columns * static_cast<int>(sizeof(float2));
  static constexpr int shared_bytes = 2 * row_bytes + 4 * column_bytes + 2 * sum_bytes;
  static constexpr bool keeps_rows = Size * sizeof(Element) <= 128;  // in registers
};

template <typename Element>
struct BackwardOperands {
  const Element* q;
  const Element* k;
  const Element* v;
  const Element* dy;
  const float2* rows;
  Element* dq;
  Element* dk;
  Element* dv;
};

template <typename Element, int Size, int Warps, int Columns, bool OverKeys>
__global__ void __launch_bounds__(32 * Warps)
    attention_backward_kernel(const BackwardOperands<Element> operands, AttentionShape shape, Strides strides) {
  using Plan = Backward<Element, Size, Warps, Columns>;
  using Tile = HeadTile<Element, Size>;
  extern __shared__ __align__(128) unsigned char memory[];
  const std::uint32_t row_tile = shared_address_of(memory);                        // the tile of q, or k
  const std::uint32_t other_row_tile = row_tile + Plan::row_bytes;                 // the tile of dy, or v
  const std::uint32_t column_tiles = other_row_tile + Plan::row_bytes;             // the tiles of k, or q
  const std::uint32_t other_column_tiles = column_tiles + 2 * Plan::column_bytes;  // the tiles of v, or dy
  const std::uint32_t sum_tiles = other_column_tiles + 2 * Plan::column_bytes;
  const auto* sums = reinterpret_cast<const float2*>(memory + (sum_tiles - row_tile));

  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int heads = static_cast<int>(shape.heads);
  // The longest ones first: the last queries see the most keys, and the first keys are seen by the most queries.
  const int row_block = static_cast<int>(OverKeys ? blockIdx.y : gridDim.y - 1 - blockIdx.y);
  const int first_row = row_block * Plan::rows;
  const std::int64_t key_head = OverKeys ? blockIdx.x : blockIdx.x / shape.heads;
  const std::int64_t query_head = OverKeys ? key_head * heads : blockIdx.x;  // the first one
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = first_row + 16 * warp;

  const int all_tiles = (positions + Columns - 1) / Columns;
  const int first_tile = OverKeys && shape.causal ? first_row / Columns : 0;
  const int last_tile = !OverKeys && shape.causal ? (min(positions, first_row + Plan::rows) + Columns - 1) / Columns : all_tiles;
  const int tiles = last_tile - first_tile;  // per head of queries
  const int rounds = OverKeys ? tiles * heads : tiles;

  allow_next();
  await_previous();
  const auto fetch = [&](int round) {
    const int first = (first_tile + round % tiles) * Columns;
    const auto stage = static_cast<std::uint32_t>(round % 2);
    const std::uint32_t to = column_tiles + stage * Plan::column_bytes;
    const std::uint32_t other = other_column_tiles + stage * Plan::column_bytes;
    if constexpr (OverKeys) {
      const std::int64_t head = query_head + round / tiles;
      Tile::template fetch<Columns, Plan::threads>(to, operands.q + head * size, strides.queries, first, positions, size);
      Tile::template fetch<Columns, Plan::threads>(other, operands.dy + head * size, strides.queries, first, positions, size);
      for (int i = static_cast<int>(threadIdx.x); i < Columns; i += Plan::threads) {
        const bool valid = first + i < positions;
        copy_pair(sum_tiles + stage * Plan::sum_bytes + static_cast<std::uint32_t>(i * static_cast<int>(sizeof(float2))),
                  operands.rows + head * strides.row_sums + (valid ? first + i : 0), valid);
      }
    } else {
      Tile::template fetch<Columns, Plan::threads>(to, operands.k + key_head * size, strides.keys, first, positions, size);
      Tile::template fetch<Columns, Plan::threads>(other, operands.v + key_head * size, strides.keys, first, positions, size);
    }
    end_of_copies();
  };
  const Element* own = OverKeys ? operands.k + key_head * size : operands.q + query_head * size;
  const Element* other_own = OverKeys ? operands.v + key_head * size : operands.dy + query_head * size;
  const std::int64_t own_stride = OverKeys ? strides.keys : strides.queries;
  Tile::template fetch<Plan::rows, Plan::threads>(row_tile, own, own_stride, first_row, positions, size);
  Tile::template fetch<Plan::rows, Plan::threads>(other_row_tile, other_own, own_stride, first_row, positions, size);
  fetch(0);

  float2 row_sums[2] = {};  // the sums of the rows l / 4 and l / 4 + 8
  if constexpr (!OverKeys) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = warp_row + lane / 4 + 8 * half;
      if (position < positions) {
        row_sums[half] = operands.rows[query_head * strides.row_sums + position];
      }
    }
  }
  constexpr int kept_steps = Plan::keeps_rows ? Tile::steps : 1;
  std::uint32_t kept_row[kept_steps][4];
  std::uint32_t kept_other[kept_steps][4];
  float gradient[Size / 8][4] = {};                       // dq, or dk
  float value_gradient[OverKeys ? Size / 8 : 1][4] = {};  // dv
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;

  for (int round = 0; round < rounds; ++round) {
    await_copies();
    __syncthreads();
    if (round + 1 < rounds) {
      fetch(round + 1);
    }
    if constexpr (Plan::keeps_rows) {
      if (round == 0) {
#pragma unroll
        for (int step = 0; step < Tile::steps; ++step) {
          load_left<Element, Size>(kept_row[step], row_tile, 16 * warp, step);
          load_left<Element, Size>(kept_other[step], other_row_tile, 16 * warp, step);
        }
      }
    }
    const int first_column = (first_tile + round % tiles) * Columns;
    if (shape.causal && (OverKeys ? first_column + Columns <= warp_row : first_column >= warp_row + 16)) {
      continue;  // nothing of it is seen by the warp's rows, or sees them
    }
    const auto stage = static_cast<std::uint32_t>(round % 2);
    const std::uint32_t columns = column_tiles + stage * Plan::column_bytes;
    const std::uint32_t other_columns = other_column_tiles + stage * Plan::column_bytes;
    float shares[Columns / 8][4] = {};  // first the scores, then what softmax makes of them
    float slopes[Columns / 8][4] = {};  // first the gradient of the shares, then that of the scores
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
      std::uint32_t row[4];
      std::uint32_t other_row[4];
      if constexpr (Plan::keeps_rows) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          row[i] = kept_row[step][i];
          other_row[i] = kept_other[step][i];
        }
      } else {
        load_left<Element, Size>(row, row_tile, 16 * warp, step);
        load_left<Element, Size>(other_row, other_row_tile, 16 * warp, step);
      }
#pragma unroll
      for (int pair = 0; pair < Columns / 16; ++pair) {
        std::uint32_t right[4];
        load_right<Element, Size>(right, columns, 16 * pair, step);
        multiply_fragments<Element>(shares[2 * pair], row, right[0], right[1]);
        multiply_fragments<Element>(shares[2 * pair + 1], row, right[2], right[3]);
        load_right<Element, Size>(right, other_columns, 16 * pair, step);
        multiply_fragments<Element>(slopes[2 * pair], other_row, right[0], right[1]);
        multiply_fragments<Element>(slopes[2 * pair + 1], other_row, right[2], right[3]);
      }
    }
    const bool at_edge = OverKeys ? shape.causal && first_column < warp_row + 15
                                  : first_column + Columns > positions || (shape.causal && first_column + Columns > warp_row + 1);
#pragma unroll
    for (int n = 0; n < Columns / 8; ++n) {
      float2 column_sums[2] = {};
      if constexpr (OverKeys) {
        column_sums[0] = sums[static_cast<int>(stage) * Columns + 8 * n + 2 * (lane % 4)];
        column_sums[1] = sums[static_cast<int>(stage) * Columns + 8 * n + 2 * (lane % 4) + 1];
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 of_row = OverKeys ? column_sums[e % 2] : row_sums[e / 2];
        float exponent = shares[n][e] * scale_2 - of_row.x;
        if (at_edge) {
          const int column = first_column + 8 * n + 2 * (lane % 4) + e % 2;
          const int row = warp_row + lane / 4 + e / 2 * 8;
          const int key = OverKeys ? row : column;
          const int query = OverKeys ? column : row;
          if (key >= positions || (shape.causal && key > query)) {
            exponent = -INFINITY;
          }
        }
        shares[n][e] = power_of_2(exponent);
        slopes[n][e] = shares[n][e] * (slopes[n][e] - of_row.y);
      }
    }
#pragma unroll
    for (int step = 0; step < steps_over<Element>(Columns); ++step) {
      std::uint32_t slope[4];
      left_of<Element>(slope, slopes, step);
      std::uint32_t share[4];
      if constexpr (OverKeys) {
        left_of<Element>(share, shares, step);
      }
#pragma unroll
      for (int pair = 0; pair < Size / 16; ++pair) {
        std::uint32_t right[4];
        load_turned<Element, Size>(right, columns, step, pair);
        multiply_fragments<Element>(gradient[2 * pair], slope, right[0], right[1]);
        multiply_fragments<Element>(gradient[2 * pair + 1], slope, right[2], right[3]);
        if constexpr (OverKeys) {
          load_turned<Element, Size>(right, other_columns, step, pair);
          multiply_fragments<Element>(value_gradient[2 * pair], share, right[0], right[1]);
          multiply_fragments<Element>(value_gradient[2 * pair + 1], share, right[2], right[3]);
        }
      }
    }
  }

  if constexpr (OverKeys) {
    store_rows(operands.dk + key_head * size, strides.keys, warp_row, positions, size, gradient, scale, scale);
    store_rows(operands.dv + key_head * size, strides.keys, warp_row, positions, size, value_gradient, 1.0F, 1.0F);
  } else {
    store_rows(operands.dq + query_head * size, strides.queries, warp_row, positions, size, gradient, scale, scale);
  }
}

template <typename Element, int Size, int Warps, int Columns>
void run(const AttentionShape& shape, const BackwardOperands<Element>& operands, cudaStream_t stream) {
  using Plan = Backward<Element, Size, Warps, Columns>;
  const auto tiles = static_cast<unsigned>((shape.positions + Plan::rows - 1) / Plan::rows);
  const auto key_heads = static_cast<unsigned>(shape.samples * shape.groups);
  const auto query_heads = static_cast<unsigned>(shape.samples * shape.groups * shape.heads);
  launch(attention_backward_kernel<Element, Size, Warps, Columns, true>,
         {dim3(key_heads, tiles), dim3(Plan::threads), Plan::shared_bytes}, stream, operands, shape, strides_of(shape));
  launch(attention_backward_kernel<Element, Size, Warps, Columns, false>,
         {dim3(query_heads, tiles), dim3(Plan::threads), Plan::shared_bytes}, stream, operands, shape, strides_of(shape));
}

}  // namespace

template <typename Element>
void attention_backward_by_tiles(const AttentionShape& shape, const AttentionGradients& given, const float2* rows,
                                 cudaStream_t stream) {
  const BackwardOperands<Element> operands{static_cast<const Element*>(given.q),
                                           static_cast<const Element*>(given.k),
                                           static_cast<const Element*>(given.v),
                                           static_cast<const Element*>(given.dy),
                                           rows,
                                           static_cast<Element*>(given.dq),
                                           static_cast<Element*>(given.dk),
                                           static_cast<Element*>(given.dv)};
  if (shape.size <= 64) {
    run<Element, 64, 4, 64>(shape, operands, stream);
  } else {
    run<Element, 128, 4, 32>(shape, operands, stream);
  }
}

template void attention_backward_by_tiles<float>(const AttentionShape&, const AttentionGradients&, const float2*, cudaStream_t);
template void attention_backward_by_tiles<__nv_bfloat16>(const AttentionShape&, const AttentionGradients&, const float2*,
                                                         cudaStream_t);
template void attention_backward_by_tiles<__half>(const AttentionShape&, const AttentionGradients&, const float2*, cudaStream_t);

}  // namespace baton::cuda
