#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"
#include "baton/cuda/status.h"

/// Norms of rows, with a mean (LayerNorm) or without (RmsNorm). Sums are float32 and their order depends on the shape alone. Where
/// two kernels must give the same bits, products and sums are spelled out, so that no compiler joins them in one kernel only.
namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int warp = 32;
constexpr int few_held = 32;  // elements per thread, of which a kernel keeps more than one array in registers
static_assert(most_summed_width == few_held * warp);

struct Moments {
  float mean;
  float factor;  // 1 / √(variance + epsilon)
};

/// The sum over the threads of a row: a warp's, or a block's. All of them get it.
template <int Threads>
__device__ float sum_of_row(float value) {
#pragma unroll
  for (int distance = warp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  }
  if constexpr (Threads > warp) {
    __shared__ float parts[Threads / warp];
    __syncthreads();
    if (threadIdx.x % warp == 0) {
      parts[threadIdx.x / warp] = value;
    }
    __syncthreads();
    value = parts[0];
#pragma unroll
    for (int i = 1; i < Threads / warp; ++i) {
      value += parts[i];
    }
  }
  return value;
}

/// Some neighbouring elements, read and written at once.
template <typename Element, int Width>
struct alignas(Width * sizeof(Element)) Group {
  Element elements[Width];
};

/// A thread's part of a row: groups of `Width` elements, `Threads` groups apart. `Held` of them are kept in registers; if `Held` is
/// zero, they are read at each use.
template <typename Element, int Threads, int Width, int Held>
struct RowPart {
  using G = Group<Element, Width>;
  static constexpr int per_group = Width;
  const G* row;
  int lane;
  int groups;
  float held[Held > 0 ? Held* Width : 1];

  __device__ RowPart(const Element* from, std::int64_t width)
      : row(reinterpret_cast<const G*>(from)),
        lane(static_cast<int>(threadIdx.x) % Threads),
        groups(static_cast<int>(width / Width)) {
    if constexpr (Held > 0) {
#pragma unroll
      for (int h = 0; h < Held; ++h) {
        if (h * Threads + lane < groups) {
          const G group = row[h * Threads + lane];
#pragma unroll
          for (int e = 0; e < Width; ++e) {
            held[h * Width + e] = widened(group.elements[e]);
          }
        }
      }
    }
  }

  /// The row that is the sum of two, which it writes to `sum`.
  template <typename Term>
  __device__ RowPart(const Element* from, const Term* term, Element* sum, std::int64_t width)
      : row(reinterpret_cast<const G*>(sum)),
        lane(static_cast<int>(threadIdx.x) % Threads),
        groups(static_cast<int>(width / Width)) {
    const auto add = [&](int g, float(&values)[Width]) {
      const G one = reinterpret_cast<const G*>(from)[g];
      const auto other = reinterpret_cast<const Group<Term, Width>*>(term)[g];
      G both;
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        both.elements[e] = rounded<Element>(widened(one.elements[e]) + widened(other.elements[e]));
        values[e] = widened(both.elements[e]);
      }
      reinterpret_cast<G*>(sum)[g] = both;
    };
    if constexpr (Held > 0) {
#pragma unroll
      for (int h = 0; h < Held; ++h) {
        if (h * Threads + lane < groups) {
          float values[Width];
          add(h * Threads + lane, values);
#pragma unroll
          for (int e = 0; e < Width; ++e) {
            held[h * Width + e] = values[e];
          }
        }
      }
    } else {
      for (int g = lane; g < groups; g += Threads) {  // the same thread reads them back
        float values[Width];
        add(g, values);
      }
    }
  }

  /// Calls `work(which of the thread's groups that are held, group, values)` for each of the thread's groups.
  template <typename Work>
  __device__ void each(Work work) const {
    if constexpr (Held > 0) {
#pragma unroll
      for (int h = 0; h < Held; ++h) {
        if (h * Threads + lane < groups) {
          float values[Width];
#pragma unroll
          for (int e = 0; e < Width; ++e) {
            values[e] = held[h * Width + e];
          }
          work(h, h * Threads + lane, values);
        }
      }
    } else {
      for (int g = lane; g < groups; g += Threads) {
        const G group = row[g];
        float values[Width];
#pragma unroll
        for (int e = 0; e < Width; ++e) {
          values[e] = widened(group.elements[e]);
        }
        work(0, g, values);
      }
    }
  }

  template <bool Centred>
  __device__ Moments moments(std::int64_t width, float epsilon) const {
    float mean = 0;
    if constexpr (Centred) {
      float sum = 0;
      each([&](int, int, const float(&values)[Width]) {
#pragma unroll
        for (int e = 0; e < Width; ++e) {
          sum += values[e];
        }
      });
      mean = sum_of_row<Threads>(sum) / static_cast<float>(width);
    }
    float squares = 0;
    each([&](int, int, const float(&values)[Width]) {
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        const float distance = __fsub_rn(values[e], mean);
        squares = __fmaf_rn(distance, distance, squares);
      }
    });
    return {mean, 1 / sqrtf(sum_of_row<Threads>(squares) / static_cast<float>(width) + epsilon)};
  }
};

