#include <algorithm>

#include "baton/cuda/channels_last.h"
#include "baton/cuda/convolution_tiles.cuh"
#include "baton/cuda/fragments.cuh"
#include "baton/cuda/programmatic.cuh"
#include "baton/cuda/warp_group.cuh"

/// Convolutions of 16 bits by the products of warp groups. Images that have not their channels last are first copied so, to a
/// multiple of 8 of them, so that sixteen bytes under a window are neighbours; tiles of both operands are then copied to shared
/// memory ahead of their use. Built for compute capability 9.0 alone, which the instructions need.
namespace baton::cuda {
namespace {

constexpr int chunk = channel_multiple;  // elements of 16 bytes
constexpr int threads = 2 * group_threads;
constexpr int depth_step = 64;  // elements of a line of a tile
constexpr int half_bytes = depth_step * line_bytes;

int padded(std::int64_t channels) { return static_cast<int>(padded_channels(channels)); }

template <typename Element>
constexpr DType type_of() {
  return std::is_same_v<Element, __half> ? DType::f16 : DType::bf16;
}

// Products. Both operands of the first two have the depth along their lines; of the third, dW, along their rows.

struct WindowPosition {
  int offset;  // where the first element under the window is, in chunks
  int y;
  int x;
  bool valid;
};

template <typename Element>
struct Operands {
  Geometry g;
  const Element* left;   // rows of `depth` elements, or dy with its channels last
  const Element* right;  // images with their channels last
  int left_rows, right_rows, depth;
  int channels;  // chunks of the right operand's padded channels
  int left_channels;
};

/// y: rows are output channels, and pixels.
template <typename Element>
struct Forward : Operands<Element> {
  static constexpr bool turned = false;
  using Base = Operands<Element>;

  __device__ WindowPosition place(int n) const {
    const Geometry& g = Base::g;
    const int sample = n / g.pixels();
    const int y = n % g.pixels() / g.out_width * g.stride - g.padding;
    const int x = n % g.out_width * g.stride - g.padding;
    return {((sample * g.height + y) * g.width + x) * Base::channels, y, x, n < Base::right_rows};
  }
  /// Copies chunk `k` of the depth of a pixel's window.
  __device__ void copy(std::uint32_t to, const WindowPosition& place, int row, int column, int in_channels) const {
    const Geometry& g = Base::g;
    const bool valid = place.valid && row < g.rows && static_cast<unsigned>(place.y + row) < static_cast<unsigned>(g.height) &&
                       static_cast<unsigned>(place.x + column) < static_cast<unsigned>(g.width);
    const std::int64_t at = place.offset + (row * g.width + column) * Base::channels + in_channels;
    copy_chunk(to, Base::right + (valid ? at * chunk : 0), valid);
  }
};

/// dx: rows are input channels, and pixels of the input.
template <typename Element>
struct BackwardInput : Operands<Element> {
  static constexpr bool turned = false;
  using Base = Operands<Element>;

  __device__ WindowPosition place(int n) const {
    const Geometry& g = Base::g;
    const int sample = n / g.image();
    return {sample * g.pixels() * Base::channels, n % g.image() / g.width + g.padding, n % g.width + g.padding,
            n < Base::right_rows};
  }
  __device__ void copy(std::uint32_t to, const WindowPosition& place, int row, int column, int in_channels) const {
    const Geometry& g = Base::g;
    const int y = place.y - row;
    const int x = place.x - column;
    const int out_y = g.stride == 1 ? y : y / g.stride;
    const int out_x = g.stride == 1 ? x : x / g.stride;
    const bool valid = place.valid && row < g.rows && y >= 0 && x >= 0 && out_y < g.out_height && out_x < g.out_width &&
                       out_y * g.stride == y && out_x * g.stride == x;
    const std::int64_t at = place.offset + (out_y * g.out_width + out_x) * Base::channels + in_channels;
    copy_chunk(to, Base::right + (valid ? at * chunk : 0), valid);
  }
};

/// dW: rows are output channels, and places in the window with input channels; the depth is that of all pixels.
template <typename Element>
struct BackwardWeight : Operands<Element> {
  static constexpr bool turned = true;
  using Base = Operands<Element>;

