#include <cuda.h>

#include "baton/cuda/attention_groups.cuh"
#include "baton/cuda/programmatic.cuh"

/// Attention of 16 bits by the products of warp groups. Built for compute capability 9.0 alone, which the instructions need.
namespace baton::cuda {
namespace {

constexpr int threads = groups * group_threads;

template <int Halves>
struct Memory {
  static constexpr int stages = 4;
  /// Tiles that are copied before they are needed. The slower group may be this number of tiles later than the faster one.
  static constexpr int ahead = 2;
  static constexpr int own_bytes = Halves * half_own_bytes;
  static constexpr int tile_bytes = Halves * half_tile_bytes;
  static constexpr int barriers = 2 * stages + 1;
  static constexpr int bytes = own_bytes + stages * 2 * tile_bytes + barriers * barrier_bytes + alignment;

  std::uint32_t base;

  __device__ std::uint32_t queries() const { return base; }
  __device__ std::uint32_t keys(int stage) const { return base + static_cast<std::uint32_t>(own_bytes + stage * 2 * tile_bytes); }
  __device__ std::uint32_t values(int stage) const { return keys(stage) + tile_bytes; }
  __device__ std::uint32_t barrier(int i) const { return keys(stages) + static_cast<std::uint32_t>(i * barrier_bytes); }
  __device__ std::uint32_t filled(int stage) const { return barrier(stage); }
  __device__ std::uint32_t emptied(int stage) const { return barrier(stages + stage); }
  __device__ std::uint32_t queries_filled() const { return barrier(2 * stages); }
};

/// Sums keep their scale until a score is larger by this number of powers of two.
constexpr float tolerated_growth = 8;

/// One block per tile of queries of a head; of the heads that are taken at once, the tiles with the most keys first.
template <typename Element, int Halves>
__global__ void __launch_bounds__(threads, Halves == 1 ? 2 : 1)
    hopper_attention_kernel(const __grid_constant__ Tensors tensors, Element* o, float* lse, const AttentionShape shape,
                            const Strides strides, const TileOrder order) {
  using M = Memory<Halves>;
  extern __shared__ unsigned char shared[];
  const M memory{(shared_address_of(shared) + alignment - 1) / alignment * alignment};
  const int positions = static_cast<int>(shape.positions);
  const int size = static_cast<int>(shape.size);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = __shfl_sync(0xffffffffU, warp / 4, 0);  // known to be the same for all lanes
  int query_head = 0;
  int row_block = 0;
  order.find(static_cast<int>(blockIdx.x), query_head, row_block);
  const int first_query = (order.row_blocks - 1 - row_block) * own_rows;
  const int key_head = query_head / static_cast<int>(shape.heads);
  const int group_row = first_query + group * group_rows;
  const int first_row = first_query + 16 * warp;  // the first row of the warp
  const auto tiles_before = [&](int key) { return (min(positions, key) + tile_rows - 1) / tile_rows; };
  const int tiles = tiles_before(shape.causal ? first_query + own_rows : positions);
  const int group_tiles = tiles_before(shape.causal ? group_row + group_rows : positions);

  const auto copy_tile = [&](int tile) {
    const int stage = tile % M::stages;
    arrive_and_announce(memory.filled(stage), 2 * M::tile_bytes);
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
      const auto at = static_cast<std::uint32_t>(half * half_tile_bytes);
      copy_box(memory.keys(stage) + at, tensors.passing, half * half_size, key_head, tile * tile_rows, memory.filled(stage));
      copy_box(memory.values(stage) + at, tensors.other_passing, half * half_size, key_head, tile * tile_rows,
               memory.filled(stage));
    }
  };
  const bool copies = threadIdx.x == 0;
  if (copies) {
    for (int stage = 0; stage < M::stages; ++stage) {
      create_barrier(memory.filled(stage), 1);
      create_barrier(memory.emptied(stage), multiplying_warps);
    }
    create_barrier(memory.queries_filled(), 1);
    show_barriers();
  }
  __syncthreads();
  allow_next();
  await_previous();
  if (copies) {
    arrive_and_announce(memory.queries_filled(), M::own_bytes);
#pragma unroll
    for (int box = 0; box < Halves * groups; ++box) {
      copy_box(memory.queries() + box * half_tile_bytes, tensors.own, box / groups * half_size, query_head,
               first_query + box % groups * group_rows, memory.queries_filled());
    }
    for (int tile = 0; tile < min(tiles, M::ahead); ++tile) {
      copy_tile(tile);
    }
  }
  GroupRows<Element, Halves, true> query;
  await_phase(memory.queries_filled(), 0);
  query.take(memory.queries());

  Sums result[Halves] = {};
  Sums scores;
  Fragments shares;
  float largest[2] = {-INFINITY, -INFINITY};  // in powers of two, as of the last time that sums were scaled
  float total[2] = {};
  const float scale = rsqrtf(static_cast<float>(size));
  const float scale_2 = scale * log2_e;
  float kept[2];
  /// Scores become shares of softmax, but for a factor that a row has for all. True if earlier sums must be scaled for it.
  const auto take_shares = [&](int tile) {
    const int first_key = tile * tile_rows;
    if (first_key + tile_rows > positions || (shape.causal && first_key == group_row)) {
#pragma unroll
      for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = first_key + 8 * n + 2 * (lane % 4) + e % 2;
          const int row = first_row + lane / 4 + e / 2 * 8;
          if (key >= positions || (shape.causal && key > row)) {
            scores[n][e] = -INFINITY;
          }
        }
      }
    }
    bool scaled = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = scores[0][2 * half];
#pragma unroll
      for (int n = 0; n < sum_tiles; ++n) {
        most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2)) * scale_2;
      const bool grown = most > largest[half] + tolerated_growth;
      kept[half] = grown ? power_of_2(largest[half] - most) : 1.0F;
      largest[half] = grown ? most : largest[half];
      total[half] *= kept[half];
      scaled |= grown;
    }