template <int Threads>
__device__ std::int64_t own_row() {
  return static_cast<std::int64_t>(blockIdx.x) * (threads / Threads) + threadIdx.x / Threads;
}

__device__ float normalized(float value, const Moments& moments) {
  return __fmul_rn(__fsub_rn(value, moments.mean), moments.factor);
}

/// Writes y of a row.
template <bool Centred, typename Element, typename Part>
__device__ void write_normal(const Part& part, const Element* gain, const Element* bias, Element* y, std::int64_t width,
                             float epsilon) {
  const Moments moments = part.template moments<Centred>(width, epsilon);
  using G = Group<Element, Part::per_group>;
  part.each([&](int, int g, const float(&values)[Part::per_group]) {
    const G gains = reinterpret_cast<const G*>(gain)[g];
    G biases{};
    if constexpr (Centred) {
      biases = reinterpret_cast<const G*>(bias)[g];
    }
    G result;
#pragma unroll
    for (int e = 0; e < Part::per_group; ++e) {
      const float normal = normalized(values[e], moments);
      const float factor = widened(gains.elements[e]);
      result.elements[e] = rounded<Element>(Centred ? __fmaf_rn(normal, factor, widened(biases.elements[e]))
                                                    : __fmul_rn(normal, factor));
    }
    reinterpret_cast<G*>(y)[g] = result;
  });
}

template <typename Element, typename Stream, int Threads, int Width, int Held, bool Centred>
__global__ void __launch_bounds__(threads) norm_kernel(const Stream* x, const Element* gain, const Element* bias, Element* y,
                                                       std::int64_t rows, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t row = own_row<Threads>();
  if (row >= rows) {
    return;
  }
  const RowPart<Stream, Threads, Width, Held> part(x + row * width, width);
  write_normal<Centred>(part, gain, bias, y + row * width, width, epsilon);
}

/// As norm_kernel, of the sum of two terms, which it writes too.
template <typename Element, typename Stream, typename Term, int Threads, int Width, int Held, bool Centred>
__global__ void __launch_bounds__(threads)
    norm_of_sum_kernel(const Stream* x, const Term* term, Stream* sum, const Element* gain, const Element* bias, Element* y,
                       std::int64_t rows, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t row = own_row<Threads>();
  if (row >= rows) {
    return;
  }
  const RowPart<Stream, Threads, Width, Held> part(x + row * width, term + row * width, sum + row * width, width);
  write_normal<Centred>(part, gain, bias, y + row * width, width, epsilon);
}

/// The gradients of one row of x and of what was added to it: of an element whose slope times its gain is `scaled`.
struct RowSlopes {
  Moments moments;
  float mean;  // the mean of the scaled slopes
  float tilt;  // the mean of the scaled slopes times the normalized values

  __device__ float of(float scaled, float value) const {
    return __fmul_rn(__fmaf_rn(-normalized(value, moments), tilt, __fsub_rn(scaled, mean)), moments.factor);
  }
};

/// `each(use)` calls use(scaled slope, value) for each element of a thread.
template <int Threads, bool Centred, typename Each>
__device__ RowSlopes slopes_of_row(const Moments& moments, std::int64_t width, Each each) {
  float sum = 0;
  float along = 0;
  each([&](float scaled, float value) {
    sum = __fadd_rn(sum, scaled);
    along = __fmaf_rn(scaled, normalized(value, moments), along);
  });
  const float mean = Centred ? sum_of_row<Threads>(sum) / static_cast<float>(width) : 0.0F;
  return {moments, mean, sum_of_row<Threads>(along) / static_cast<float>(width)};
}

