#include <algorithm>

#include "baton/cuda/few_rows.h"
#include "baton/cuda/programmatic.cuh"
#include "baton/cuda/tiles.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int depth = 32;  // the depth of a stage: as many terms of each sum
constexpr int stages = 5;
// Pitches of tiles in shared memory, in floats, by which the accesses of a warp fall into different banks.
constexpr int deep_pitch = depth + 4;
template <int Columns>
constexpr int wide_pitch = Columns + 8;

/// A warp's place in an output tile of 64 × Columns: two warps along the batch, four along the columns.
template <int Columns>
struct WarpPlace {
  static constexpr int columns = Columns / 4;
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) * 32;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * columns;
};

/// Sums of 32 × Columns/4 on tensor cores.
template <int Columns>
struct TensorSums {
  using Position = WarpPlace<Columns>;
  static constexpr int tiles = Position::columns / 8;
  float sums[2][tiles][4] = {};
  // The addresses that a lane reads, in bytes or floats from the start of a tile.
  std::uint32_t left;
  std::uint32_t right_deep;
  int right_wide;

  __device__ explicit TensorSums(const Position& place)
      : left(((place.row + place.lane % 16) * deep_pitch + place.lane / 16 * 4) * 4),
        right_deep(((place.column + place.lane / 16 * 8 + place.lane % 8) * deep_pitch + place.lane / 8 % 2 * 4) * 4),
        right_wide(place.lane % 4 * wide_pitch<Columns> + place.column + place.lane / 4) {}

  __device__ void load_left(std::uint32_t (&a)[2][4], std::uint32_t x, int k) const {
    load_matrices(a[0], x + left + k * 4);
    load_matrices(a[1], x + left + (16 * deep_pitch + k) * 4);
  }

  /// Adds x wᵀ: both tiles have the depth along their rows.
  __device__ void add_transposed(const float* x, const float* w) {
    const std::uint32_t x_at = shared_address(x);
    const std::uint32_t w_at = shared_address(w) + right_deep;
#pragma unroll
    for (int k = 0; k < depth; k += 8) {
      std::uint32_t a[2][4];
      load_left(a, x_at, k);
#pragma unroll
      for (int pair = 0; pair < tiles; pair += 2) {
        std::uint32_t b[4];
        load_matrices(b, w_at + (pair * 8 * deep_pitch + k) * 4);
        multiply(sums[0][pair], a[0], b[0], b[1]);
        multiply(sums[1][pair], a[1], b[0], b[1]);
        multiply(sums[0][pair + 1], a[0], b[2], b[3]);
        multiply(sums[1][pair + 1], a[1], b[2], b[3]);
      }
    }
  }

  /// Adds x w: the second tile has the depth along its columns.
  __device__ void add_straight(const float* x, const float* w) {
    const std::uint32_t x_at = shared_address(x);
    const float* w_at = w + right_wide;
#pragma unroll
    for (int k = 0; k < depth; k += 8) {
      std::uint32_t a[2][4];
      load_left(a, x_at, k);
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const std::uint32_t b0 = bits(w_at[k * wide_pitch<Columns> + tile * 8]);
        const std::uint32_t b1 = bits(w_at[(k + 4) * wide_pitch<Columns> + tile * 8]);
        multiply(sums[0][tile], a[0], b0, b1);
        multiply(sums[1][tile], a[1], b0, b1);
      }
    }
  }

  __device__ void store(float* tile, const Position& place) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        float* at = tile + (place.row + m * 16 + place.lane / 4) * wide_pitch<Columns> + place.column + n * 8 + place.lane % 4 * 2;
        *reinterpret_cast<float2*>(at) = {sums[m][n][0], sums[m][n][1]};
        *reinterpret_cast<float2*>(at + 8 * wide_pitch<Columns>) = {sums[m][n][2], sums[m][n][3]};
      }
    }
  }
};

/// The same in float32, by fused multiply-adds. A warp has 32 rows and 64 columns, a thread 8 × 8 of them; warps with the same ones
/// share the depth of a stage.
template <bool Forward, int Columns>
struct PlainSums {
  static constexpr int warps = 2 * Columns / 64;  // that cover the tile
  static constexpr int groups = threads / 32 / warps;
  float sums[8][8] = {};
  int group = static_cast<int>(threadIdx.x / 32) / warps;
  int first = group * (depth / groups);
  int row = static_cast<int>(threadIdx.x / 32 % 2) * 32 + static_cast<int>(threadIdx.x % 32) / 8;  // and each fourth after it
  int column = static_cast<int>(threadIdx.x / 32) % warps / 2 * 64 + static_cast<int>(threadIdx.x % 8) * (Forward ? 1 : 4);