#pragma unroll
    for (int n = 0; n < sum_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[n][e] = power_of_2(scores[n][e] * scale_2 - largest[e / 2]);
        total[e / 2] += scores[n][e];
      }
    }
    return __any_sync(0xffffffffU, scaled) != 0;
  };
  const auto enter = [&](int tile) {
    if (copies && tile + M::ahead < tiles) {
      if (tile + M::ahead >= M::stages) {
        await_phase(memory.emptied((tile + M::ahead) % M::stages), ((tile + M::ahead) / M::stages + 1) % 2);
      }
      copy_tile(tile + M::ahead);
    }
    await_phase(memory.filled(tile % M::stages), tile / M::stages % 2);
  };

  enter(0);
  begin_products();
  query.multiply(scores, memory.keys(0));
  end_products();
  await_products<0>();
  settle(scores);
  take_shares(0);
  fragments_of<Element>(shares, scores);
  for (int tile = 1; tile < group_tiles; ++tile) {
    enter(tile);
    begin_products();
    query.multiply(scores, memory.keys(tile % M::stages));
    end_products();
    add_rows<Element>(result, shares, memory.values((tile - 1) % M::stages));
    end_products();
    await_products<1>();
    settle(scores);
    const bool scaled = take_shares(tile);
    finish_first(__float_as_int(total[0]) | __float_as_int(total[1]));
    await_products<0>();
#pragma unroll
    for (int half = 0; half < Halves; ++half) {
      settle(result[half]);
    }
    __syncwarp();
    if (lane == 0) {
      arrive(memory.emptied((tile - 1) % M::stages));
    }
    if (scaled) {
#pragma unroll
      for (int n = 0; n < Halves * sum_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          result[n / sum_tiles][n % sum_tiles][e] *= kept[e / 2];
        }
      }
    }
    fragments_of<Element>(shares, scores);
  }
  begin_products();
  add_rows<Element>(result, shares, memory.values((group_tiles - 1) % M::stages));
  end_products();
  await_products<0>();
#pragma unroll
  for (int half = 0; half < Halves; ++half) {
    settle(result[half]);
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
      lse[position * rows_per_position + query_head] = largest[half] / log2_e + logf(sum);
    }
  }
  store_sums(o + static_cast<std::int64_t>(query_head) * size, strides.queries, first_row, positions, size, result, factor[0],
             factor[1]);
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned version = 12000;  // in which it came
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, version, cudaEnableDefault, &result),
          "asking the driver how boxes are copied");
  return reinterpret_cast<Encode>(address);
}

}  // namespace

CUtensorMap Boxes::of(const void* data, std::int64_t heads) const {
  static const Encode encode = find_encode();
  const auto head_bytes = static_cast<cuuint64_t>(shape_.size * size_of(type_));
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(shape_.size), static_cast<cuuint64_t>(heads),
                                static_cast<cuuint64_t>(shape_.positions)};
  const cuuint64_t distances[] = {head_bytes, head_bytes * static_cast<cuuint64_t>(heads)};
  const cuuint32_t box[] = {half_size, 1, tile_rows};
  const cuuint32_t every[] = {1, 1, 1};
  CUtensorMap map{};
  require(encode(&map, type_ == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
                 const_cast<void*>(data), extents, distances, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
          "describing tensors of attention");
  return map;
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  require(cudaGetDevice(&device), "selecting a GPU");
  require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "asking for multiprocessors");
  return count;
}

template <typename Element>
void attention_by_groups(const AttentionShape& shape, const Element* q, const Element* k, const Element* v, Element* o, float* lse,
                         cudaStream_t stream) {
  const TileOrder order = order_of(shape, shape.samples * shape.groups * shape.heads, shape.heads, multiprocessors());
  const bool short_heads = shape.size <= half_size;
  const Boxes boxes(shape, std::is_same_v<Element, __half> ? DType::f16 : DType::bf16);
  const CUtensorMap queries = boxes.of_queries(q);
  launch(short_heads ? hopper_attention_kernel<Element, 1> : hopper_attention_kernel<Element, 2>,
         {dim3(static_cast<unsigned>(order.items())), dim3(threads), short_heads ? Memory<1>::bytes : Memory<2>::bytes}, stream,
         Tensors{queries, queries, boxes.of_keys(k), boxes.of_keys(v), queries}, o, lse, shape, strides_of(shape), order);
}

template void attention_by_groups(const AttentionShape&, const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                  __nv_bfloat16*, float*, cudaStream_t);
template void attention_by_groups(const AttentionShape&, const __half*, const __half*, const __half*, __half*, float*,
                                  cudaStream_t);

}  // namespace baton::cuda
