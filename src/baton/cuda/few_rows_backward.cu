#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/few_rows.h"
#include "baton/cuda/programmatic.cuh"
#include "baton/cuda/tiles.cuh"

namespace baton::cuda {
namespace {

// A block keeps the gradients of 128 outputs and lets the inputs go by, 64 at a time, with the weights if they are changed.
constexpr int threads = 512;
constexpr int outputs = 128;
constexpr int inputs = 64;
constexpr int stages = 3;
// Pitches in elements, by which the accesses of a warp fall into different banks.
constexpr int output_pitch = outputs + 8;
constexpr int input_pitch = inputs + 8;
constexpr int weight_floats = outputs * input_pitch;
template <typename Element>
constexpr int gradient_floats = tile_rows* output_pitch * sizeof(Element) / 4;
template <typename Element>
constexpr int input_floats = tile_rows* input_pitch * sizeof(Element) / 4;
template <typename Element>
constexpr int stage_floats = input_floats<Element> + weight_floats;

struct Arguments {
  const void* x;
  const void* dy;
  float* dw;
  float* db;
  WeightCopies copies;
  int rows;
  int in;
  int out;
  float keep;
  float factor;
  bool early;
};

/// Sums of 128 outputs × 64 inputs on tensor cores: a warp has 32 × 16. The gradients stay in registers. Elements of 16 bits have
/// no more digits than the tensor cores see of a float.
template <typename Element>
struct TensorGradients {
  std::uint32_t dy[8][2][4];
  int lane = static_cast<int>(threadIdx.x % 32);
  int row = static_cast<int>(threadIdx.x / 128) * 32;
  int column = static_cast<int>(threadIdx.x / 32 % 4) * 16;