/// A group of another term of the gradient of x; zeros if there is none.
template <int Width, typename Stream>
__device__ Group<Stream, Width> term_of(const Stream* term, std::int64_t row, std::int64_t width, int g) {
  return term == nullptr ? Group<Stream, Width>{} : reinterpret_cast<const Group<Stream, Width>*>(term + row * width)[g];
}

/// Writes the gradients of a group of x, with another term added, and a copy of 16 bits if one is asked for.
template <typename Element, typename Stream, int Width>
__device__ void write_gradients(const float (&own)[Width], int g, const Group<Stream, Width>& added, Stream* dx, Element* copy) {
  Group<Stream, Width> result;
  Group<Element, Width> narrow;
#pragma unroll
  for (int e = 0; e < Width; ++e) {
    // The own gradient is rounded before the term is added, so that a sum in float32 has the bits that it would have in a kernel of
    // its own.
    result.elements[e] = rounded<Stream>(__fadd_rn(own[e], widened(added.elements[e])));
    narrow.elements[e] = rounded<Element>(widened(result.elements[e]));
  }
  reinterpret_cast<Group<Stream, Width>*>(dx)[g] = result;
  if (copy != nullptr) {
    reinterpret_cast<Group<Element, Width>*>(copy)[g] = narrow;
  }
}

template <typename Element, typename Stream, int Threads, int Width, int Held, bool Centred>
__global__ void __launch_bounds__(threads)
    norm_backward_input_kernel(const Element* dy, const Stream* x, const Element* gain, Stream* dx, const Stream* term,
                               Element* copy, std::int64_t rows, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t row = own_row<Threads>();
  if (row >= rows) {
    return;
  }
  const RowPart<Stream, Threads, Width, Held> part(x + row * width, width);
  using G = Group<Element, Width>;
  const auto* slopes = reinterpret_cast<const G*>(dy + row * width);
  const auto* gains = reinterpret_cast<const G*>(gain);
  constexpr bool keeps = Held > 0 && Held * Width <= few_held;
  float kept[keeps ? Held * Width : 1];  // slopes times gains
  const auto scale = [&](int g, int e) { return __fmul_rn(widened(slopes[g].elements[e]), widened(gains[g].elements[e])); };
  const auto scaled_slopes = [&](int h, int g, float(&scaled)[Width]) {
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      if constexpr (keeps) {
        scaled[e] = kept[h * Width + e];
      } else {
        scaled[e] = scale(g, e);
      }
    }
  };
  if constexpr (keeps) {
    part.each([&](int h, int g, const float(&)[Width]) {
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        kept[h * Width + e] = scale(g, e);
      }
    });
  }
  const Moments moments = part.template moments<Centred>(width, epsilon);
  const RowSlopes of_row = slopes_of_row<Threads, Centred>(moments, width, [&](auto use) {
    part.each([&](int h, int g, const float(&values)[Width]) {
      float scaled[Width];
      scaled_slopes(h, g, scaled);
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        use(scaled[e], values[e]);
      }
    });
  });
  part.each([&](int h, int g, const float(&values)[Width]) {
    float scaled[Width];
    scaled_slopes(h, g, scaled);
    float own[Width];
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      own[e] = of_row.of(scaled[e], values[e]);
    }
    write_gradients(own, g, term_of<Width>(term, row, width, g), dx + row * width, copy == nullptr ? nullptr : copy + row * width);
  });
}

template <typename Stream, int Threads, int Width, int Held, bool Centred>
__global__ void __launch_bounds__(threads)
    moments_kernel(const Stream* x, Moments* moments, std::int64_t rows, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t row = own_row<Threads>();
  if (row >= rows) {
    return;
  }
  const RowPart<Stream, Threads, Width, Held> part(x + row * width, width);
  const Moments own = part.template moments<Centred>(width, epsilon);
  if (threadIdx.x % Threads == 0) {
    moments[row] = own;
  }
}

constexpr int row_lanes = threads / warp;

