#include <algorithm>

#include "baton/cuda/convolution.h"
#include "baton/cuda/convolution_tiles.cuh"
#include "baton/cuda/element.cuh"
#include "baton/cuda/fragments.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"

/// A convolution and its gradients as products of matrices that are never stored: tiles of both operands are gathered from the
/// images while the tiles before them are multiplied.
namespace baton::cuda {
namespace {

/// An index of the sum, as both operands need it; there is none if `left` is negative.
struct alignas(16) Entry {
  int left;
  int right;
  int y;
  int x;
};

/// A row of the right operand.
struct Right {
  int offset;
  int y;
  int x;
  bool valid;
};

/// y: rows of the left operand are output channels, of the right one pixels of all samples; sums over input channels and window.
template <typename Element>
struct Forward {
  static constexpr bool neighbours_are_rows = true;  // rows of the right operand are neighbours in memory
  Geometry g;
  const Element* left;   // W
  const Element* right;  // x
  int left_rows, right_rows, depth, left_stride;
  bool packed;  // sixteen bytes of a row of the left operand are neighbours in memory

  __device__ Entry entry(int k) const {
    const int channel = k / g.window();
    const int row = k % g.window() / g.columns;
    const int column = k % g.columns;
    return {k, channel * g.image() + row * g.width + column, row, column};
  }
  __device__ Right row(int n) const {
    const int sample = n / g.pixels();
    const int y = n % g.pixels() / g.out_width * g.stride - g.padding;
    const int x = n % g.out_width * g.stride - g.padding;
    return {sample * g.in * g.image() + y * g.width + x, y, x, n < right_rows};
  }
  __device__ Element value(const Right& row, const Entry& entry) const {
    const bool inside = static_cast<unsigned>(row.y + entry.y) < static_cast<unsigned>(g.height) &&
                        static_cast<unsigned>(row.x + entry.x) < static_cast<unsigned>(g.width);
    return inside ? right[row.offset + entry.right] : rounded<Element>(0.0F);
  }
};

/// dx: rows are input channels, and pixels of the input; sums over output channels and window.
template <typename Element>
struct BackwardInput {
  static constexpr bool neighbours_are_rows = true;
  Geometry g;
  const Element* left;   // W
  const Element* right;  // dy
  int left_rows, right_rows, depth, left_stride;
  bool packed;

  __device__ Entry entry(int k) const {
    const int channel = k / g.window();
    const int in_window = k % g.window();
    return {channel * g.in * g.window() + in_window, channel * g.pixels(), in_window / g.columns, in_window % g.columns};
  }
  __device__ Right row(int n) const {
    const int sample = n / g.image();
    return {sample * g.out * g.pixels(), n % g.image() / g.width + g.padding, n % g.width + g.padding, n < right_rows};
  }
  __device__ Element value(const Right& row, const Entry& entry) const {
    const int y = row.y - entry.y;
    const int x = row.x - entry.x;
    const int out_y = g.stride == 1 ? y : y / g.stride;
    const int out_x = g.stride == 1 ? x : x / g.stride;
    const bool inside = y >= 0 && x >= 0 && out_y < g.out_height && out_x < g.out_width && out_y * g.stride == y &&
                        out_x * g.stride == x;
    return inside ? right[row.offset + entry.right + out_y * g.out_width + out_x] : rounded<Element>(0.0F);
  }
};

/// dW: rows are output channels, and input channels with places in the window; sums over pixels of all samples.
template <typename Element>
struct BackwardWeight {
  static constexpr bool neighbours_are_rows = false;
  Geometry g;
  const Element* left;   // dy
  const Element* right;  // x
  int left_rows, right_rows, depth, left_stride;
  bool packed;

