#include "baton/exec/backend/cuda/few_rows.h"
#include "baton/exec/backend/cuda/programmatic.cuh"
#include "baton/exec/backend/cuda/tiles.cuh"

#include <algorithm>

namespace baton::exec::cuda {
namespace {

// A block has a stripe of 64 inputs and lets the outputs go by, 64 at a time: the gradients of these, and the weights between
// the two. Half of its warps sum up the gradient of the inputs, the other half changes the weights.
constexpr int threads = 512;
constexpr int stripe = 64;
constexpr int outputs = 64;
constexpr int stages = 5;
constexpr int pitch = stripe + 8;  // of weights and of inputs: so that a warp's accesses fall into different banks
constexpr int gradient_floats = tile_rows * outputs;
constexpr int weight_floats = outputs * pitch;
constexpr int stage_floats = gradient_floats + weight_floats;

/// Where an element of a tile of gradients lies: chunks of four trade places by row, so that both rows and columns of it are
/// read without conflicts.
__device__ int turn(int row) { return (row & 3) << 1 | (row >> 2 & 1); }
__device__ int swizzled(int row, int column) {
  return row * outputs + ((column >> 2 ^ turn(row)) << 2 | (column & 3));
}

struct Arguments {
  const float* dy;
  float* weight;
  const float* x;
  float* bias;
  float* dx;
  int rows;
  int in;
  int out;
  bool mask;
  bool early;
  float keep;
  float factor;
};

/// The gradient of the inputs, 64 × 64 over eight warps: a warp has 32 × 16.
struct TensorInput {
  float sums[2][2][4] = {};
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) * 32;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * 16;
  std::uint32_t left[4];  // where a lane's row begins, in bytes, for each two of the first eight chunks
  int right = lane % 4 * pitch + column + lane / 4;

  __device__ TensorInput() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      left[i] = static_cast<std::uint32_t>(swizzled(row + lane % 16, i * 8 + lane / 16 * 4)) * 4;
    }
  }

  __device__ void add(const float* dy, const float* weight) {
    const std::uint32_t dy_at = shared_address(dy);
    const float* weight_at = weight + right;
#pragma unroll
    for (int k = 0; k < outputs; k += 8) {
      std::uint32_t a[2][4];
      const std::uint32_t from = dy_at + left[k / 8 % 4] + k / 32 * 32 * 4;
      load_matrices(a[0], from);
      load_matrices(a[1], from + 16 * outputs * 4);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::uint32_t b0 = bits(weight_at[k * pitch + n * 8]);
        const std::uint32_t b1 = bits(weight_at[(k + 4) * pitch + n * 8]);
        multiply(sums[0][n], a[0], b0, b1);
        multiply(sums[1][n], a[1], b0, b1);
      }
    }
  }

  __device__ void store(float* tile) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float* at = tile + (row + m * 16 + lane / 4) * pitch + column + n * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(at) = {sums[m][n][0], sums[m][n][1]};
        *reinterpret_cast<float2*>(at + 8 * pitch) = {sums[m][n][2], sums[m][n][3]};
      }
    }
  }
};

/// The same by fused multiply-adds: a thread has 8 rows, four apart, and two columns, eight apart.
struct PlainInput {
  float sums[8][2] = {};
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) * 32 + lane / 8;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane % 8;

  __device__ void add(const float* dy, const float* weight) {
#pragma unroll 2
    for (int k = 0; k < outputs; k += 4) {
      float w[4][2];
#pragma unroll
      for (int d = 0; d < 4; ++d) {
        w[d][0] = weight[(k + d) * pitch + column];
        w[d][1] = weight[(k + d) * pitch + column + 8];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4 a = *reinterpret_cast<const float4*>(dy + swizzled(row + 4 * i, k));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          sums[i][j] += a.x * w[0][j];
          sums[i][j] += a.y * w[1][j];
          sums[i][j] += a.z * w[2][j];
          sums[i][j] += a.w * w[3][j];
        }
      }
    }
  }

  __device__ void store(float* tile) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tile[(row + 4 * i) * pitch + column] = sums[i][0];
      tile[(row + 4 * i) * pitch + column + 8] = sums[i][1];
    }
  }
};

/// The gradient of the weights, 64 outputs × 64 inputs over `Warps`: a warp has 16 outputs. The stripe of inputs stays in
/// registers.
template <int Warps>
struct TensorWeight {
  static constexpr int columns = 64 * 4 / Warps;  // a warp's
  static constexpr int tiles = columns / 8;
  std::uint32_t x[8][tiles][2];
  int lane = static_cast<int>(threadIdx.x % 32);
  int warp = static_cast<int>(threadIdx.x / 32) % Warps;
  int row = warp % 4 * 16;
  int column = warp / 4 * columns;
  int left[2][2];  // where a lane reads the gradients: by half of the outputs, by half of the eight rows