/// Sums over some of the rows: `sums` is [gridDim.y][2][width], gains and biases. A block has a warp's width of groups; the rows
/// are dealt to its warps in turn.
template <typename Element, typename Stream, int Width>
__global__ void __launch_bounds__(threads) norm_weight_kernel(const Stream* x, const Element* dy, const Moments* moments,
                                                              float* sums, std::int64_t rows, std::int64_t width) {
  __shared__ float gains[row_lanes][warp * Width];
  __shared__ float biases[row_lanes][warp * Width];
  allow_next();
  await_previous();
  using G = Group<Element, Width>;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int row_lane = static_cast<int>(threadIdx.x) / warp;
  const std::int64_t groups = width / Width;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * warp + lane;
  const std::int64_t first = rows * blockIdx.y / gridDim.y;
  const std::int64_t last = rows * (blockIdx.y + 1) / gridDim.y;
  float gain[Width] = {};
  float bias[Width] = {};
  if (group < groups) {
#pragma unroll 4
    for (std::int64_t row = first + row_lane; row < last; row += row_lanes) {
      const auto values = reinterpret_cast<const Group<Stream, Width>*>(x)[row * groups + group];
      const G slopes = reinterpret_cast<const G*>(dy)[row * groups + group];
      const Moments own = moments[row];
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        const float slope = widened(slopes.elements[e]);
        gain[e] += slope * ((widened(values.elements[e]) - own.mean) * own.factor);
        bias[e] += slope;
      }
    }
  }
#pragma unroll
  for (int e = 0; e < Width; ++e) {
    gains[row_lane][lane * Width + e] = gain[e];
    biases[row_lane][lane * Width + e] = bias[e];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < warp * Width; i += threads) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp * Width + i;
    if (column < width) {
      float gain_sum = 0;
      float bias_sum = 0;
#pragma unroll
      for (int r = 0; r < row_lanes; ++r) {
        gain_sum += gains[r][i];
        bias_sum += biases[r][i];
      }
      sums[(2 * blockIdx.y) * width + column] = gain_sum;
      sums[(2 * blockIdx.y + 1) * width + column] = bias_sum;
    }
  }
}

constexpr int summing_threads = 128;
constexpr int summing_lanes = summing_threads / warp;

/// As norm_weight_kernel, for rows that a warp holds in registers: x and dy are read once. The rows of a block are dealt to its
/// warps in turn, whose sums are added in order. With `Input` it also does the work of norm_backward_input_kernel.
template <typename Element, typename Stream, int Width, int Held, bool Centred, bool Input>
__global__ void __launch_bounds__(summing_threads, 3)
    norm_sums_kernel(const Stream* x, const Element* dy, const Element* gain, Stream* dx, const Stream* term, Element* copy,
                     float* sums, std::int64_t rows, std::int64_t width, float epsilon) {
  __shared__ float shared[summing_lanes][Held * warp * Width];
  allow_next();
  await_previous();
  using G = Group<Element, Width>;
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int row_lane = static_cast<int>(threadIdx.x) / warp;
  const std::int64_t first = rows * blockIdx.x / gridDim.x;
  const std::int64_t last = rows * (blockIdx.x + 1) / gridDim.x;
  float gain_sum[Held * Width] = {};
  float bias_sum[Held * Width] = {};
  for (std::int64_t row = first + row_lane; row < last; row += summing_lanes) {
    const RowPart<Stream, warp, Width, Held> part(x + row * width, width);
    const auto* slopes = reinterpret_cast<const G*>(dy + row * width);
    G slope[Held];
    // Another term is read ahead, so that all reads of a row are under way at once, if the registers suffice for that.
    constexpr bool ahead = Input && Held * Width <= 24;
    Group<Stream, Width> added[ahead ? Held : 1];
    part.each([&](int h, int g, const float(&)[Width]) {
      slope[h] = slopes[g];
      if constexpr (ahead) {
        added[h] = term_of<Width>(term, row, width, g);
      }
    });
    const Moments moments = part.template moments<Centred>(width, epsilon);
    if constexpr (Input) {
      const auto* gains = reinterpret_cast<const G*>(gain);
      const auto scale = [&](int h, int g, int e) {
        return __fmul_rn(widened(slope[h].elements[e]), widened(gains[g].elements[e]));
      };
      const RowSlopes of_row = slopes_of_row<warp, Centred>(moments, width, [&](auto use) {
        part.each([&](int h, int g, const float(&values)[Width]) {
#pragma unroll
          for (int e = 0; e < Width; ++e) {
            use(scale(h, g, e), values[e]);
          }
        });
      });
      part.each([&](int h, int g, const float(&values)[Width]) {
        float own[Width];
#pragma unroll
        for (int e = 0; e < Width; ++e) {
          own[e] = of_row.of(scale(h, g, e), values[e]);
        }
        if constexpr (!ahead) {
          added[0] = term_of<Width>(term, row, width, g);
        }
        write_gradients(own, g, added[ahead ? h : 0], dx + row * width, copy == nullptr ? nullptr : copy + row * width);
      });
    }
    part.each([&](int h, int, const float(&values)[Width]) {
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        const float of_element = widened(slope[h].elements[e]);
        gain_sum[h * Width + e] = __fmaf_rn(of_element, normalized(values[e], moments), gain_sum[h * Width + e]);
        if constexpr (Centred) {
          bias_sum[h * Width + e] = __fadd_rn(bias_sum[h * Width + e], of_element);
        }
      }
    });
  }
  const auto add_up = [&](const float(&own)[Held * Width], std::int64_t which) {
#pragma unroll
    for (int h = 0; h < Held; ++h) {
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        shared[row_lane][(h * warp + lane) * Width + e] = own[h * Width + e];
      }
    }
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < static_cast<int>(width); column += summing_threads) {
      float sum = 0;
#pragma unroll
      for (int r = 0; r < summing_lanes; ++r) {
        sum += shared[r][column];
      }
      sums[(2 * static_cast<std::int64_t>(blockIdx.x) + which) * width + column] = sum;
    }
    __syncthreads();
  };
  add_up(gain_sum, 0);
  if constexpr (Centred) {
    add_up(bias_sum, 1);
  }
}