  __device__ Entry entry(int k) const {
    const int sample = k / g.pixels();
    const int pixel = k % g.pixels();
    return {sample * g.out * g.pixels() + pixel, sample * g.in * g.image(), pixel / g.out_width * g.stride - g.padding,
            pixel % g.out_width * g.stride - g.padding};
  }
  __device__ Right row(int n) const {
    return {n / g.window() * g.image(), n % g.window() / g.columns, n % g.columns, n < right_rows};
  }
  __device__ Element value(const Right& row, const Entry& entry) const {
    const int y = row.y + entry.y;
    const int x = row.x + entry.x;
    const bool inside = static_cast<unsigned>(y) < static_cast<unsigned>(g.height) &&
                        static_cast<unsigned>(x) < static_cast<unsigned>(g.width);
    return inside ? right[row.offset + entry.right + y * g.width + x] : rounded<Element>(0.0F);
  }
};

/// Writes images: row m is a channel, column n a pixel of a sample.
template <typename Element>
struct ToImages {
  Element* images;
  const Element* bias;  // per channel, or null
  int channels;
  int pixels;
  __device__ void operator()(int m, int n, float sum) const {
    const std::int64_t at = (static_cast<std::int64_t>(n / pixels) * channels + m) * pixels + n % pixels;
    images[at] = rounded<Element>(bias == nullptr ? sum : sum + widened(bias[m]));
  }
};

/// Writes the sums of one part of the depth.
struct ToSums {
  float* sums;
  int rows;
  int columns;
  __device__ void operator()(int m, int n, float sum) const {
    sums[(static_cast<std::int64_t>(blockIdx.z) * rows + m) * columns + n] = sum;
  }
};

constexpr int threads = 128;
constexpr int right_tile = 64;
constexpr int row_bytes = 64;  // bytes per row of a tile
constexpr int row_chunks = row_bytes / 16;

__device__ std::uint32_t tile_at(std::uint32_t tile, int row, int chunk) {
  return tile + static_cast<std::uint32_t>(row * row_bytes + ((chunk ^ (row >> 1 & 3)) << 4));
}

__device__ void store_chunk(std::uint32_t address, const uint4& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}
__device__ float4 load_floats(std::uint32_t address) {
  float4 result;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(result.x), "=f"(result.y), "=f"(result.z), "=f"(result.w)
               : "r"(address)
               : "memory");
  return result;
}

/// A block's tile of the result is 32 · LeftTiles × 64. With tensor cores each of the four warps has a quarter of it; without, each
/// thread has every 16th row and every 8th column. blockIdx.z is the part of the depth.
template <typename Element, typename Task, typename Store, int LeftTiles, bool TensorCores>
__global__ void __launch_bounds__(threads) convolution_kernel(const Task task, const Store store) {
  constexpr int left_tile = 32 * LeftTiles;
  constexpr int chunk = 16 / sizeof(Element);
  constexpr int step = row_bytes / sizeof(Element);              // elements along the depth per step
  constexpr int left_chunks = left_tile * row_chunks / threads;  // per thread
  constexpr int right_chunks = right_tile * row_chunks / threads;
  constexpr int stage_bytes = (left_tile + right_tile) * row_bytes;
  __shared__ __align__(128) unsigned char tiles[2 * stage_bytes];
  __shared__ Entry entries[2][step];
  const std::uint32_t shared = shared_address_of(tiles);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_left = static_cast<int>(blockIdx.y) * left_tile;
  const int first_right = static_cast<int>(blockIdx.x) * right_tile;
  const int all_steps = (task.depth + step - 1) / step;
  const int first_step = static_cast<int>(static_cast<std::int64_t>(all_steps) * blockIdx.z / gridDim.z);
  const int last_step = static_cast<int>(static_cast<std::int64_t>(all_steps) * (blockIdx.z + 1) / gridDim.z);

  const auto left_row = [&](int i) { return (i * threads + thread) / row_chunks; };
  const auto left_chunk = [&](int i) { return (i * threads + thread) % row_chunks; };
  const auto right_row = [&](int i) {
    return Task::neighbours_are_rows ? (i * threads + thread) % right_tile : (i * threads + thread) / row_chunks;
  };
  const auto right_chunk = [&](int i) {
    return Task::neighbours_are_rows ? (i * threads + thread) / right_tile : (i * threads + thread) % row_chunks;
  };
  Right rights[right_chunks];
#pragma unroll
  for (int i = 0; i < right_chunks; ++i) {
    rights[i] = task.row(first_right + right_row(i));
  }
  const auto note_entries = [&](int s) {
    if (thread < step && s < last_step) {
      const int k = s * step + thread;
      entries[s % 2][thread] = k < task.depth ? task.entry(k) : Entry{-1, 0, 0, 0};
    }
  };
  uint4 left_held[left_chunks];
  uint4 right_held[right_chunks];
  const auto fetch = [&](int s) {
    const Entry* noted = entries[s % 2];
    using P = Pack<Element>;
#pragma unroll
    for (int i = 0; i < left_chunks; ++i) {
      const int m = first_left + left_row(i);
      P pack{};
      if (m < task.left_rows) {
        const Element* row = task.left + static_cast<std::int64_t>(m) * task.left_stride;
        if (task.packed) {
          const int at = noted[left_chunk(i) * chunk].left;
          if (at >= 0) {
            pack = *reinterpret_cast<const P*>(row + at);
          }
        } else {
#pragma unroll
          for (int e = 0; e < chunk; ++e) {
            const int at = noted[left_chunk(i) * chunk + e].left;
            if (at >= 0) {
              pack.elements[e] = row[at];
            }
          }
        }
      }
      left_held[i] = *reinterpret_cast<const uint4*>(&pack);
    }
#pragma unroll
    for (int i = 0; i < right_chunks; ++i) {
      P pack{};
      if (rights[i].valid) {
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          const Entry entry = noted[right_chunk(i) * chunk + e];
          if (entry.left >= 0) {
            pack.elements[e] = task.value(rights[i], entry);
          }
        }
      }
      right_held[i] = *reinterpret_cast<const uint4*>(&pack);
    }
  };

