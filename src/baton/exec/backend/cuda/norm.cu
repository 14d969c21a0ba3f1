#include "baton/exec/backend/cuda/element.cuh"
#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/programmatic.cuh"
#include "baton/exec/backend/cuda/status.h"

namespace baton::exec::cuda {
namespace {

constexpr int threads = 256;

/// The sum of all threads' values, known to all. Its order is fixed by the number of threads.
__device__ double sum_of_block(double value) {
  __shared__ double sums[threads];
  __syncthreads();
  sums[threadIdx.x] = value;
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
  }
  __syncthreads();
  return sums[0];
}

struct Moments {
  float mean;
  float factor;  // 1 / sqrt(variance + epsilon)
};

template <typename Element>
__device__ Moments moments_of(const Element* row, std::int64_t width, float epsilon) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    sum += static_cast<double>(widened(row[i]));
  }
  const double mean = sum_of_block(sum) / static_cast<double>(width);
  double squares = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    const double distance = static_cast<double>(widened(row[i])) - mean;
    squares += distance * distance;
  }
  const double variance = sum_of_block(squares) / static_cast<double>(width);
  return {static_cast<float>(mean), static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)))};
}

/// One block per row.
template <typename Element>
__global__ void __launch_bounds__(threads)
    layer_norm_kernel(const Element* x, const Element* gain, const Element* bias, Element* y, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t first = blockIdx.x * width;
  const Moments row = moments_of(x + first, width, epsilon);
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    y[first + i] = rounded<Element>((widened(x[first + i]) - row.mean) * row.factor * widened(gain[i]) + widened(bias[i]));
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    layer_norm_backward_input_kernel(const Element* dy, const Element* x, const Element* gain, Element* dx, std::int64_t width,
                                     float epsilon) {
  allow_next();
  await_previous();
  const std::int64_t first = blockIdx.x * width;
  const Moments row = moments_of(x + first, width, epsilon);
  double sum = 0;
  double along = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    const float scaled = widened(dy[first + i]) * widened(gain[i]);
    sum += static_cast<double>(scaled);
    along += static_cast<double>(scaled * ((widened(x[first + i]) - row.mean) * row.factor));
  }
  const auto mean = static_cast<float>(sum_of_block(sum) / static_cast<double>(width));
  const auto slope = static_cast<float>(sum_of_block(along) / static_cast<double>(width));
  for (std::int64_t i = threadIdx.x; i < width; i += threads) {
    const float scaled = widened(dy[first + i]) * widened(gain[i]);
    const float normal = (widened(x[first + i]) - row.mean) * row.factor;
    dx[first + i] = rounded<Element>((scaled - mean - normal * slope) * row.factor);
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads) moments_kernel(const Element* x, Moments* moments, std::int64_t width, float epsilon) {
  allow_next();
  await_previous();
  const Moments row = moments_of(x + blockIdx.x * width, width, epsilon);
  if (threadIdx.x == 0) {
    moments[blockIdx.x] = row;
  }
}

/// One thread per column, so that a sum runs in the order of the rows.
template <typename Element>
__global__ void norm_weight_kernel(const Element* x, const Element* dy, const Moments* moments, Element* dgain, Element* dbias,
                                   std::int64_t rows, std::int64_t width, bool accumulate) {
  allow_next();
  await_previous();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) {
    return;
  }
  float gain = 0;
  float bias = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float slope = widened(dy[r * width + column]);
    gain += slope * (widened(x[r * width + column]) - moments[r].mean) * moments[r].factor;
    bias += slope;
  }
  dgain[column] = rounded<Element>((accumulate ? widened(dgain[column]) : 0.0F) + gain);
  dbias[column] = rounded<Element>((accumulate ? widened(dbias[column]) : 0.0F) + bias);
}

}  // namespace

void layer_norm(DType type, const void* x, const void* gain, const void* bias, void* y, std::int64_t rows, std::int64_t width,
                float epsilon, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(layer_norm_kernel<Element>, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream, static_cast<const Element*>(x),
           static_cast<const Element*>(gain), static_cast<const Element*>(bias), static_cast<Element*>(y), width, epsilon);
  });
}

void layer_norm_backward_input(DType type, const void* dy, const void* x, const void* gain, void* dx, std::int64_t rows,
                               std::int64_t width, float epsilon, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(layer_norm_backward_input_kernel<Element>, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream,
           static_cast<const Element*>(dy), static_cast<const Element*>(x), static_cast<const Element*>(gain),
           static_cast<Element*>(dx), width, epsilon);
  });
}

void layer_norm_backward_weight(DType type, const void* x, const void* dy, void* dgain, void* dbias, std::int64_t rows,
                                std::int64_t width, float epsilon, bool accumulate, float* moments, cudaStream_t stream) {
  static_assert(sizeof(Moments) == 2 * sizeof(float));
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    auto* kept = reinterpret_cast<Moments*>(moments);
    launch(moments_kernel<Element>, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream, static_cast<const Element*>(x),
           kept, width, epsilon);
    constexpr int few = 64;
    launch(norm_weight_kernel<Element>, {dim3(static_cast<unsigned>((width + few - 1) / few)), dim3(few)}, stream,
           static_cast<const Element*>(x), static_cast<const Element*>(dy), static_cast<const Moments*>(kept),
           static_cast<Element*>(dgain), static_cast<Element*>(dbias), rows, width, accumulate);
  });
}

}  // namespace baton::exec::cuda