  /// `inputs` is the stripe in shared memory.
  __device__ explicit TensorWeight(const float* inputs) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const float* from = inputs + (k * 8 + lane % 4) * pitch + column + n * 8 + lane / 4;
        x[k][n][0] = bits(from[0]);
        x[k][n][1] = bits(from[4 * pitch]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      left[half][0] = swizzled(lane % 4, row + lane / 4 + half * 8);
      left[half][1] = swizzled(lane % 4 + 4, row + lane / 4 + half * 8);
    }
  }

  /// Calls `write(row, column, two sums)`.
  template <typename Write>
  __device__ void products(const float* dy, const float*, Write write) const {
    float sums[tiles][4] = {};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float* at = dy + k * 8 * outputs;
      const std::uint32_t a[4] = {bits(at[left[0][0]]), bits(at[left[1][0]]), bits(at[left[0][1]]), bits(at[left[1][1]])};
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        multiply(sums[n], a, x[k][n][0], x[k][n][1]);
      }
    }
#pragma unroll
    for (int n = 0; n < tiles; ++n) {
      const int c = column + n * 8 + lane % 4 * 2;
      write(row + lane / 4, c, float2{sums[n][0], sums[n][1]});
      write(row + lane / 4 + 8, c, float2{sums[n][2], sums[n][3]});
    }
  }
};

/// The same by fused multiply-adds: a thread has four outputs, or two groups of them, and two inputs.
template <int Warps>
struct PlainWeight {
  static constexpr int groups = 16 / Warps;
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) % (Warps / 4) * 16 * groups + lane / 8 * 4;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane % 8 * 2;

  __device__ explicit PlainWeight(const float*) {}

  template <typename Write>
  __device__ void products(const float* dy, const float* inputs, Write write) const {
    float sums[groups][4][2] = {};
#pragma unroll 4
    for (int b = 0; b < tile_rows; ++b) {
      const float2 x = *reinterpret_cast<const float2*>(inputs + b * pitch + column);
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const float4 d = *reinterpret_cast<const float4*>(dy + swizzled(b, row + g * 16));
        sums[g][0][0] += d.x * x.x;
        sums[g][0][1] += d.x * x.y;
        sums[g][1][0] += d.y * x.x;
        sums[g][1][1] += d.y * x.y;
        sums[g][2][0] += d.z * x.x;
        sums[g][2][1] += d.z * x.y;
        sums[g][3][0] += d.w * x.x;
        sums[g][3][1] += d.w * x.y;
      }
    }
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        write(row + g * 16 + i, column, float2{sums[g][i][0], sums[g][i][1]});
      }
    }
  }
};

template <bool Tf32, int Warps>
struct Parts {
  using Input = TensorInput;
  using Weight = TensorWeight<Warps>;
};
template <int Warps>
struct Parts<false, Warps> {
  using Input = PlainInput;
  using Weight = PlainWeight<Warps>;
};