  allow_next();
  await_previous();
  note_entries(first_step);
  __syncthreads();
  if (first_step < last_step) {
    fetch(first_step);
  }
  note_entries(first_step + 1);

  constexpr int thread_rows = left_tile / 16;
  constexpr int right_tiles = 4;  // tiles of 8 columns, per warp
  float sums[TensorCores ? LeftTiles : thread_rows][TensorCores ? right_tiles : 2][4] = {};
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int warp_left = warp / 2 * (left_tile / 2);
  const int warp_right = warp % 2 * (right_tile / 2);
  for (int s = first_step; s < last_step; ++s) {
    const std::uint32_t left_tile_at = shared + static_cast<std::uint32_t>((s - first_step) % 2 * stage_bytes);
    const std::uint32_t right_tile_at = left_tile_at + left_tile * row_bytes;
#pragma unroll
    for (int i = 0; i < left_chunks; ++i) {
      store_chunk(tile_at(left_tile_at, left_row(i), left_chunk(i)), left_held[i]);
    }
#pragma unroll
    for (int i = 0; i < right_chunks; ++i) {
      store_chunk(tile_at(right_tile_at, right_row(i), right_chunk(i)), right_held[i]);
    }
    __syncthreads();
    if (s + 1 < last_step) {
      fetch(s + 1);
    }
    note_entries(s + 2);
    if constexpr (TensorCores) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t left[LeftTiles][4];
#pragma unroll
        for (int i = 0; i < LeftTiles; ++i) {
          load_fragments(left[i], tile_at(left_tile_at, warp_left + 16 * i + lane % 16, 2 * half + lane / 16));
        }
#pragma unroll
        for (int pair = 0; pair < right_tiles / 2; ++pair) {
          std::uint32_t right[4];
          load_fragments(right, tile_at(right_tile_at, warp_right + 16 * pair + lane % 8 + lane / 16 * 8, 2 * half + lane / 8 % 2));
#pragma unroll
          for (int i = 0; i < LeftTiles; ++i) {
            multiply_fragments<Element>(sums[i][2 * pair], left[i], right[0], right[1]);
            multiply_fragments<Element>(sums[i][2 * pair + 1], left[i], right[2], right[3]);
          }
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < row_chunks; ++c) {
        float4 left[thread_rows];
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) {
          left[i] = load_floats(tile_at(left_tile_at, thread / 8 + 16 * i, c));
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float4 right = load_floats(tile_at(right_tile_at, thread % 8 + 8 * j, c));
#pragma unroll
          for (int i = 0; i < thread_rows; ++i) {
            float& sum = sums[i][j / 4][j % 4];
            sum += left[i].x * right.x;
            sum += left[i].y * right.y;
            sum += left[i].z * right.z;
            sum += left[i].w * right.w;
          }
        }
      }
    }
  }

  const auto write = [&](int m, int n, float sum) {
    if (m < task.left_rows && n < task.right_rows) {
      store(m, n, sum);
    }
  };
  if constexpr (TensorCores) {
#pragma unroll
    for (int i = 0; i < LeftTiles; ++i) {
#pragma unroll
      for (int j = 0; j < right_tiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          write(first_left + warp_left + 16 * i + lane / 4 + e / 2 * 8, first_right + warp_right + 8 * j + 2 * (lane % 4) + e % 2,
                sums[i][j][e]);
        }
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        write(first_left + thread / 8 + 16 * i, first_right + thread % 8 + 8 * j, sums[i][j / 4][j % 4]);
      }
    }
  }
}

