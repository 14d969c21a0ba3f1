#include <algorithm>
#include <type_traits>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = map_threads;
constexpr int many_threads = 1024;

struct Positive {
  template <typename Element>
  __device__ Element operator()(Element x, Element) const {
    return widened(x) < 0 ? rounded<Element>(0.0F) : x;
  }
};
struct Passed {
  template <typename Element>
  __device__ Element operator()(Element dy, Element y) const {
    return widened(y) > 0 ? dy : rounded<Element>(0.0F);
  }
};
struct Added {
  template <typename Element>
  __device__ Element operator()(Element a, Element b) const {
    return rounded<Element>(widened(a) + widened(b));
  }
};

/// One block per row.
template <typename Element>
__global__ void __launch_bounds__(threads) add_bias_kernel(const Element* x, const Element* b, Element* y, std::int64_t width) {
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    y[row + i] = rounded<Element>(widened(x[row + i]) + widened(b[i]));
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(threads) cast_kernel(const From* x, To* y, std::int64_t count) {
  allow_next();
  await_previous();
  constexpr int size = 8;
  struct alignas(16) Source {
    From elements[size];
  };
  struct alignas(16) Target {
    To elements[size];
  };
  over<size>(
      count,
      [&](std::int64_t i) {
        const Source source = reinterpret_cast<const Source*>(x)[i];
        Target target;
#pragma unroll
        for (int e = 0; e < size; ++e) {
          target.elements[e] = rounded<To>(widened(source.elements[e]));
        }
        reinterpret_cast<Target*>(y)[i] = target;
      },
      [&](std::int64_t i) { y[i] = rounded<To>(widened(x[i])); });
}

/// The sum over a block, or the largest, in a fixed order; every thread gets it.
template <int Threads, typename Real, typename Join>
__device__ Real over_block(Real value, Join join) {
  __shared__ Real parts[Threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = parts[0];
  for (int warp = 1; warp < Threads / 32; ++warp) {
    value = join(value, parts[warp]);
  }
  __syncthreads();
  return value;
}

struct Sum {
  template <typename Real>
  __device__ Real operator()(Real a, Real b) const {
    return a + b;
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The sum over a block, in a fixed order, for its first thread alone.
template <int Threads>
__device__ double sum_for_first(double value) {
  static_assert(Threads <= 32 * 32);
  __shared__ double parts[Threads / 32];
  const auto over_warp = [&] {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xffffffffU, value, distance);
    }
  };
  over_warp();
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < Threads / 32 ? parts[threadIdx.x] : 0;
    over_warp();
  }
  return value;
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    mean_squared_error_kernel(const Element* y, const Element* target, const float* loss_scale, double* loss, Element* dy,
                              std::int64_t width, double elements) {
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  const auto scale = static_cast<float>(2 / elements * (loss_scale == nullptr ? 1.0 : static_cast<double>(*loss_scale)));
  double sum = 0;
  const auto gradient = [&](Element value, Element wanted) {
    const float difference = widened(value) - widened(wanted);
    sum += static_cast<double>(difference) * static_cast<double>(difference);
    return rounded<Element>(difference * scale);
  };
  using P = Pack<Element>;
  if (width % P::size == 0) {
    for (std::int64_t i = row / P::size + threadIdx.x; i < (row + width) / P::size; i += threads) {
      const P v = reinterpret_cast<const P*>(y)[i];
      const P t = reinterpret_cast<const P*>(target)[i];
      P d;
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        d.elements[e] = gradient(v.elements[e], t.elements[e]);
      }
      reinterpret_cast<P*>(dy)[i] = d;
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += threads) {
      dy[row + i] = gradient(y[row + i], target[row + i]);
    }
  }
  sum = sum_for_first<threads>(sum);
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = sum / elements;
  }
}