/// The sums of the parts, in a fixed order; blockIdx.y is 0 for gains and 1 for biases.
template <typename Element>
__global__ void __launch_bounds__(threads)
    norm_weight_sum_kernel(const float* sums, Element* dgain, Element* dbias, int parts, std::int64_t width, bool accumulate) {
  __shared__ float shared[row_lanes][warp];
  allow_next();
  await_previous();
  const int lane = static_cast<int>(threadIdx.x) % warp;
  const int row_lane = static_cast<int>(threadIdx.x) / warp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp + lane;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int part = row_lane; part < parts; part += row_lanes) {
      sum += sums[(2 * static_cast<std::int64_t>(part) + blockIdx.y) * width + column];
    }
  }
  shared[row_lane][lane] = sum;
  __syncthreads();
  if (row_lane == 0 && column < width) {
#pragma unroll
    for (int r = 1; r < row_lanes; ++r) {
      sum += shared[r][lane];
    }
    Element& result = (blockIdx.y == 0 ? dgain : dbias)[column];
    result = rounded<Element>((accumulate ? widened(result) : 0.0F) + sum);
  }
}

/// The ways to work on rows of a width: the first two hold the row in registers.
enum class Way { warp_per_row, block_per_row, streamed };

template <typename Element>
Way way_for(std::int64_t width) {
  constexpr int size = Pack<Element>::size;
  if (width % size != 0 || width > 4 * threads * size) {
    return Way::streamed;
  }
  return width <= 8 * warp * size ? Way::warp_per_row : Way::block_per_row;  // not fewer than most_summed_width
}

template <int Threads_, int Width_, int Held_>
struct Instance {
  static constexpr int Threads = Threads_;
  static constexpr int Width = Width_;
  static constexpr int Held = Held_;
};

/// Calls `run(instance, launch shape)`.
template <typename Element, typename Run>
void with_way(std::int64_t rows, std::int64_t width, Run run) {
  constexpr int size = Pack<Element>::size;
  const auto blocks = static_cast<unsigned>(rows);
  switch (way_for<Element>(width)) {
    case Way::warp_per_row: {
      const auto fewer = static_cast<unsigned>((rows + threads / warp - 1) / (threads / warp));
      const LaunchShape shape{dim3(fewer), dim3(threads)};
      if (width <= 3 * warp * size) {
        return run(Instance<warp, size, 3>(), shape);
      }
      if (width <= 4 * warp * size) {
        return run(Instance<warp, size, 4>(), shape);
      }
      return run(Instance<warp, size, 8>(), shape);
    }
    case Way::block_per_row:
      return run(Instance<threads, size, 4>(), LaunchShape{dim3(blocks), dim3(threads)});
    case Way::streamed:
      return run(Instance<threads, 1, 0>(), LaunchShape{dim3(blocks), dim3(threads)});
  }
}