template <typename Element, typename Task, typename Store>
void run(const Task& task, const Store& store, bool tensor_cores, int parts, cudaStream_t stream) {
  const auto with = [&](auto* kernel, int left_tile) {
    launch(kernel,
           {dim3(static_cast<unsigned>((task.right_rows + right_tile - 1) / right_tile),
                 static_cast<unsigned>((task.left_rows + left_tile - 1) / left_tile), static_cast<unsigned>(parts)),
            dim3(threads)},
           stream, task, store);
  };
  if constexpr (sizeof(Element) == 4) {
    if (!tensor_cores) {
      return with(convolution_kernel<Element, Task, Store, 2, false>, 64);
    }
  }
  if (task.left_rows > 64) {
    with(convolution_kernel<Element, Task, Store, 4, true>, 128);
  } else {
    with(convolution_kernel<Element, Task, Store, 2, true>, 64);
  }
}

/// The number of parts of the depth of the weights' gradient, so that there is work for the whole GPU.
int parts_of(DType type, const ConvolutionShape& shape) {
  constexpr std::int64_t enough_blocks = 264;
  constexpr std::int64_t least_steps = 8;
  const std::int64_t left_tile = shape.out > 64 && is_narrow(type) ? 128 : 64;
  const std::int64_t columns = shape.in * shape.rows * shape.columns;
  const std::int64_t tiles = (shape.out + left_tile - 1) / left_tile * ((columns + right_tile - 1) / right_tile);
  const std::int64_t steps = shape.samples * shape.pixels() * size_of(type) / row_bytes;
  return static_cast<int>(std::clamp<std::int64_t>(enough_blocks / tiles, 1, std::clamp<std::int64_t>(steps / least_steps, 1, 64)));
}

constexpr int sum_threads = 256;

template <typename Element>
__global__ void __launch_bounds__(sum_threads)
    sum_parts_kernel(const float* sums, Element* dw, std::int64_t count, int parts, bool accumulate) {
  allow_next();
  await_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sum_threads + threadIdx.x;
  if (i < count) {
    float sum = 0;
    for (int part = 0; part < parts; ++part) {
      sum += sums[part * count + i];
    }
    dw[i] = rounded<Element>((accumulate ? widened(dw[i]) : 0.0F) + sum);
  }
}

constexpr int channel_threads = 1024;

/// One block per channel.
template <typename Element, typename Gradient>
__global__ void __launch_bounds__(channel_threads)
    channel_sum_kernel(const Element* dy, Gradient* db, int samples, int channels, int pixels, bool accumulate) {
  __shared__ float shared[channel_threads];
  allow_next();
  await_previous();
  float sum = 0;
  for (int s = 0; s < samples; ++s) {
    const Element* image = dy + (static_cast<std::int64_t>(s) * channels + blockIdx.x) * pixels;
    for (int p = static_cast<int>(threadIdx.x); p < pixels; p += channel_threads) {
      sum += widened(image[p]);
    }
  }
  shared[threadIdx.x] = sum;
  for (int others = channel_threads / 2; others > 0; others /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < others) {
      shared[threadIdx.x] += shared[threadIdx.x + others];
    }
  }
  if (threadIdx.x == 0) {
    db[blockIdx.x] = rounded<Gradient>((accumulate ? widened(db[blockIdx.x]) : 0.0F) + shared[0]);
  }
}

}  // namespace

ConvolutionWay fastest_convolution(DType type, int code) {
  return is_narrow(type) && code == 90 ? ConvolutionWay::warp_groups : ConvolutionWay::gathered;
}