/// Calls `pack(i)` for the aligned packs within `count` elements from `first` on, and `one(i)` for those before and after them;
/// the block's threads share them.
template <int Size, int Threads, typename Work, typename One>
__device__ void over_row(std::int64_t first, std::int64_t count, Work pack, One one) {
  const std::int64_t last = first + count;
  const std::int64_t begin = min(last, (first + Size - 1) / Size * Size);
  const std::int64_t end = max(begin, last / Size * Size);
  for (std::int64_t i = first + threadIdx.x; i < begin; i += Threads) {
    one(i);
  }
#pragma unroll 4
  for (std::int64_t i = begin / Size + threadIdx.x; i < end / Size; i += Threads) {
    pack(i);
  }
  for (std::int64_t i = end + threadIdx.x; i < last; i += Threads) {
    one(i);
  }
}

/// e^x; for 16-bit results by the hardware's own function, whose error is far below their rounding.
template <typename Element>
__device__ float exponential(float x) {
  if constexpr (sizeof(Element) == 2) {
    return __expf(x);
  } else {
    return expf(x);
  }
}

/// The gradient of the loss by the scores of a row, from the sum of exp(score − largest).
struct ScoreSlope {
  float largest;
  float scale;
  float less;
  float of_label;
  std::int64_t label;

  __device__ ScoreSlope(const float* loss_scale, double rows, const ScorePart& part, double sum, float largest_score,
                        std::int64_t label_index)
      : largest(largest_score), label(label_index) {
    const double factor = (loss_scale == nullptr ? 1.0 : static_cast<double>(*loss_scale)) / rows;
    scale = static_cast<float>(factor / sum);
    less = static_cast<float>(part.each * factor);
    of_label = static_cast<float>((1 - part.smoothing) * factor);
  }

  template <typename Element>
  __device__ Element at(Element score, std::int64_t index) const {
    const float slope = exponential<Element>(widened(score) - largest) * scale - less;
    return rounded<Element>(index == label ? slope - of_label : slope);
  }
};

struct ScoreSum {
  float largest;
  double sum;  // the sum of exp(score − largest)
  double all;  // the sum of the scores, if it is asked for
};

/// The sums of a row of scores, which is read once.
template <typename Element, int Threads>
__device__ ScoreSum sum_of_scores(const Element* y, std::int64_t first, std::int64_t classes, bool with_all) {
  float most = -INFINITY;
  float sum = 0;
  float all = 0;
  using P = Pack<Element>;
  over_row<P::size, Threads>(
      first, classes,
      [&](std::int64_t i) {
        const P scores = reinterpret_cast<const P*>(y)[i];
        float here = widened(scores.elements[0]);
#pragma unroll
        for (int e = 1; e < P::size; ++e) {
          here = fmaxf(here, widened(scores.elements[e]));
        }
        if (here > most) {
          sum *= exponential<Element>(most - here);
          most = here;
        }
#pragma unroll
        for (int e = 0; e < P::size && most > -INFINITY; ++e) {
          sum += exponential<Element>(widened(scores.elements[e]) - most);
          all += widened(scores.elements[e]);
        }
      },
      [&](std::int64_t i) {
        const float score = widened(y[i]);
        if (score > most) {
          sum *= exponential<Element>(most - score);
          most = score;
        }
        sum += most > -INFINITY ? exponential<Element>(score - most) : 0.0F;
        all += score;
      });
  const float largest = over_block<Threads>(most, Largest());
  return {largest, over_block<Threads>(static_cast<double>(sum * exponential<Element>(most - largest)), Sum()),
          with_all ? over_block<Threads>(static_cast<double>(all), Sum()) : 0.0};
}

