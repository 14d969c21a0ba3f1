#include "baton/exec/backend/cuda/few_rows.h"
#include "baton/exec/backend/cuda/programmatic.cuh"
#include "baton/exec/backend/cuda/tiles.cuh"

#include <algorithm>

namespace baton::exec::cuda {
namespace {

// A block keeps the gradients of 128 outputs and lets the inputs go by, 64 at a time, with the weights where they are changed.
constexpr int threads = 512;
constexpr int outputs = 128;
constexpr int inputs = 64;
constexpr int stages = 3;
// Pitches in floats, by which the accesses of a warp fall into different banks.
constexpr int output_pitch = outputs + 8;
constexpr int input_pitch = inputs + 8;
constexpr int gradient_floats = tile_rows * output_pitch;
constexpr int input_floats = tile_rows * input_pitch;
constexpr int weight_floats = outputs * input_pitch;
constexpr int stage_floats = input_floats + weight_floats;

struct Arguments {
  const float* x;
  const float* dy;
  float* dw;
  float* db;
  int rows;
  int in;
  int out;
  float keep;
  float factor;
  bool early;
};

/// Sums of 128 outputs × 64 inputs on tensor cores: a warp has 32 × 16. The gradients stay in registers.
struct TensorGradients {
  std::uint32_t dy[8][2][4];
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) * 32;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * 16;

  __device__ explicit TensorGradients(const float* gradients) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const float* at = gradients + (k * 8 + lane % 4) * output_pitch + row + m * 16 + lane / 4;
        dy[k][m][0] = bits(at[0]);
        dy[k][m][1] = bits(at[8]);
        dy[k][m][2] = bits(at[4 * output_pitch]);
        dy[k][m][3] = bits(at[4 * output_pitch + 8]);
      }
    }
  }

  /// Calls `write(row, column, two sums)` for the products with a tile of inputs.
  template <typename Write>
  __device__ void products(const float* x, const float*, Write write) const {
    float sums[2][2][4] = {};
    const float* from = x + lane % 4 * input_pitch + column + lane / 4;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::uint32_t b0 = bits(from[k * 8 * input_pitch + n * 8]);
        const std::uint32_t b1 = bits(from[(k * 8 + 4) * input_pitch + n * 8]);
        multiply(sums[0][n], dy[k][0], b0, b1);
        multiply(sums[1][n], dy[k][1], b0, b1);
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int r = row + m * 16 + lane / 4;
        const int c = column + n * 8 + lane % 4 * 2;
        write(r, c, float2{sums[m][n][0], sums[m][n][1]});
        write(r + 8, c, float2{sums[m][n][2], sums[m][n][3]});
      }
    }
  }
};

/// The same by fused multiply-adds: a thread has 4 outputs and 4 inputs.
struct PlainGradients {
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 64) * 16 + lane / 8 * 4;
  int column = static_cast<int>(threadIdx.x / 32 % 2) * 32 + lane % 8 * 4;

  __device__ explicit PlainGradients(const float*) {}

  template <typename Write>
  __device__ void products(const float* x, const float* gradients, Write write) const {
    float sums[4][4] = {};
#pragma unroll 8
    for (int b = 0; b < tile_rows; ++b) {
      const float4 left = *reinterpret_cast<const float4*>(gradients + b * output_pitch + row);
      const float4 right = *reinterpret_cast<const float4*>(x + b * input_pitch + column);
      const float a[4] = {left.x, left.y, left.z, left.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums[i][0] += a[i] * right.x;
        sums[i][1] += a[i] * right.y;
        sums[i][2] += a[i] * right.z;
        sums[i][3] += a[i] * right.w;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      write(row + i, column, float2{sums[i][0], sums[i][1]});
      write(row + i, column + 2, float2{sums[i][2], sums[i][3]});
    }
  }
};

template <bool Tf32>
struct GradientsOf {
  using Type = TensorGradients;
};
template <>
struct GradientsOf<false> {
  using Type = PlainGradients;
};