  __device__ explicit PlainSums(const WarpPlace<Columns>&) {}

  __device__ void load_rows(float4 (&a)[8], const float* x, int k) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      a[i] = *reinterpret_cast<const float4*>(x + (row + 4 * i) * deep_pitch + k);
    }
  }

  /// A thread's columns are eight apart.
  __device__ void add_transposed(const float* x, const float* w) {
#pragma unroll 2
    for (int k = first; k < first + depth / groups; k += 4) {
      float4 a[8];
      load_rows(a, x, k);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 b = *reinterpret_cast<const float4*>(w + (column + 8 * j) * deep_pitch + k);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          sums[i][j] += a[i].x * b.x;
          sums[i][j] += a[i].y * b.y;
          sums[i][j] += a[i].z * b.z;
          sums[i][j] += a[i].w * b.w;
        }
      }
    }
  }

  /// A thread's columns are four in a row, and four more.
  __device__ void add_straight(const float* x, const float* w) {
#pragma unroll 2
    for (int k = first; k < first + depth / groups; k += 4) {
      float4 a[8];
      load_rows(a, x, k);
      const float* at = w + k * wide_pitch<Columns> + column;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const float4 near = *reinterpret_cast<const float4*>(at + step * wide_pitch<Columns>);
        const float4 far = *reinterpret_cast<const float4*>(at + step * wide_pitch<Columns> + 32);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float left = step == 0 ? a[i].x : step == 1 ? a[i].y : step == 2 ? a[i].z : a[i].w;
          sums[i][0] += left * near.x;
          sums[i][1] += left * near.y;
          sums[i][2] += left * near.z;
          sums[i][3] += left * near.w;
          sums[i][4] += left * far.x;
          sums[i][5] += left * far.y;
          sums[i][6] += left * far.z;
          sums[i][7] += left * far.w;
        }
      }
    }
  }

  /// Leaves the sums of all groups in one tile.
  __device__ void store(float* tile, const WarpPlace<Columns>&) const {
    constexpr int tile_floats = tile_rows * wide_pitch<Columns>;
    float* own = tile + group * tile_floats;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float* at = own + (row + 4 * i) * wide_pitch<Columns> + column;
      if constexpr (Forward) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          at[8 * j] = sums[i][j];
        }
      } else {
        *reinterpret_cast<float4*>(at) = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
        *reinterpret_cast<float4*>(at + 32) = {sums[i][4], sums[i][5], sums[i][6], sums[i][7]};
      }
    }
    __syncthreads();
    for (int index = static_cast<int>(threadIdx.x); index < tile_floats / 4; index += threads) {
      float4* parts = reinterpret_cast<float4*>(tile) + index;
      float4 sum = parts[0];
#pragma unroll
      for (int other = 1; other < groups; ++other) {
        const float4 part = parts[other * tile_floats / 4];
        sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
      }
      parts[0] = sum;
    }
  }
};

template <bool Forward, bool Tf32, int Columns>
struct SumsOf {
  using Type = TensorSums<Columns>;
};
template <bool Forward, int Columns>
struct SumsOf<Forward, false, Columns> {
  using Type = PlainSums<Forward, Columns>;
};

/// The arguments of both directions: the batch's operand (x or dy), the weights, and the tensor that is added or masks.
struct Arguments {
  const float* batch;
  const float* weight;
  const float* extra;  // forward: the bias; backward: the activation that masks; may be null
  float* result;
  int rows;
  int in;
  int out;
  bool relu;
  bool early;
};

constexpr int batch_floats = tile_rows * deep_pitch;
template <bool Forward, int Columns>
constexpr int stage_floats = batch_floats + (Forward ? Columns * deep_pitch : depth * wide_pitch<Columns>);