template <typename Element, int Threads>
__global__ void __launch_bounds__(Threads)
    cross_entropy_kernel(const Element* y, const std::int32_t* labels, const float* loss_scale, double* loss, Element* dy,
                         std::int64_t classes, double rows, ScorePart part) {
  allow_next();
  await_previous();
  const std::int64_t first = blockIdx.x * classes;
  const std::int64_t label = labels[blockIdx.x] - part.first;
  float largest = -INFINITY;
  double sum = 0;
  double score = 0;
  if (part.parts == 0) {
    const auto at_label = static_cast<double>(widened(y[first + label]));  // read before dy is written, which may be in its place
    const ScoreSum own = sum_of_scores<Element, Threads>(y, first, classes, part.each > 0);
    largest = own.largest;
    sum = own.sum;
    score = (1 - part.smoothing) * at_label + part.each * own.all;
  }
  for (std::int64_t p = 0; p < part.parts; ++p) {
    largest = fmaxf(largest, static_cast<float>(part.terms[3 * (p * gridDim.x + blockIdx.x)]));
  }
  for (std::int64_t p = 0; p < part.parts; ++p) {
    const double* terms = part.terms + 3 * (p * gridDim.x + blockIdx.x);
    sum += terms[1] * exp(terms[0] - static_cast<double>(largest));
    score += terms[2];
  }
  const ScoreSlope slope(loss_scale, rows, part, sum, largest, first + label);
  using P = Pack<Element>;
  over_row<P::size, Threads>(
      first, classes,
      [&](std::int64_t i) {
        const P scores = reinterpret_cast<const P*>(y)[i];
        P slopes;
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          slopes.elements[e] = slope.at(scores.elements[e], i * P::size + e);
        }
        reinterpret_cast<P*>(dy)[i] = slopes;
      },
      [&](std::int64_t i) { dy[i] = slope.at(y[i], i); });
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = (log(sum) + static_cast<double>(largest) - score) / rows;
  }
}

constexpr int holding_threads = 512;

/// As cross_entropy_kernel, with the row held in shared memory, so that its scores are read once. Each thread reads back only what
/// it has written there.
template <typename Element>
__global__ void __launch_bounds__(holding_threads)
    held_cross_entropy_kernel(const Element* y, const std::int32_t* labels, const float* loss_scale, double* loss, Element* dy,
                              std::int64_t classes, double rows, ScorePart part) {
  using P = Pack<Element>;
  extern __shared__ __align__(16) unsigned char room[];
  auto* held = reinterpret_cast<P*>(room);
  allow_next();
  await_previous();
  const std::int64_t first = blockIdx.x * classes;
  const std::int64_t first_pack = (first + P::size - 1) / P::size;
  const std::int64_t label = labels[blockIdx.x] - part.first;
  const auto at_label = static_cast<double>(widened(y[first + label]));  // read before dy is written, which may be in its place
  float most = -INFINITY;
  over_row<P::size, holding_threads>(
      first, classes,
      [&](std::int64_t i) {
        const P scores = reinterpret_cast<const P*>(y)[i];
        held[i - first_pack] = scores;
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          most = fmaxf(most, widened(scores.elements[e]));
        }
      },
      [&](std::int64_t i) { most = fmaxf(most, widened(y[i])); });
  const float largest = over_block<holding_threads>(most, Largest());
  float own_sum = 0;
  float own_all = 0;
  over_row<P::size, holding_threads>(
      first, classes,
      [&](std::int64_t i) {
        const P scores = held[i - first_pack];
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          own_sum += exponential<Element>(widened(scores.elements[e]) - largest);
          own_all += widened(scores.elements[e]);
        }
      },
      [&](std::int64_t i) {
        own_sum += exponential<Element>(widened(y[i]) - largest);
        own_all += widened(y[i]);
      });
  const double sum = over_block<holding_threads>(static_cast<double>(own_sum), Sum());
  const double all = part.each > 0 ? over_block<holding_threads>(static_cast<double>(own_all), Sum()) : 0.0;
  const ScoreSlope slope(loss_scale, rows, part, sum, largest, first + label);
  over_row<P::size, holding_threads>(
      first, classes,
      [&](std::int64_t i) {
        const P scores = held[i - first_pack];
        P slopes;
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          slopes.elements[e] = slope.at(scores.elements[e], i * P::size + e);
        }
        reinterpret_cast<P*>(dy)[i] = slopes;
      },
      [&](std::int64_t i) { dy[i] = slope.at(y[i], i); });
  if (threadIdx.x == 0) {
    const double score = (1 - part.smoothing) * at_label + part.each * all;
    loss[blockIdx.x] = (log(sum) + static_cast<double>(largest) - score) / rows;
  }
}