/// With `Input` the blocks of a cluster share a stripe's outputs and add up the gradient of its inputs.
template <bool Tf32, bool Input>
__global__ void __launch_bounds__(threads, 1) backward_kernel(const Arguments args) {
#if __CUDA_ARCH__ >= 900
  constexpr int weight_warps = Input ? 8 : 16;
  using Part = Parts<Tf32, weight_warps>;
  extern __shared__ float4 memory[];
  float* inputs = reinterpret_cast<float*>(memory);
  float* tiles = inputs + tile_rows * pitch;
  const int first_column = static_cast<int>(blockIdx.y) * stripe;
  const Portion portion((args.out + outputs - 1) / outputs, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int count = portion.count();

  const bool needs_weight = Input || args.keep != 0;
  using WeightCopy = TileCopy<outputs, stripe, threads>;
  using GradientCopy = TileCopy<tile_rows, outputs, threads>;
  using InputCopy = TileCopy<tile_rows, stripe, threads>;
  const WeightCopy weight_copy(args.weight, args.out, args.in);
  const GradientCopy gradient_copy(args.dy, args.rows, args.out);
  const std::uint32_t weight_to =
      shared_address(tiles) + (gradient_floats + weight_copy.row * pitch + weight_copy.column) * 4;
  // Passes are a multiple of eight rows apart, so that a chunk's place in its row is the same in all.
  static_assert(GradientCopy::pass_rows % 8 == 0);
  const std::uint32_t gradient_to = shared_address(tiles) + swizzled(gradient_copy.row, gradient_copy.column) * 4;
  const auto first_row = [&](int i) { return (portion.first + i) * outputs; };
  const auto load_weight = [&](int i, int stage) {
    if (needs_weight) {
      weight_copy.load(first_row(i), first_column, [&](int pass) {
        return weight_to + static_cast<std::uint32_t>((stage * stage_floats + pass * WeightCopy::pass_rows * pitch) * 4);
      });
    }
  };
  const auto load_gradient = [&](int i, int stage) {
    gradient_copy.load(0, first_row(i), [&](int pass) {
      return gradient_to +
             static_cast<std::uint32_t>((stage * stage_floats + pass * GradientCopy::pass_rows * outputs) * 4);
    });
  };

  allow_next();
  for (int i = 0; args.early && i < stages - 1 && i < count; ++i) {
    load_weight(i, i);
  }
  await_previous();
  {
    const InputCopy input_copy(args.x, args.rows, args.in);
    input_copy.load(0, first_column, [&](int pass) {
      return shared_address(inputs) +
             static_cast<std::uint32_t>(((input_copy.row + pass * InputCopy::pass_rows) * pitch + input_copy.column) * 4);
    });
  }
  for (int i = 0; i < stages - 1; ++i) {
    if (i < count) {
      if (!args.early) {
        load_weight(i, i);
      }
      load_gradient(i, i);
    }
    commit();
  }
  wait_all_but<stages - 2>();
  __syncthreads();

  const bool of_input = Input && threadIdx.x < threads / 2;
  typename Part::Input input;
  const typename Part::Weight weight(inputs);
  int stage = 0;
  for (int i = 0; i < count; ++i) {
    wait_all_but<stages - 2>();
    __syncthreads();
    if (i + stages - 1 < count) {
      const int next = stage == 0 ? stages - 1 : stage - 1;
      load_weight(i + stages - 1, next);
      load_gradient(i + stages - 1, next);
    }
    commit();
    const float* gradients = tiles + stage * stage_floats;
    const float* weights = gradients + gradient_floats;
    stage = stage + 1 == stages ? 0 : stage + 1;
    if (of_input) {
      input.add(gradients, weights);
      continue;
    }
    if (args.bias != nullptr && blockIdx.y == 0 && threadIdx.x >= threads - outputs) {
      const int column = static_cast<int>(threadIdx.x) - (threads - outputs);
      const int at = first_row(i) + column;
      if (at < args.out) {
        float sum = 0;
#pragma unroll 8
        for (int b = 0; b < tile_rows; ++b) {
          sum += gradients[swizzled(b, column)];
        }
        args.bias[at] = (args.keep != 0 ? args.bias[at] : 0.0F) + args.factor * sum;
      }
    }
    const bool whole = first_row(i) + outputs <= args.out && first_column + stripe <= args.in;
    float* corner = args.weight + static_cast<std::int64_t>(first_row(i)) * args.in + first_column;
    weight.products(gradients, inputs, [&](int row, int column, float2 sum) {
      if (!whole && (first_row(i) + row >= args.out || first_column + column >= args.in)) {
        return;
      }
      float2 result{args.factor * sum.x, args.factor * sum.y};
      if (args.keep != 0) {
        const float2 old = *reinterpret_cast<const float2*>(weights + row * pitch + column);
        result = {old.x + result.x, old.y + result.y};
      }
      *reinterpret_cast<float2*>(corner + static_cast<std::int64_t>(row) * args.in + column) = result;
    });
  }
  wait_all_but<0>();
  if constexpr (Input) {
    __syncthreads();
    if (of_input) {
      input.store(tiles);
    }
    reduce_in_cluster<stripe, pitch, threads>(tiles, [&](int row, int column, float4 sum) {
      const int c = first_column + column;
      if (row >= args.rows || c >= args.in) {
        return;
      }
      if (args.mask) {
        const float4 x = *reinterpret_cast<const float4*>(inputs + row * pitch + column);
        sum = {x.x > 0 ? sum.x : 0, x.y > 0 ? sum.y : 0, x.z > 0 ? sum.z : 0, x.w > 0 ? sum.w : 0};
      }
      *reinterpret_cast<float4*>(args.dx + static_cast<std::int64_t>(row) * args.in + c) = sum;
    });
  }
#endif
}

void launch_backward(const Arguments& args, bool tf32, bool input, int multiprocessors, cudaStream_t stream) {
  const int stripes = (args.in + stripe - 1) / stripe;
  const int steps = (args.out + outputs - 1) / outputs;
  constexpr int most_blocks = 8;  // of a cluster
  const int splits = std::clamp(multiprocessors / stripes, 1, std::min(input ? most_blocks : steps, steps));
  const int each = (steps + splits - 1) / splits;
  const int bytes = 4 * (tile_rows * pitch + std::max(std::min(stages, each) * stage_floats, tile_rows * pitch));
  const LaunchShape shape{dim3(static_cast<unsigned>(splits), static_cast<unsigned>(stripes)), dim3(threads), bytes,
                          input ? splits : 1};
  const auto run = [&](auto kernel) { launch(kernel, shape, stream, args); };
  if (tf32) {
    input ? run(backward_kernel<true, true>) : run(backward_kernel<true, false>);
  } else {
    input ? run(backward_kernel<false, true>) : run(backward_kernel<false, false>);
  }
}

}  // namespace

void FewRows::backward_weight(const float* x, const float* dy, float* dw, float* db, float keep, float factor, bool early,
                              cudaStream_t stream) const {
  launch_backward({dy, dw, x, db, nullptr, rows, in, out, false, early, keep, factor}, tf32, false, multiprocessors,
                  stream);
}

void FewRows::backward(const float* dy, float* weight, const float* x, float* b, float* dx, bool mask, float factor,
                       bool early, cudaStream_t stream) const {
  launch_backward({dy, weight, x, b, dx, rows, in, out, mask, early, 1, factor}, tf32, true, multiprocessors, stream);
}

}  // namespace baton::exec::cuda