std::int64_t convolution_workspace(DType type, const ConvolutionShape& shape, ConvolutionWay way, ConvolutionPart part) {
  const bool by_groups = way == ConvolutionWay::warp_groups;
  switch (part) {
    case ConvolutionPart::forward:
      return by_groups ? hopper_convolution_workspace(shape) : 0;
    case ConvolutionPart::input:
      return by_groups ? hopper_convolution_input_workspace(shape) : 0;
    case ConvolutionPart::weight:
      return by_groups ? hopper_convolution_weight_workspace(shape)
                       : parts_of(type, shape) * shape.out * shape.in * shape.rows * shape.columns *
                             static_cast<std::int64_t>(sizeof(float));
  }
  return 0;
}

void convolution(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* x, const void* w, const void* b,
                 void* y, void* workspace, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const auto* images = static_cast<const Element*>(x);
    const auto* weights = static_cast<const Element*>(w);
    const auto* bias = static_cast<const Element*>(b);
    if constexpr (sizeof(Element) == 2) {
      if (way == ConvolutionWay::warp_groups) {
        return hopper_convolution(shape, images, weights, bias, static_cast<Element*>(y), workspace, stream);
      }
    }
    const Geometry g = geometry_of(shape);
    const int depth = g.in * g.window();
    const Forward<Element> task{
        g, weights, images, g.out, static_cast<int>(shape.samples) * g.pixels(), depth, depth, depth % Pack<Element>::size == 0};
    run<Element>(task, ToImages<Element>{static_cast<Element*>(y), bias, g.out, g.pixels()}, shape.tf32, 1, stream);
  });
}

void convolution_backward_input(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* dy, const void* w,
                                void* dx, void* workspace, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const auto* slopes = static_cast<const Element*>(dy);
    const auto* weights = static_cast<const Element*>(w);
    if constexpr (sizeof(Element) == 2) {
      if (way == ConvolutionWay::warp_groups) {
        return hopper_convolution_backward_input(shape, slopes, weights, static_cast<Element*>(dx), workspace, stream);
      }
    }
    const Geometry g = geometry_of(shape);
    const BackwardInput<Element> task{
        g, weights, slopes, g.in, static_cast<int>(shape.samples) * g.image(), g.out * g.window(), g.window(), false};
    run<Element>(task, ToImages<Element>{static_cast<Element*>(dx), nullptr, g.in, g.image()}, shape.tf32, 1, stream);
  });
}

void convolution_backward_weight(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* x, const void* dy,
                                 DType gradient, void* dw, void* db, bool accumulate, void* workspace, cudaStream_t stream) {
  with_elements(type, gradient, [&](auto element, auto result) {
    using Element = decltype(element);
    using Gradient = decltype(result);
    const auto* images = static_cast<const Element*>(x);
    const auto* slopes = static_cast<const Element*>(dy);
    const Geometry g = geometry_of(shape);
    const int columns = g.in * g.window();
    const auto sums = [&]() -> WeightSums {
      if constexpr (sizeof(Element) == 2) {
        if (way == ConvolutionWay::warp_groups) {
          return hopper_convolution_backward_weight(shape, images, slopes, workspace, stream);
        }
      }
      const int parts = parts_of(type, shape);
      const BackwardWeight<Element> task{g,          slopes,
                                         images,     g.out,
                                         columns,    static_cast<int>(shape.samples) * g.pixels(),
                                         g.pixels(), g.pixels() % Pack<Element>::size == 0};
      run<Element>(task, ToSums{static_cast<float*>(workspace), g.out, columns}, shape.tf32, parts, stream);
      return {static_cast<const float*>(workspace), parts};
    }();
    const std::int64_t count = static_cast<std::int64_t>(g.out) * columns;
    launch(sum_parts_kernel<Gradient>, {dim3(static_cast<unsigned>((count + sum_threads - 1) / sum_threads)), dim3(sum_threads)},
           stream, sums.sums, static_cast<Gradient*>(dw), count, sums.parts, accumulate);
    if (db != nullptr && shape.out_last) {
      bias_gradient(type, dy, gradient, db, shape.samples * shape.pixels(), shape.out, accumulate ? 1.0F : 0.0F, 1, stream);
    } else if (db != nullptr) {
      launch(channel_sum_kernel<Element, Gradient>, {dim3(static_cast<unsigned>(g.out)), dim3(channel_threads)}, stream, slopes,
             static_cast<Gradient*>(db), static_cast<int>(shape.samples), g.out, g.pixels(), accumulate);
    }
  });
}

}  // namespace baton::cuda