template <typename Element, int Threads>
__global__ void __launch_bounds__(Threads)
    cross_entropy_terms_kernel(const Element* y, const std::int32_t* labels, double* terms, std::int64_t classes, ScorePart part) {
  allow_next();
  await_previous();
  const std::int64_t first = blockIdx.x * classes;
  const ScoreSum own = sum_of_scores<Element, Threads>(y, first, classes, part.each > 0);
  if (threadIdx.x == 0) {
    const std::int64_t label = labels[blockIdx.x] - part.first;
    double* to = terms + 3 * static_cast<std::int64_t>(blockIdx.x);
    to[0] = static_cast<double>(own.largest);
    to[1] = own.sum;
    const double at_label = label >= 0 && label < classes ? static_cast<double>(widened(y[first + label])) : 0.0;
    to[2] = (1 - part.smoothing) * at_label + part.each * own.all;
  }
}

/// c = a + b, float32 but for b.
template <typename Element>
__global__ void __launch_bounds__(threads) add_to_stream_kernel(const float* a, const Element* b, float* c, std::int64_t count) {
  allow_next();
  await_previous();
  using P = Pack<Element>;
  struct alignas(16) Wide {
    float elements[P::size];
  };
  over<P::size>(
      count,
      [&](std::int64_t i) {
        Wide sum = reinterpret_cast<const Wide*>(a)[i];
        const P added = reinterpret_cast<const P*>(b)[i];
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          sum.elements[e] += widened(added.elements[e]);
        }
        reinterpret_cast<Wide*>(c)[i] = sum;
      },
      [&](std::int64_t i) { c[i] = a[i] + widened(b[i]); });
}

__global__ void count_step_kernel(std::int64_t* step) {
  allow_next();
  await_previous();
  ++*step;
}

struct CheckedTensors {
  CheckedTensor list[most_tensors];
};

template <typename Element>
__device__ bool has_broken(const Element* data, std::int64_t count) {
  bool broken = false;
  using P = Pack<Element>;
  over<P::size>(
      count,
      [&](std::int64_t i) {
        const P pack = reinterpret_cast<const P*>(data)[i];
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          broken = broken || !isfinite(widened(pack.elements[e]));
        }
      },
      [&](std::int64_t i) { broken = broken || !isfinite(widened(data[i])); });
  return broken;
}

__global__ void __launch_bounds__(threads)
    check_finite_kernel(const __grid_constant__ CheckedTensors tensors, std::uint32_t* marks) {
  allow_next();
  await_previous();
  const CheckedTensor& tensor = tensors.list[blockIdx.y];
  const bool broken = tensor.type == DType::f32    ? has_broken(static_cast<const float*>(tensor.data), tensor.count)
                      : tensor.type == DType::bf16 ? has_broken(static_cast<const __nv_bfloat16*>(tensor.data), tensor.count)
                                                   : has_broken(static_cast<const __half*>(tensor.data), tensor.count);
  if (broken) {
    marks[blockIdx.y] = 1;
  }
}

/// One thread: the marks are few.
__global__ void count_marks_kernel(const std::uint32_t* marks, std::size_t count, float* result) {
  allow_next();
  await_previous();
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += marks[i] != 0 ? 1.0F : 0.0F;
  }
  *result = sum;
}

/// `op::adjusted` of the four floats scale, good steps in a row, skipped steps, steps.
__global__ void adjust_scale_kernel(const float* flag, float* state, float growth_interval) {
  allow_next();
  await_previous();
  state[3] += 1;
  if (*flag != 0) {
    state[2] += 1;
    state[1] = 0;
    state[0] *= growth_interval > 0 ? 0.5F : 1.0F;
    return;
  }
  state[1] += 1;
  if (growth_interval > 0 && state[1] >= growth_interval) {
    state[1] = 0;
    state[0] *= isfinite(state[0] * 2) ? 2.0F : 1.0F;
  }
}

/// From -0.5 to 0.5.
__device__ float random_number(std::int64_t i) {
  std::uint64_t word = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL;
  word = (word ^ (word >> 31)) * 0xD6E8FEB86659FD93ULL;
  return static_cast<float>(static_cast<std::uint32_t>(word >> 40)) / 16777216.0F - 0.5F;
}