  /// Copies the elements under the window's place that a chunk of columns stands for, at a pixel.
  __device__ void copy(std::uint32_t to, int pixel, int row, int column, int in_channels) const {
    const Geometry& g = Base::g;
    const int sample = pixel / g.pixels();
    const int y = pixel % g.pixels() / g.out_width * g.stride - g.padding + row;
    const int x = pixel % g.out_width * g.stride - g.padding + column;
    const bool valid = pixel < Base::depth && row < g.rows && static_cast<unsigned>(y) < static_cast<unsigned>(g.height) &&
                       static_cast<unsigned>(x) < static_cast<unsigned>(g.width);
    const std::int64_t at = ((sample * g.height + y) * g.width + x) * static_cast<std::int64_t>(Base::channels) + in_channels;
    copy_chunk(to, Base::right + (valid ? at * chunk : 0), valid);
  }
};

using Sums = float[16][4];  // 64 × 128 of a warp group

#define BATON_SUMS(i) "+f"(s[i][0]), "+f"(s[i][1]), "+f"(s[i][2]), "+f"(s[i][3])

template <typename Element, bool Transposed>
__device__ void multiply_tiles(Sums& s, std::uint64_t left, std::uint64_t right) {
#define BATON_MULTIPLY(types)                                                                                                 \
  asm volatile("{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\nwgmma.mma_async.sync.aligned.m64n128k16." types                   \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"     \
               "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"     \
               "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, add, 1, 1, %66, %66;\n}"                                  \
               : BATON_SUMS(0), BATON_SUMS(1), BATON_SUMS(2), BATON_SUMS(3), BATON_SUMS(4), BATON_SUMS(5), BATON_SUMS(6),     \
                 BATON_SUMS(7), BATON_SUMS(8), BATON_SUMS(9), BATON_SUMS(10), BATON_SUMS(11), BATON_SUMS(12), BATON_SUMS(13), \
                 BATON_SUMS(14), BATON_SUMS(15)                                                                               \
               : "l"(left), "l"(right), "n"(Transposed ? 1 : 0)                                                               \
               : "memory")
  if constexpr (std::is_same_v<Element, __half>) {
    BATON_MULTIPLY("f32.f16.f16");
  } else {
    BATON_MULTIPLY("f32.bf16.bf16");
  }
#undef BATON_MULTIPLY
}
#undef BATON_SUMS

/// A block's tile of the result: with two groups side by side along the left rows 128 × 128, with one 64 × 256.
template <int LeftGroups>
struct Tiling {
  static constexpr int left = 64 * LeftGroups;
  static constexpr int right = LeftGroups == 2 ? 128 : 256;
  static constexpr int stages = LeftGroups == 2 ? 3 : 2;
  static constexpr int left_bytes = left * line_bytes;
  static constexpr int stage_bytes = (left + right) * line_bytes;
  static constexpr int shared_bytes = stages * stage_bytes + tile_alignment;
};

template <int Pending>
__device__ void await_all_copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// blockIdx is (tile of right rows, tile of left rows, part of the depth).
template <typename Element, typename Task, typename Store, int LeftGroups>
__global__ void __launch_bounds__(threads, LeftGroups == 2 ? 2 : 1) hopper_convolution_kernel(const Task task, const Store store) {
  using T = Tiling<LeftGroups>;
  extern __shared__ unsigned char memory[];
  const std::uint32_t tiles = (shared_address_of(memory) + tile_alignment - 1) / tile_alignment * tile_alignment;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_left = static_cast<int>(blockIdx.y) * T::left;
  const int first_right = static_cast<int>(blockIdx.x) * T::right;
  const int all_steps = (task.depth + depth_step - 1) / depth_step;
  const int first_step = static_cast<int>(static_cast<std::int64_t>(all_steps) * blockIdx.z / gridDim.z);
  const int last_step = static_cast<int>(static_cast<std::int64_t>(all_steps) * (blockIdx.z + 1) / gridDim.z);

  // If the depth lies along lines, a thread has chunk thread % 8 of every 32nd line; if the operand is transposed, one column of
  // chunks.
  constexpr int lines = Task::turned ? 1 : T::right / 32;
  WindowPosition places[lines];
  int window_row = 0;
  int window_column = 0;
  int in_channels = 0;
  const auto set_window = [&](int chunk_number) {
    const int cell = chunk_number / task.channels;
    in_channels = chunk_number % task.channels;
    window_row = cell / task.g.columns;
    window_column = cell % task.g.columns;
  };
  if constexpr (Task::turned) {
    set_window(first_right / chunk + thread % (T::right / chunk));
  } else {
#pragma unroll
    for (int i = 0; i < lines; ++i) {
      places[i] = task.place(first_right + thread / 8 + 32 * i);
    }
  }
  const auto line_at = [](std::uint32_t tile, int line, int column) {
    return tile + static_cast<std::uint32_t>(line * line_bytes + ((column ^ (line & 7)) << 4));
  };
  const auto fetch = [&](int s) {
    if (s < last_step) {
      const std::uint32_t left = tiles + static_cast<std::uint32_t>((s - first_step) % T::stages * T::stage_bytes);
      const std::uint32_t right = left + T::left_bytes;
      if constexpr (Task::turned) {
        constexpr int left_columns = T::left / chunk;
#pragma unroll
        for (int i = 0; i < depth_step * left_columns / threads; ++i) {
          const int column = thread % left_columns;
          const int line = thread / left_columns + threads / left_columns * i;
          const int pixel = s * depth_step + line;
          const int m = first_left + column * chunk;
          const bool valid = pixel < task.depth && m < task.left_channels;
          copy_chunk(line_at(left + static_cast<std::uint32_t>(column / 8 * half_bytes), line, column % 8),
                     task.left + (valid ? static_cast<std::int64_t>(pixel) * task.left_channels + m : 0), valid);
        }
        constexpr int right_columns = T::right / chunk;
#pragma unroll
        for (int i = 0; i < depth_step * right_columns / threads; ++i) {
          const int column = thread % right_columns;
          const int line = thread / right_columns + threads / right_columns * i;
          task.copy(line_at(right + static_cast<std::uint32_t>(column / 8 * half_bytes), line, column % 8), s * depth_step + line,
                    window_row, window_column, in_channels);
        }
      } else {
        const int k = s * depth_step + thread % 8 * chunk;
#pragma unroll
        for (int i = 0; i < T::left / 32; ++i) {
          const int line = thread / 8 + 32 * i;
          const int m = first_left + line;
          const bool valid = m < task.left_rows && k < task.depth;
          copy_chunk(line_at(left, line, thread % 8), task.left + (valid ? static_cast<std::int64_t>(m) * task.depth + k : 0),
                     valid);
        }
        set_window(k / chunk);
#pragma unroll
        for (int i = 0; i < lines; ++i) {
          task.copy(line_at(right, thread / 8 + 32 * i, thread % 8), places[i], window_row, window_column, in_channels);
        }
      }
    }
    end_of_copies();  // an empty group after the last, so that the count holds
  };

  allow_next();
  await_previous();
#pragma unroll
  for (int i = 0; i < T::stages - 1; ++i) {
    fetch(first_step + i);
  }
  const int group = thread / group_threads;
  const int group_left = LeftGroups == 2 ? group : 0;   // in 64 rows
  const int group_right = LeftGroups == 2 ? 0 : group;  // in 128 rows
  Sums sums = {};
  for (int s = first_step; s < last_step; ++s) {
    await_all_copies_but<T::stages - 2>();
    show_copies();
    __syncthreads();
    fetch(s + T::stages - 1);
    const std::uint32_t left = tiles + static_cast<std::uint32_t>((s - first_step) % T::stages * T::stage_bytes);
    const std::uint32_t right = left + T::left_bytes;
    begin_products();
#pragma unroll
    for (int step = 0; step < depth_step / 16; ++step) {
      if constexpr (Task::turned) {
        const auto down = static_cast<std::uint32_t>(16 * line_bytes * step);
        multiply_tiles<Element, true>(
            sums, described(left + static_cast<std::uint32_t>(group_left * half_bytes) + down),
            described(right + static_cast<std::uint32_t>(2 * group_right * half_bytes) + down, half_bytes));
      } else {
        const auto along = static_cast<std::uint32_t>(32 * step);
        multiply_tiles<Element, false>(sums, described(left + static_cast<std::uint32_t>(group_left * 64 * line_bytes) + along),
                                       described(right + static_cast<std::uint32_t>(group_right * 128 * line_bytes) + along));
      }
    }
    end_products();
    await_products<0>();
  }

  const int lane = thread % 32;
  const int row = 64 * group_left + thread % group_threads / 32 * 16 +
                  lane / 4;  // the row in the tile; the thread also has that row + 8
  const int column = 128 * group_right + 2 * (lane % 4);
  if constexpr (Task::turned) {
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        store(first_left + row + e / 2 * 8, first_right + column + 8 * n + e % 2, sums[n][e]);
      }
    }
  } else {
    // Through shared memory, so that neighbours are written at once.
    constexpr int pitch = T::right + chunk;
    static_assert(T::left * pitch * 2 <= T::stages * T::stage_bytes);
    await_all_copies_but<0>();
    __syncthreads();
    auto* staged = reinterpret_cast<Element*>(memory + (tiles - shared_address_of(memory)));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = first_left + row + 8 * half;
      const float bias = store.bias != nullptr && m < task.left_rows ? widened(store.bias[m]) : 0.0F;
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        *reinterpret_cast<std::uint32_t*>(staged + (row + 8 * half) * pitch + column + 8 * n) = pair_of<Element>(
            sums[n][2 * half] + bias, sums[n][2 * half + 1] + bias);
      }
    }
    __syncthreads();
    if constexpr (Store::channels_last) {
      for (int i = thread; i < T::left * T::right / chunk; i += threads) {
        const int pixel = i / (T::left / chunk);
        const int channel = i % (T::left / chunk) * chunk;
        Pack<Element> pack;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          pack.elements[e] = staged[(channel + e) * pitch + pixel];
        }
        if (first_left + channel < task.left_rows && first_right + pixel < task.right_rows) {
          store(first_left + channel, first_right + pixel, pack);
        }
      }
    } else {
      for (int i = thread; i < T::left * T::right / chunk; i += threads) {
        const int line = i / (T::right / chunk);
        const int at = i % (T::right / chunk) * chunk;
        if (first_left + line < task.left_rows) {
          store(first_left + line, first_right + at, *reinterpret_cast<const Pack<Element>*>(staged + line * pitch + at),
                task.right_rows);
        }
      }
    }
  }
}