/// Sums of 64 rows × Columns. The blocks of a cluster share the depth, a step each in turn, so that their reads at one time are
/// close together.
template <bool Forward, bool Tf32, int Columns>
__global__ void __launch_bounds__(threads, 1) sums_kernel(const Arguments args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ float4 memory[];
  float* shared = reinterpret_cast<float*>(memory);
  const WarpPlace<Columns> place;
  const int first_column = static_cast<int>(blockIdx.y) * Columns;
  const int rank = static_cast<int>(blockIdx.x);
  const int size = static_cast<int>(gridDim.x);
  const int total = ((Forward ? args.in : args.out) + depth - 1) / depth;
  const int count = (total - rank + size - 1) / size;
  typename SumsOf<Forward, Tf32, Columns>::Type sums(place);

  using WeightCopy = TileCopy<Forward ? Columns : depth, Forward ? depth : Columns, threads>;
  using BatchCopy = TileCopy<tile_rows, depth, threads>;
  const WeightCopy weight(args.weight, args.out, args.in);
  const BatchCopy batch(args.batch, args.rows, Forward ? args.in : args.out);
  constexpr int weight_pitch = Forward ? deep_pitch : wide_pitch<Columns>;
  const std::uint32_t weight_to = shared_address(shared) + (batch_floats + weight.row * weight_pitch + weight.column) * 4;
  const std::uint32_t batch_to = shared_address(shared) + (batch.row * deep_pitch + batch.column) * 4;
  constexpr std::uint32_t stage_bytes = stage_floats<Forward, Columns> * 4;

  const auto load_weight = [&](int i, int stage) {
    const int at = (rank + i * size) * depth;
    weight.load(Forward ? first_column : at, Forward ? at : first_column, [&](int pass) {
      return weight_to + static_cast<std::uint32_t>(stage) * stage_bytes +
             static_cast<std::uint32_t>(pass * WeightCopy::pass_rows * weight_pitch * 4);
    });
  };
  const auto load_batch = [&](int i, int stage) {
    batch.load(0, (rank + i * size) * depth, [&](int pass) {
      return batch_to + static_cast<std::uint32_t>(stage) * stage_bytes +
             static_cast<std::uint32_t>(pass * BatchCopy::pass_rows * deep_pitch * 4);
    });
  };

  allow_next();
  for (int i = 0; args.early && i < stages - 1 && i < count; ++i) {
    load_weight(i, i);
  }
  await_previous();
  for (int i = 0; i < stages - 1; ++i) {
    if (i < count) {
      if (!args.early) {
        load_weight(i, i);
      }
      load_batch(i, i);
    }
    commit();
  }
  int stage = 0;
  for (int i = 0; i < count; ++i) {
    wait_all_but<stages - 2>();
    __syncthreads();
    if (i + stages - 1 < count) {
      const int next = stage == 0 ? stages - 1 : stage - 1;
      load_weight(i + stages - 1, next);
      load_batch(i + stages - 1, next);
    }
    commit();
    const float* at = shared + stage * stage_floats<Forward, Columns>;
    if constexpr (Forward) {
      sums.add_transposed(at, at + batch_floats);
    } else {
      sums.add_straight(at, at + batch_floats);
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  wait_all_but<0>();
  __syncthreads();

  sums.store(shared, place);
  reduce_in_cluster<Columns, wide_pitch<Columns>, threads>(shared, [&](int row, int column, float4 sum) {
    const int width = Forward ? args.out : args.in;
    const int at = first_column + column;
    if (row >= args.rows || at >= width) {
      return;
    }
    const std::int64_t offset = static_cast<std::int64_t>(row) * width + at;
    if constexpr (Forward) {
      if (args.extra != nullptr) {
        const float4 bias = *reinterpret_cast<const float4*>(args.extra + at);
        sum = {sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w};
      }
      if (args.relu) {
        sum = {sum.x < 0 ? 0 : sum.x, sum.y < 0 ? 0 : sum.y, sum.z < 0 ? 0 : sum.z, sum.w < 0 ? 0 : sum.w};
      }
    } else if (args.extra != nullptr) {
      const float4 x = *reinterpret_cast<const float4*>(args.extra + offset);
      sum = {x.x > 0 ? sum.x : 0, x.y > 0 ? sum.y : 0, x.z > 0 ? sum.z : 0, x.w > 0 ? sum.w : 0};
    }
    *reinterpret_cast<float4*>(args.result + offset) = sum;
  });
#endif
}

/// The division of a product: columns per block, and blocks of a cluster that share the depth.
struct Cut {
  int columns = 64;
  int blocks = 1;
};

constexpr int most_blocks = 8;
static_assert(4 * stages * std::max(stage_floats<true, 128>, stage_floats<false, 128>) <= FewRows::most_shared_bytes);
/// A block that takes more than half of a multiprocessor's memory shares it with no other: two would hold up the rest.
constexpr int alone = 116 * 1024;

int shared_bytes(bool forward, bool tf32, const Cut& cut, int depth_total) {
  const int steps = ((depth_total + depth - 1) / depth + cut.blocks - 1) / cut.blocks;
  const int weight = forward ? cut.columns * deep_pitch : depth * (cut.columns + 8);
  const int groups = tf32 ? 1 : cut.columns == 128 ? PlainSums<true, 128>::groups : PlainSums<true, 64>::groups;
  // All stages, or as many as there are steps; and room for the sums.
  const int bytes = 4 * std::max(std::min(stages, steps) * (batch_floats + weight), groups * tile_rows * (cut.columns + 8));
  return steps > stages ? std::max(bytes, alone) : bytes;
}

/// The number of blocks that run at a time.
int at_a_time(const Cut& cut, bool tf32, int bytes, int multiprocessors) {
  const int each = bytes >= alone || !tf32 ? 1 : 2;  // in float32 a block takes more than half of the registers
  // Clusters lie within a group of multiprocessors, whose last ones stay free: shares of all, as seen on an H200.
  constexpr double usable[most_blocks + 1] = {1, 1, 1, 0.88, 0.91, 0.83, 0.77, 0.79, 0.91};
  return std::max(cut.blocks, static_cast<int>(each * multiprocessors * usable[cut.blocks]));
}

/// The cut that fills the multiprocessors with as little traffic as possible: a block reads its part of the weights and all rows of
/// the batch next to it.
Cut choose_cut(bool forward, bool tf32, int columns, int depth_total, int multiprocessors) {
  Cut best;
  double least = 0;
  for (const int wide : {128, 64}) {
    for (int blocks = 1; blocks <= most_blocks && blocks * depth <= depth_total; ++blocks) {
      const Cut cut{wide, blocks};
      const int steps = ((depth_total + depth - 1) / depth + blocks - 1) / blocks;
      const int tiles = (columns + wide - 1) / wide;
      const int together = at_a_time(cut, tf32, shared_bytes(forward, tf32, cut, depth_total), multiprocessors);
      const int waves = (tiles * blocks + together - 1) / together;
      // In bytes of traffic: of the steps, of beginning, and of adding up.
      const double cost = waves * (30e3 + 4.0 * steps * depth * (wide + tile_rows)) + (blocks > 1 ? 20e3 + 2e3 * blocks : 0);
      if (least == 0 || cost < least) {
        least = cost;
        best = cut;
      }
    }
  }
  return best;
}

template <bool Forward, bool Tf32, int Columns>
void launch_sums(const Arguments& args, const Cut& cut, cudaStream_t stream) {
  const int columns = Forward ? args.out : args.in;
  const LaunchShape shape{dim3(static_cast<unsigned>(cut.blocks), static_cast<unsigned>((columns + Columns - 1) / Columns)),
                          dim3(threads), shared_bytes(Forward, Tf32, cut, Forward ? args.in : args.out), cut.blocks};
  launch(sums_kernel<Forward, Tf32, Columns>, shape, stream, args);
}

template <bool Forward>
void launch_sums(const Arguments& args, bool tf32, int multiprocessors, cudaStream_t stream) {
  const Cut cut = choose_cut(Forward, tf32, Forward ? args.out : args.in, Forward ? args.in : args.out, multiprocessors);
  if (tf32) {
    cut.columns == 128 ? launch_sums<Forward, true, 128>(args, cut, stream) : launch_sums<Forward, true, 64>(args, cut, stream);
  } else {
    cut.columns == 128 ? launch_sums<Forward, false, 128>(args, cut, stream) : launch_sums<Forward, false, 64>(args, cut, stream);
  }
}

}  // namespace

bool FewRows::fits(const Capability& capability) const {
  return capability.code >= first_programmatic && capability.shared_bytes >= most_shared_bytes && rows <= tile_rows &&
         in % 4 == 0 && out % 4 == 0;
}

void FewRows::forward(const float* x, const float* weight, const float* bias, float* y, bool relu, bool early,
                      cudaStream_t stream) const {
  launch_sums<true>({x, weight, bias, y, rows, in, out, relu, early}, tf32, multiprocessors, stream);
}

void FewRows::backward_input(const float* dy, const float* weight, const float* mask, float* dx, bool early,
                             cudaStream_t stream) const {
  launch_sums<false>({dy, weight, mask, dx, rows, in, out, false, early}, tf32, multiprocessors, stream);
}

}  // namespace baton::cuda