template <typename Element>
__global__ void noise_kernel(Element* memory, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    memory[i] = rounded<Element>(random_number(i) * 0.125F);
  }
}

/// The second half of the depth has the numbers of the first, from another place on, and with `signs` their negatives.
template <typename Element>
__global__ void cancelling_noise_kernel(Element* memory, Cancelling operand) {
  constexpr float size = 16;  // so that roundings of sums are still numbers of 16 bits
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t half = operand.depth / 2;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < operand.count * operand.depth;
       i += stride) {
    const std::int64_t depth = operand.depth_first ? i % operand.depth : i / operand.count;
    const std::int64_t line = operand.depth_first ? i / operand.depth : i % operand.count;
    const bool second = depth >= half;
    const std::int64_t twin = second ? (depth - half + half / 3) % max(half, std::int64_t{1}) : depth;
    const float value = depth >= 2 * half ? 0 : random_number(line * operand.depth + twin) * size;
    memory[i] = rounded<Element>(second && operand.signs ? -value : value);
  }
}

template <typename Word>
__global__ void digest_kernel(const Word* words, std::int64_t count, std::uint64_t* digest) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::uint64_t sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t word = (words[i] + 0x9E3779B97F4A7C15ULL) * (2 * static_cast<std::uint64_t>(i) + 1);
    sum += (word ^ (word >> 29)) * 0xBF58476D1CE4E5B9ULL;
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(digest), static_cast<unsigned long long>(sum));
}

}  // namespace

void relu(DType type, const void* x, void* y, std::int64_t count, cudaStream_t stream) {
  map(type, x, x, y, count, Positive(), stream);
}

void relu_backward(DType type, const void* dy, const void* y, void* dx, std::int64_t count, cudaStream_t stream) {
  map(type, dy, y, dx, count, Passed(), stream);
}

void add(DType a_type, const void* a, DType b_type, const void* b, DType c_type, void* c, std::int64_t count, cudaStream_t stream) {
  if (a_type == c_type && b_type == c_type) {
    return map(c_type, a, b, c, count, Added(), stream);
  }
  const bool swapped = a_type != DType::f32;
  if (c_type != DType::f32 || (swapped ? b_type : a_type) != DType::f32) {
    throw std::runtime_error("no kernel for elements of these types");
  }
  with_element(swapped ? a_type : b_type, [&](auto element) {
    using Element = decltype(element);
    launch(add_to_stream_kernel<Element>, {dim3(blocks_for(count / Pack<Element>::size)), dim3(threads)}, stream,
           static_cast<const float*>(swapped ? b : a), static_cast<const Element*>(swapped ? a : b), static_cast<float*>(c), count);
  });
}

void add_bias(DType type, const void* x, const void* b, void* y, std::int64_t rows, std::int64_t width, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(add_bias_kernel<Element>, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream, static_cast<const Element*>(x),
           static_cast<const Element*>(b), static_cast<Element*>(y), width);
  });
}

void cast(DType from, const void* x, DType to, void* y, std::int64_t count, cudaStream_t stream) {
  with_element(from, [&](auto source) {
    with_element(to, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      launch(cast_kernel<From, To>, {dim3(blocks_for(count / 8)), dim3(threads)}, stream, static_cast<const From*>(x),
             static_cast<To*>(y), count);
    });
  });
}

void mean_squared_error(DType type, const void* y, const void* target, const float* scale, double* loss, void* dy,
                        std::int64_t rows, std::int64_t width, double elements, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(mean_squared_error_kernel<Element>, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream,
           static_cast<const Element*>(y), static_cast<const Element*>(target), scale, loss, static_cast<Element*>(dy), width,
           elements);
  });
}

/// Large blocks for long rows, so that the rows at work stay in the cache until they are read again.
constexpr std::int64_t long_row = 8192;

/// The most shared memory that a block of this GPU can have.
std::int64_t most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  require(cudaGetDevice(&device), "asking for the GPU");
  require(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking for the GPU's shared memory");
  return bytes;
}