/// Eight channels of a pixel at a time, of a multiple of eight.
template <typename Element>
struct ToChannelsLast {
  static constexpr bool channels_last = true;
  Element* images;
  const Element* bias;
  int channels;
  __device__ void operator()(int m, int n, const Pack<Element>& pack) const {
    *reinterpret_cast<Pack<Element>*>(images + static_cast<std::int64_t>(n) * channels + m) = pack;
  }
};

/// Eight pixels of a channel at a time.
template <typename Element>
struct ToImages {
  static constexpr bool channels_last = false;
  Element* images;
  const Element* bias;
  int channels;
  int pixels;
  __device__ void operator()(int m, int n, const Pack<Element>& pack, int all_pixels) const {
    if (pixels % chunk == 0) {
      if (n < all_pixels) {
        *reinterpret_cast<Pack<Element>*>(images + (static_cast<std::int64_t>(n / pixels) * channels + m) * pixels +
                                          n % pixels) = pack;
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < chunk; ++e) {
      if (n + e < all_pixels) {
        images[(static_cast<std::int64_t>((n + e) / pixels) * channels + m) * pixels + (n + e) % pixels] = pack.elements[e];
      }
    }
  }
};

/// The sums of one part of the depth, as [out][in][window].
struct ToSums {
  float* sums;
  int out;
  int in;
  int window;
  int padded_in;
  __device__ void operator()(int m, int n, float sum) const {
    const int place = n / padded_in;
    const int channel = n % padded_in;
    if (m < out && place < window && channel < in) {
      sums[((static_cast<std::int64_t>(blockIdx.z) * out + m) * in + channel) * window + place] = sum;
    }
  }
};

template <typename Element, typename Task, typename Store>
void run(const Task& task, const Store& store, int parts, cudaStream_t stream) {
  const auto with = [&](auto* kernel, auto tiling) {
    using T = decltype(tiling);
    launch(kernel,
           {dim3(static_cast<unsigned>((task.right_rows + T::right - 1) / T::right),
                 static_cast<unsigned>((task.left_rows + T::left - 1) / T::left), static_cast<unsigned>(parts)),
            dim3(threads), T::shared_bytes},
           stream, task, store);
  };
  if (task.left_rows > 64) {
    with(hopper_convolution_kernel<Element, Task, Store, 2>, Tiling<2>());
  } else {
    with(hopper_convolution_kernel<Element, Task, Store, 1>, Tiling<1>());
  }
}

constexpr std::int64_t aligned(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

template <typename Element>
Element* at_offset(void* workspace, std::int64_t bytes) {
  return reinterpret_cast<Element*>(static_cast<std::byte*>(workspace) + bytes);
}

std::int64_t image_bytes(std::int64_t samples, std::int64_t channels, std::int64_t pixels) {
  return aligned(samples * padded(channels) * pixels * 2);
}

/// The images themselves if they are in that order, else a copy at `to`.
template <typename Element>
const Element* channels_last_of(const Element* x, bool already, void* to, std::int64_t samples, std::int64_t channels,
                                std::int64_t pixels, cudaStream_t stream) {
  if (already) {
    return x;
  }
  to_channels_last(type_of<Element>(), x, to, samples, channels, pixels, stream);
  return static_cast<const Element*>(to);
}

/// The number of parts into which the depth of dW is divided.
int parts_of(const ConvolutionShape& shape) {
  constexpr std::int64_t enough_blocks = 264;
  constexpr std::int64_t least_steps = 8;
  const std::int64_t left_tile = shape.out > 64 ? Tiling<2>::left : Tiling<1>::left;
  const std::int64_t right_tile = shape.out > 64 ? Tiling<2>::right : Tiling<1>::right;
  const std::int64_t columns = padded(shape.in) * shape.rows * shape.columns;
  const std::int64_t tiles = (shape.out + left_tile - 1) / left_tile * ((columns + right_tile - 1) / right_tile);
  const std::int64_t steps = shape.samples * shape.pixels() / depth_step;
  return static_cast<int>(std::clamp<std::int64_t>(enough_blocks / tiles, 1, std::clamp<std::int64_t>(steps / least_steps, 1, 64)));
}

}  // namespace

std::int64_t hopper_convolution_workspace(const ConvolutionShape& s) {
  return image_bytes(s.samples, s.in, s.height * s.width) + aligned(s.out * s.rows * s.columns * padded(s.in) * 2);
}
std::int64_t hopper_convolution_input_workspace(const ConvolutionShape& s) {
  return image_bytes(s.samples, s.out, s.pixels()) + aligned(s.in * s.rows * s.columns * padded(s.out) * 2);
}
std::int64_t hopper_convolution_weight_workspace(const ConvolutionShape& s) {
  return image_bytes(s.samples, s.in, s.height * s.width) + image_bytes(s.samples, s.out, s.pixels()) +
         parts_of(s) * s.out * s.in * s.rows * s.columns * static_cast<std::int64_t>(sizeof(float));
}

template <typename Element>
void hopper_convolution(const ConvolutionShape& shape, const Element* x, const Element* w, const Element* b, Element* y,
                        void* workspace, cudaStream_t stream) {
  const Geometry g = geometry_of(shape);
  auto* weights = at_offset<Element>(workspace, image_bytes(shape.samples, g.in, g.image()));
  const Element* images = channels_last_of(x, shape.in_last, workspace, shape.samples, g.in, g.image(), stream);
  weights_channels_last(type_of<Element>(), w, weights, g.out, g.in, g.window(), false, stream);
  const Forward<Element> task{{g, weights, images, g.out, static_cast<int>(shape.samples) * g.pixels(), g.window() * padded(g.in),
                               padded(g.in) / chunk, 0}};
  if (shape.out_last) {
    return run<Element>(task, ToChannelsLast<Element>{y, b, g.out}, 1, stream);
  }
  run<Element>(task, ToImages<Element>{y, b, g.out, g.pixels()}, 1, stream);
}

template <typename Element>
void hopper_convolution_backward_input(const ConvolutionShape& shape, const Element* dy, const Element* w, Element* dx,
                                       void* workspace, cudaStream_t stream) {
  const Geometry g = geometry_of(shape);
  auto* weights = at_offset<Element>(workspace, image_bytes(shape.samples, g.out, g.pixels()));
  const Element* slopes = channels_last_of(dy, shape.out_last, workspace, shape.samples, g.out, g.pixels(), stream);
  weights_channels_last(type_of<Element>(), w, weights, g.out, g.in, g.window(), true, stream);
  const BackwardInput<Element> task{{g, weights, slopes, g.in, static_cast<int>(shape.samples) * g.image(),
                                     g.window() * padded(g.out), padded(g.out) / chunk, 0}};
  if (shape.in_last) {
    return run<Element>(task, ToChannelsLast<Element>{dx, nullptr, g.in}, 1, stream);
  }
  run<Element>(task, ToImages<Element>{dx, nullptr, g.in, g.image()}, 1, stream);
}

template <typename Element>
WeightSums hopper_convolution_backward_weight(const ConvolutionShape& shape, const Element* x, const Element* dy, void* workspace,
                                              cudaStream_t stream) {
  const Geometry g = geometry_of(shape);
  const std::int64_t x_bytes = image_bytes(shape.samples, g.in, g.image());
  auto* sums = at_offset<float>(workspace, x_bytes + image_bytes(shape.samples, g.out, g.pixels()));
  const Element* images = channels_last_of(x, shape.in_last, workspace, shape.samples, g.in, g.image(), stream);
  const Element* slopes = channels_last_of(dy, shape.out_last, at_offset<Element>(workspace, x_bytes), shape.samples, g.out,
                                           g.pixels(), stream);
  const int parts = parts_of(shape);
  const BackwardWeight<Element> task{{g, slopes, images, g.out, g.window() * padded(g.in),
                                      static_cast<int>(shape.samples) * g.pixels(), padded(g.in) / chunk, padded(g.out)}};
  run<Element>(task, ToSums{sums, g.out, g.in, g.window(), padded(g.in)}, parts, stream);
  return {sums, parts};
}

#define BATON_INSTANCES(Element)                                                                                             \
  template void hopper_convolution(const ConvolutionShape&, const Element*, const Element*, const Element*, Element*, void*, \
                                   cudaStream_t);                                                                            \
  template void hopper_convolution_backward_input(const ConvolutionShape&, const Element*, const Element*, Element*, void*,  \
                                                  cudaStream_t);                                                             \
  template WeightSums hopper_convolution_backward_weight(const ConvolutionShape&, const Element*, const Element*, void*,     \
                                                         cudaStream_t);
BATON_INSTANCES(__nv_bfloat16)
BATON_INSTANCES(__half)
#undef BATON_INSTANCES

}  // namespace baton::cuda