template <bool Centred>
void norm(DType type, const NormInput& x, const void* gain, const void* bias, void* y, std::int64_t rows, std::int64_t width,
          float epsilon, cudaStream_t stream) {
  const bool swapped = x.sum != nullptr && x.type != x.sum_type;  // the term has the type of the sum then
  const void* first = swapped ? x.term : x.x;
  const void* second = swapped ? x.x : x.term;
  const DType second_type = swapped ? x.type : x.term_type;
  if (x.sum != nullptr && ((swapped && x.term_type != x.sum_type) || (second_type != type && second_type != x.sum_type))) {
    throw std::runtime_error("no kernel for elements of these types");
  }
  with_elements(type, x.sum != nullptr ? x.sum_type : x.type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Stream = decltype(wide);
    with_way<Element>(rows, width, [&](auto instance, const LaunchShape& shape) {
      using I = decltype(instance);
      const auto* values = static_cast<const Stream*>(first);
      const auto* gains = static_cast<const Element*>(gain);
      const auto* biases = static_cast<const Element*>(bias);
      auto* result = static_cast<Element*>(y);
      const auto of_sum = [&](auto other) {
        using Term = decltype(other);
        launch(norm_of_sum_kernel<Element, Stream, Term, I::Threads, I::Width, I::Held, Centred>, shape, stream, values,
               static_cast<const Term*>(second), static_cast<Stream*>(x.sum), gains, biases, result, rows, width, epsilon);
      };
      if (x.sum == nullptr) {
        launch(norm_kernel<Element, Stream, I::Threads, I::Width, I::Held, Centred>, shape, stream, values, gains, biases, result,
               rows, width, epsilon);
      } else if (second_type == x.sum_type) {
        of_sum(wide);
      } else {
        of_sum(element);
      }
    });
  });
}

/// The numbers of parts into which the sums over the rows are divided, and those over rows that warps hold.
std::int64_t parts_of(std::int64_t rows) { return std::clamp<std::int64_t>((rows + 31) / 32, 1, 264); }
std::int64_t held_parts_of(std::int64_t rows) { return std::clamp<std::int64_t>((rows + 15) / 16, 1, 396); }

template <typename Instance>
constexpr bool sums_held_rows = Instance::Threads == warp&& Instance::Held* Instance::Width <= few_held;

template <bool Centred>
void norm_backward_input(DType type, DType stream_type, const void* dy, const void* x, const void* gain, const NormGradient& result,
                         std::int64_t rows, std::int64_t width, float epsilon, cudaStream_t stream) {
  with_elements(type, stream_type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Stream = decltype(wide);
    const auto* slopes = static_cast<const Element*>(dy);
    const auto* values = static_cast<const Stream*>(x);
    const auto* gains = static_cast<const Element*>(gain);
    auto* dx = static_cast<Stream*>(result.dx);
    const auto* term = static_cast<const Stream*>(result.term);
    auto* copy = static_cast<Element*>(result.copy);
    with_way<Element>(rows, width, [&](auto instance, const LaunchShape& shape) {
      using I = decltype(instance);
      if constexpr (sums_held_rows<I>) {
        if (result.sums != nullptr) {
          return launch(norm_sums_kernel<Element, Stream, I::Width, I::Held, Centred, true>,
                        {dim3(static_cast<unsigned>(held_parts_of(rows))), dim3(summing_threads)}, stream, values, slopes, gains,
                        dx, term, copy, result.sums, rows, width, epsilon);
        }
      }
      if (result.sums != nullptr) {
        throw std::runtime_error("no kernel for rows of this width that also sums the gradients of the weights");
      }
      launch(norm_backward_input_kernel<Element, Stream, I::Threads, I::Width, I::Held, Centred>, shape, stream, slopes, values,
             gains, dx, term, copy, rows, width, epsilon);
    });
  });
}