void cross_entropy(DType type, const void* y, const std::int32_t* labels, const float* scale, double* loss, void* dy,
                   std::int64_t rows, std::int64_t classes, double total_rows, const ScorePart& part, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const bool is_long = classes >= long_row;
    const std::int64_t row_bytes = (classes / Pack<Element>::size + 1) * 16;
    if (is_long && part.parts == 0 && row_bytes <= most_shared_bytes() - 1024) {  // less what sums over a block take
      return launch(held_cross_entropy_kernel<Element>,
                    {dim3(static_cast<unsigned>(rows)), dim3(holding_threads), static_cast<int>(row_bytes)}, stream,
                    static_cast<const Element*>(y), labels, scale, loss, static_cast<Element*>(dy), classes, total_rows, part);
    }
    launch(is_long ? cross_entropy_kernel<Element, many_threads> : cross_entropy_kernel<Element, threads>,
           {dim3(static_cast<unsigned>(rows)), dim3(is_long ? many_threads : threads)}, stream, static_cast<const Element*>(y),
           labels, scale, loss, static_cast<Element*>(dy), classes, total_rows, part);
  });
}

void cross_entropy_terms(DType type, const void* y, const std::int32_t* labels, double* terms, std::int64_t rows,
                         std::int64_t classes, const ScorePart& part, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const bool is_long = classes >= long_row;
    launch(is_long ? cross_entropy_terms_kernel<Element, many_threads> : cross_entropy_terms_kernel<Element, threads>,
           {dim3(static_cast<unsigned>(rows)), dim3(is_long ? many_threads : threads)}, stream, static_cast<const Element*>(y),
           labels, terms, classes, part);
  });
}

void count_step(std::int64_t* step, cudaStream_t stream) { launch(count_step_kernel, {dim3(1), dim3(1)}, stream, step); }

void check_finite(const CheckedTensor* tensors, std::size_t count, std::uint32_t* marks, float* result, cudaStream_t stream) {
  require(cudaMemsetAsync(marks, 0, count * sizeof(*marks), stream), "launching a kernel");
  for (std::size_t begin = 0; begin < count; begin += most_tensors) {
    CheckedTensors batch{};
    const std::size_t size = std::min(most_tensors, count - begin);
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < size; ++i) {
      batch.list[i] = tensors[begin + i];
      largest = std::max(largest, batch.list[i].count);
    }
    launch(check_finite_kernel, {dim3(blocks_for(largest / 8), static_cast<unsigned>(size)), dim3(threads)}, stream, batch,
           marks + begin);
  }
  launch(count_marks_kernel, {dim3(1), dim3(1)}, stream, static_cast<const std::uint32_t*>(marks), count, result);
}

void adjust_scale(const float* flag, float* state, std::int64_t growth_interval, cudaStream_t stream) {
  launch(adjust_scale_kernel, {dim3(1), dim3(1)}, stream, flag, state, static_cast<float>(growth_interval));
}

void noise(DType type, void* memory, std::int64_t count, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    noise_kernel<<<blocks_for(count), threads, 0, stream>>>(static_cast<decltype(element)*>(memory), count);
  });
  require_launched("launching a kernel");
}

void cancelling_noise(DType type, void* memory, const Cancelling& operand, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    cancelling_noise_kernel<<<blocks_for(operand.count * operand.depth), threads, 0, stream>>>(
        static_cast<decltype(element)*>(memory), operand);
  });
  require_launched("launching a kernel");
}

void digest(const void* memory, std::int64_t bytes, std::uint64_t* digest, cudaStream_t stream) {
  if (bytes % 4 == 0) {
    digest_kernel<<<blocks_for(bytes / 4), threads, 0, stream>>>(static_cast<const std::uint32_t*>(memory), bytes / 4, digest);
  } else {
    digest_kernel<<<blocks_for(bytes), threads, 0, stream>>>(static_cast<const std::uint8_t*>(memory), bytes, digest);
  }
  require_launched("launching a kernel");
}

}  // namespace baton::cuda