  __device__ explicit TensorGradients(const Element* gradients) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const Element* at = gradients + (k * 8 + lane % 4) * output_pitch + row + m * 16 + lane / 4;
        dy[k][m][0] = bits(widened(at[0]));
        dy[k][m][1] = bits(widened(at[8]));
        dy[k][m][2] = bits(widened(at[4 * output_pitch]));
        dy[k][m][3] = bits(widened(at[4 * output_pitch + 8]));
      }
    }
  }

  /// Calls `write(row, column, two sums)` for the products with a tile of inputs.
  template <typename Write>
  __device__ void products(const Element* x, Write write) const {
    float sums[2][2][4] = {};
    const Element* from = x + lane % 4 * input_pitch + column + lane / 4;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::uint32_t b0 = bits(widened(from[k * 8 * input_pitch + n * 8]));
        const std::uint32_t b1 = bits(widened(from[(k * 8 + 4) * input_pitch + n * 8]));
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

/// The stripe's part of the bias, by the first block of those that share the stripe.
template <int Outputs, int Pitch, typename Element>
__device__ void add_bias_gradient(const Arguments& args, const Element* gradients, int first_row) {
  const int row = first_row + static_cast<int>(threadIdx.x);
  if (args.db == nullptr || blockIdx.x != 0 || threadIdx.x >= Outputs || row >= args.out) {
    return;
  }
  float sum = 0;
  for (int b = 0; b < tile_rows; ++b) {
    sum += widened(gradients[b * Pitch + threadIdx.x]);
  }
  const float result = (args.keep != 0 ? args.db[row] : 0.0F) + args.factor * sum;
  args.db[row] = result;
  if (args.copies.bias != nullptr) {
    static_cast<Element*>(args.copies.bias)[row] = rounded<Element>(result);
  }
}

/// Writes a tile of weights as 16-bit numbers, in runs of whole sectors of memory: parts of sectors take several times as long.
template <typename Element>
__device__ void copy_tile(const Arguments& args, const float* weights, int first_row, int first_column) {
  using P = Pack<Element>;
  constexpr int packs = inputs / P::size;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * packs; i += threads) {
    const int row = i / packs;
    const int column = i % packs * P::size;
    if (first_row + row < args.out && first_column + column < args.in) {
      const float* from = weights + row * input_pitch + column;
      P copy;
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        copy.elements[e] = rounded<Element>(from[e]);
      }
      const std::int64_t to = static_cast<std::int64_t>(first_row + row) * args.in + first_column + column;
      *reinterpret_cast<P*>(static_cast<Element*>(args.copies.weight) + to) = copy;
    }
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads, 1) tensor_weight_kernel(const Arguments args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ float4 memory[];
  Element* gradients = reinterpret_cast<Element*>(memory);
  float* tiles = reinterpret_cast<float*>(memory) + gradient_floats<Element>;
  const int first_row = static_cast<int>(blockIdx.y) * outputs;
  const Portion portion((args.in + inputs - 1) / inputs, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int count = portion.count();
  const bool keeps = args.keep != 0;

  // Copies count in words of four bytes, of which there are as many as elements or half as many.
  constexpr int share = 4 / sizeof(Element);
  using InputCopy = TileCopy<tile_rows, inputs / share, threads>;
  using WeightCopy = TileCopy<outputs, inputs, threads>;
  using GradientCopy = TileCopy<tile_rows, outputs / share, threads>;
  const InputCopy input_copy(static_cast<const float*>(args.x), args.rows, args.in / share);
  const WeightCopy weight_copy(args.dw, args.out, args.in);
  const std::uint32_t input_to = shared_address(tiles) + (input_copy.row * input_pitch / share + input_copy.column) * 4;
  const std::uint32_t weight_to = shared_address(tiles) +
                                  (input_floats<Element> + weight_copy.row * input_pitch + weight_copy.column) * 4;
  const auto load_input = [&](int i, int stage) {
    input_copy.load(0, (portion.first + i) * inputs / share, [&](int pass) {
      return input_to +
             static_cast<std::uint32_t>((stage * stage_floats<Element> + pass * InputCopy::pass_rows * input_pitch / share) * 4);
    });
  };
  const auto load_weight = [&](int i, int stage) {
    if (keeps) {
      weight_copy.load(first_row, (portion.first + i) * inputs, [&](int pass) {
        return weight_to +
               static_cast<std::uint32_t>((stage * stage_floats<Element> + pass * WeightCopy::pass_rows * input_pitch) * 4);
      });
    }
  };

  allow_next();
  for (int i = 0; args.early && i < stages - 1 && i < count; ++i) {
    load_weight(i, i);
  }
  await_previous();
  {
    const GradientCopy gradient_copy(static_cast<const float*>(args.dy), args.rows, args.out / share);
    gradient_copy.load(0, first_row / share, [&](int pass) {
      return shared_address(reinterpret_cast<const float*>(memory)) +
             static_cast<std::uint32_t>(
                 ((gradient_copy.row + pass * GradientCopy::pass_rows) * output_pitch / share + gradient_copy.column) * 4);
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
  const TensorGradients<Element> sums(gradients);
  add_bias_gradient<outputs, output_pitch>(args, gradients, first_row);

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
    const auto* x = reinterpret_cast<const Element*>(tiles + stage * stage_floats<Element>);
    float* changed = tiles + stage * stage_floats<Element> + input_floats<Element>;  // in place of the weights, for their copies
    const float* old = changed;
    stage = stage + 1 == stages ? 0 : stage + 1;
    const int first_column = (portion.first + i) * inputs;
    const bool whole = first_row + outputs <= args.out && first_column + inputs <= args.in;
    float* corner = args.dw + static_cast<std::int64_t>(first_row) * args.in + first_column;
    sums.products(x, [&](int row, int column, float2 sum) {
      if (!whole && (first_row + row >= args.out || first_column + column >= args.in)) {
        return;
      }
      float2 result{args.factor * sum.x, args.factor * sum.y};
      if (keeps) {
        const float2 before = *reinterpret_cast<const float2*>(old + row * input_pitch + column);
        result = {before.x + result.x, before.y + result.y};
      }
      *reinterpret_cast<float2*>(corner + static_cast<std::int64_t>(row) * args.in + column) = result;
      if constexpr (sizeof(Element) == 2) {
        if (args.copies.weight != nullptr) {
          *reinterpret_cast<float2*>(changed + row * input_pitch + column) = result;
        }
      }
    });
    if constexpr (sizeof(Element) == 2) {
      if (args.copies.weight != nullptr) {
        __syncthreads();
        copy_tile<Element>(args, changed, first_row, first_column);
      }
    }
  }
#endif
}

// In float32 a stripe has 128 outputs, or 64 if those would be too few for the multiprocessors; 128 inputs at a time.
constexpr int plain_threads = 256;
constexpr int plain_inputs = 128;
constexpr int plain_stages = 3;

/// A warp has a quarter of the outputs and half of the inputs of a tile, a thread Outputs / 16 outputs in a row and 4 + 4 inputs.
/// The weights come into registers while their changes are summed.
template <int Outputs>
__global__ void __launch_bounds__(plain_threads, 1) plain_weight_kernel(const Arguments args) {
#if __CUDA_ARCH__ >= 900
  constexpr int height = Outputs / 16;
  constexpr int tile_floats = tile_rows * plain_inputs;
  extern __shared__ float4 memory[];
  float* gradients = reinterpret_cast<float*>(memory);
  float* tiles = gradients + tile_rows * Outputs;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(threadIdx.x / 64) * (Outputs / 4) + lane / 8 * height;
  const int column = static_cast<int>(threadIdx.x / 32 % 2) * 64 + lane % 8 * 4;
  const int first_row = static_cast<int>(blockIdx.y) * Outputs;
  const Portion portion((args.in + plain_inputs - 1) / plain_inputs, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  const int count = portion.count();
  const bool keeps = args.keep != 0;

  using InputCopy = TileCopy<tile_rows, plain_inputs, plain_threads>;
  using GradientCopy = TileCopy<tile_rows, Outputs, plain_threads>;
  const InputCopy input_copy(static_cast<const float*>(args.x), args.rows, args.in);
  const auto load_input = [&](int i, int stage) {
    input_copy.load(0, (portion.first + i) * plain_inputs, [&](int pass) {
      return shared_address(tiles) +
             static_cast<std::uint32_t>(
                 (stage * tile_floats + (input_copy.row + pass * InputCopy::pass_rows) * plain_inputs + input_copy.column) * 4);
    });
  };
  float4 weights[height][2] = {};
  // Calls `visit(the weights in registers, where they are)` for each four that the thread has.
  const auto each_four = [&](int i, auto visit) {
#pragma unroll
    for (int r = 0; r < height; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = (portion.first + i) * plain_inputs + column + half * 32;
        if (first_row + row + r < args.out && at < args.in) {
          visit(r, half, reinterpret_cast<float4*>(args.dw + static_cast<std::int64_t>(first_row + row + r) * args.in + at));
        }
      }
    }
  };
  const auto load_weights = [&](int i) {
    if (keeps) {
      each_four(i, [&](int r, int half, const float4* from) { weights[r][half] = *from; });
    }
  };

  allow_next();
  if (args.early && count > 0) {
    load_weights(0);
  }
  await_previous();
  const GradientCopy gradient_copy(static_cast<const float*>(args.dy), args.rows, args.out);
  gradient_copy.load(0, first_row, [&](int pass) {
    return shared_address(gradients) +
           static_cast<std::uint32_t>(((gradient_copy.row + pass * GradientCopy::pass_rows) * Outputs + gradient_copy.column) * 4);
  });
  for (int i = 0; i < plain_stages - 1; ++i) {
    if (i < count) {
      load_input(i, i);
    }
    commit();
  }

  int stage = 0;
  for (int i = 0; i < count; ++i) {
    if (i > 0 || !args.early) {
      load_weights(i);
    }
    wait_all_but<plain_stages - 2>();
    __syncthreads();
    if (i == 0) {
      add_bias_gradient<Outputs, Outputs>(args, gradients, first_row);
    }
    if (i + plain_stages - 1 < count) {
      load_input(i + plain_stages - 1, stage == 0 ? plain_stages - 1 : stage - 1);
    }
    commit();
    const float* x = tiles + stage * tile_floats + column;
    const float* dy = gradients + row;
    stage = stage + 1 == plain_stages ? 0 : stage + 1;
    float sums[height][8] = {};
#pragma unroll 4
    for (int b = 0; b < tile_rows; ++b) {
      float left[height];
#pragma unroll
      for (int r = 0; r < height; r += 4) {
        const float4 four = *reinterpret_cast<const float4*>(dy + b * Outputs + r);
        left[r] = four.x;
        left[r + 1] = four.y;
        left[r + 2] = four.z;
        left[r + 3] = four.w;
      }
      const float4 near = *reinterpret_cast<const float4*>(x + b * plain_inputs);
      const float4 far = *reinterpret_cast<const float4*>(x + b * plain_inputs + 32);
#pragma unroll
      for (int r = 0; r < height; ++r) {
        sums[r][0] += left[r] * near.x;
        sums[r][1] += left[r] * near.y;
        sums[r][2] += left[r] * near.z;
        sums[r][3] += left[r] * near.w;
        sums[r][4] += left[r] * far.x;
        sums[r][5] += left[r] * far.y;
        sums[r][6] += left[r] * far.z;
        sums[r][7] += left[r] * far.w;
      }
    }
    each_four(i, [&](int r, int half, float4* to) {
      const float* sum = sums[r] + half * 4;
      const float4 old = weights[r][half];
      *to = {old.x + args.factor * sum[0], old.y + args.factor * sum[1], old.z + args.factor * sum[2],
             old.w + args.factor * sum[3]};
    });
  }
#endif
}

static_assert(4 * (gradient_floats<float> + stages * stage_floats<float>) <= FewRows::most_shared_bytes);
static_assert(4 * tile_rows * (outputs + plain_stages * plain_inputs) <= FewRows::most_shared_bytes);

template <int Outputs>
void launch_plain(const Arguments& args, int multiprocessors, cudaStream_t stream) {
  const int stripes = (args.out + Outputs - 1) / Outputs;
  const int tiles = (args.in + plain_inputs - 1) / plain_inputs;
  const int splits = std::clamp(multiprocessors / stripes, 1, tiles);
  const int each = (tiles + splits - 1) / splits;
  const LaunchShape shape{dim3(static_cast<unsigned>(splits), static_cast<unsigned>(stripes)), dim3(plain_threads),
                          4 * tile_rows * (Outputs + std::min(plain_stages, each) * plain_inputs)};
  launch(plain_weight_kernel<Outputs>, shape, stream, args);
}

template <typename Element>
void launch_tensor(const Arguments& args, int multiprocessors, cudaStream_t stream) {
  const int stripes = (args.out + outputs - 1) / outputs;
  const int tiles = (args.in + inputs - 1) / inputs;
  const int splits = std::clamp(multiprocessors / stripes, 1, tiles);
  const int each = (tiles + splits - 1) / splits;
  const LaunchShape shape{dim3(static_cast<unsigned>(splits), static_cast<unsigned>(stripes)), dim3(threads),
                          4 * (gradient_floats<Element> + std::min(stages, each) * stage_floats<Element>)};
  launch(tensor_weight_kernel<Element>, shape, stream, args);
}

}  // namespace

void FewRows::backward_weight(DType operands, const void* x, const void* dy, float* dw, float* db, const WeightCopies& copies,
                              float keep, float factor, bool early, cudaStream_t stream) const {
  const Arguments args{x, dy, dw, db, copies, rows, in, out, keep, factor, early};
  if (tf32 || operands != DType::f32) {
    with_element(operands, [&](auto element) { launch_tensor<decltype(element)>(args, multiprocessors, stream); });
    return;
  }
  const int tiles = ((out + 127) / 128) * ((in + plain_inputs - 1) / plain_inputs);
  tiles < multiprocessors ? launch_plain<64>(args, multiprocessors, stream) : launch_plain<128>(args, multiprocessors, stream);
}

}  // namespace baton::cuda