template <bool Tf32>
__global__ void __launch_bounds__(threads, 1) weight_kernel(const Arguments args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ float4 memory[];
  float* gradients = reinterpret_cast<float*>(memory);
  float* tiles = gradients + gradient_floats;
  const int first_row = static_cast<int>(blockIdx.y) * outputs;
  const Portion portion((args.in + inputs - 1) / inputs, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int count = portion.count();
  const bool keeps = args.keep != 0;

  using InputCopy = TileCopy<tile_rows, inputs, threads>;
  using WeightCopy = TileCopy<outputs, inputs, threads>;
  using GradientCopy = TileCopy<tile_rows, outputs, threads>;
  const InputCopy input_copy(args.x, args.rows, args.in);
  const WeightCopy weight_copy(args.dw, args.out, args.in);
  const std::uint32_t input_to = shared_address(tiles) + (input_copy.row * input_pitch + input_copy.column) * 4;
  const std::uint32_t weight_to =
      shared_address(tiles) + (input_floats + weight_copy.row * input_pitch + weight_copy.column) * 4;
  const auto load_input = [&](int i, int stage) {
    input_copy.load(0, (portion.first + i) * inputs, [&](int pass) {
      return input_to + static_cast<std::uint32_t>((stage * stage_floats + pass * InputCopy::pass_rows * input_pitch) * 4);
    });
  };
  const auto load_weight = [&](int i, int stage) {
    if (keeps) {
      weight_copy.load(first_row, (portion.first + i) * inputs, [&](int pass) {
        return weight_to +
               static_cast<std::uint32_t>((stage * stage_floats + pass * WeightCopy::pass_rows * input_pitch) * 4);
      });
    }
  };

  allow_next();
  for (int i = 0; args.early && i < stages - 1 && i < count; ++i) {
    load_weight(i, i);
  }
  await_previous();
  {
    const GradientCopy gradient_copy(args.dy, args.rows, args.out);
    gradient_copy.load(0, first_row, [&](int pass) {
      return shared_address(gradients) +
             static_cast<std::uint32_t>(((gradient_copy.row + pass * GradientCopy::pass_rows) * output_pitch +
                                         gradient_copy.column) * 4);
    });
  }
  for (int i = 0; i < stages - 1; ++i) {
    if (i < count) {
      if (!args.early) {
        load_weight(i, i);
      }
      load_input(i, i);
    }
    commit();
  }
  wait_all_but<stages - 2>();
  __syncthreads();
  const typename GradientsOf<Tf32>::Type sums(gradients);
  if (args.db != nullptr && blockIdx.x == 0 && threadIdx.x < outputs &&
      first_row + static_cast<int>(threadIdx.x) < args.out) {
    float sum = 0;
    for (int b = 0; b < tile_rows; ++b) {
      sum += gradients[b * output_pitch + threadIdx.x];
    }
    float* bias = args.db + first_row + threadIdx.x;
    *bias = (keeps ? *bias : 0.0F) + args.factor * sum;
  }

  int stage = 0;
  for (int i = 0; i < count; ++i) {
    wait_all_but<stages - 2>();
    __syncthreads();
    if (i + stages - 1 < count) {
      const int next = stage == 0 ? stages - 1 : stage - 1;
      load_weight(i + stages - 1, next);
      load_input(i + stages - 1, next);
    }
    commit();
    const float* x = tiles + stage * stage_floats;
    const float* old = x + input_floats;
    stage = stage + 1 == stages ? 0 : stage + 1;
    const int first_column = (portion.first + i) * inputs;
    const bool whole = first_row + outputs <= args.out && first_column + inputs <= args.in;
    float* corner = args.dw + static_cast<std::int64_t>(first_row) * args.in + first_column;
    sums.products(x, gradients, [&](int row, int column, float2 sum) {
      if (!whole && (first_row + row >= args.out || first_column + column >= args.in)) {
        return;
      }
      float2 result{args.factor * sum.x, args.factor * sum.y};
      if (keeps) {
        const float2 before = *reinterpret_cast<const float2*>(old + row * input_pitch + column);
        result = {before.x + result.x, before.y + result.y};
      }
      *reinterpret_cast<float2*>(corner + static_cast<std::int64_t>(row) * args.in + column) = result;
    });
  }
#endif
}

}  // namespace

void FewRows::backward_weight(const float* x, const float* dy, float* dw, float* db, float keep, float factor, bool early,
                              cudaStream_t stream) const {
  const Arguments args{x, dy, dw, db, rows, in, out, keep, factor, early};
  const int stripes = (out + outputs - 1) / outputs;
  const int tiles = (in + inputs - 1) / inputs;
  const int splits = std::clamp(multiprocessors / stripes, 1, tiles);
  const int each = (tiles + splits - 1) / splits;
  const LaunchShape shape{dim3(static_cast<unsigned>(splits), static_cast<unsigned>(stripes)), dim3(threads),
                          4 * (gradient_floats + std::min(stages, each) * stage_floats)};
  launch(tf32 ? weight_kernel<true> : weight_kernel<false>, shape, stream, args);
}

}  // namespace baton::exec::cuda