template <bool Centred>
void norm_backward_weight(const NormWeightTypes& types, const void* x, const void* dy, const NormWeightGradient& result,
                          std::int64_t rows, std::int64_t width, float epsilon, float* workspace, cudaStream_t stream) {
  static_assert(sizeof(Moments) == 2 * sizeof(float));
  auto* moments = reinterpret_cast<Moments*>(workspace);
  float* sums = workspace + 2 * rows;
  const float* summed = result.sums;
  auto parts = static_cast<unsigned>(held_parts_of(rows));
  if (summed == nullptr) {
    summed = sums;
    with_elements(types.dy, types.x, [&](auto element, auto wide) {
      using Element = decltype(element);
      using Stream = decltype(wide);
      const auto* values = static_cast<const Stream*>(x);
      const auto* slopes = static_cast<const Element*>(dy);
      with_way<Element>(rows, width, [&](auto instance, const LaunchShape& shape) {
        using I = decltype(instance);
        if constexpr (sums_held_rows<I>) {
          launch(norm_sums_kernel<Element, Stream, I::Width, I::Held, Centred, false>, {dim3(parts), dim3(summing_threads)}, stream,
                 values, slopes, static_cast<const Element*>(nullptr), static_cast<Stream*>(nullptr),
                 static_cast<const Stream*>(nullptr), static_cast<Element*>(nullptr), sums, rows, width, epsilon);
        } else {
          parts = static_cast<unsigned>(parts_of(rows));
          launch(moments_kernel<Stream, I::Threads, I::Width, I::Held, Centred>, shape, stream, values, moments, rows, width,
                 epsilon);
          constexpr std::int64_t columns = warp * I::Width;
          launch(norm_weight_kernel<Element, Stream, I::Width>,
                 {dim3(static_cast<unsigned>((width + columns - 1) / columns), parts), dim3(threads)}, stream, values, slopes,
                 static_cast<const Moments*>(moments), sums, rows, width);
        }
      });
    });
  }
  with_element(types.gradient, [&](auto element) {
    using Gradient = decltype(element);
    launch(norm_weight_sum_kernel<Gradient>,
           {dim3(static_cast<unsigned>((width + warp - 1) / warp), Centred ? 2 : 1), dim3(threads)}, stream, summed,
           static_cast<Gradient*>(result.dgain), static_cast<Gradient*>(result.dbias), static_cast<int>(parts), width,
           result.accumulate);
  });
}

}  // namespace

std::int64_t norm_weight_workspace(std::int64_t rows, std::int64_t width) {
  return 2 * rows * static_cast<std::int64_t>(sizeof(float)) + norm_sums_bytes(rows, width);
}

std::int64_t norm_sums_bytes(std::int64_t rows, std::int64_t width) {
  return 2 * std::max(parts_of(rows), held_parts_of(rows)) * width * static_cast<std::int64_t>(sizeof(float));
}

void layer_norm(DType type, const NormInput& x, const void* gain, const void* bias, void* y, std::int64_t rows, std::int64_t width,
                float epsilon, cudaStream_t stream) {
  norm<true>(type, x, gain, bias, y, rows, width, epsilon, stream);
}

void layer_norm_backward_input(DType type, DType stream_type, const void* dy, const void* x, const void* gain,
                               const NormGradient& result, std::int64_t rows, std::int64_t width, float epsilon,
                               cudaStream_t stream) {
  norm_backward_input<true>(type, stream_type, dy, x, gain, result, rows, width, epsilon, stream);
}

void layer_norm_backward_weight(const NormWeightTypes& types, const void* x, const void* dy, const NormWeightGradient& result,
                                std::int64_t rows, std::int64_t width, float epsilon, float* workspace, cudaStream_t stream) {
  norm_backward_weight<true>(types, x, dy, result, rows, width, epsilon, workspace, stream);
}

void rms_norm(DType type, const NormInput& x, const void* gain, void* y, std::int64_t rows, std::int64_t width, float epsilon,
              cudaStream_t stream) {
  norm<false>(type, x, gain, nullptr, y, rows, width, epsilon, stream);
}

void rms_norm_backward_input(DType type, DType stream_type, const void* dy, const void* x, const void* gain,
                             const NormGradient& result, std::int64_t rows, std::int64_t width, float epsilon,
                             cudaStream_t stream) {
  norm_backward_input<false>(type, stream_type, dy, x, gain, result, rows, width, epsilon, stream);
}

void rms_norm_backward_weight(const NormWeightTypes& types, const void* x, const void* dy, const NormWeightGradient& result,
                              std::int64_t rows, std::int64_t width, float epsilon, float* workspace, cudaStream_t stream) {
  norm_backward_weight<false>(types, x, dy, result, rows, width, epsilon, workspace, stream);
}

}  // namespace baton::cuda
