#include <algorithm>

#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"

/// Kernels of ops that depend on an element's position in the sequence.
namespace baton::cuda {
namespace {

constexpr int threads = 256;

/// blockIdx.x is the position. The angles are computed in double precision, since they grow with the position, and once per block.
template <typename Element>
__global__ void __launch_bounds__(threads)
    rotary_kernel(const Element* x, Element* y, std::int64_t width, int head, double base, std::int64_t first, bool backward) {
  extern __shared__ float2 turns[];
  const int half = head / 2;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += threads) {
    const double angle = static_cast<double>(first + blockIdx.x) * pow(base, -2.0 * i / head);
    double sine = 0;
    double cosine = 0;
    sincos(angle, &sine, &cosine);
    turns[i] = {static_cast<float>(cosine), static_cast<float>(backward ? -sine : sine)};
  }
  __syncthreads();
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  const std::int64_t pairs = width / 2;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.y) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x; i < pairs; i += stride) {
    const int in_head = static_cast<int>(i % half);
    const std::int64_t at = row + i / half * head + in_head;
    const float2 turn = turns[in_head];
    const float left = widened(x[at]);
    const float right = widened(x[at + half]);
    y[at] = rounded<Element>(left * turn.x - right * turn.y);
    y[at + half] = rounded<Element>(right * turn.x + left * turn.y);
  }
}

/// One block per row of x.
template <typename Element, typename Stream>
__global__ void __launch_bounds__(threads) add_positions_kernel(const Stream* x, const Element* w, Stream* y, std::int64_t samples,
                                                                std::int64_t width, std::int64_t first) {
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  const std::int64_t own = (first + blockIdx.x / samples) * width;
  using P = Pack<Element>;
  struct alignas(16) Group {
    Stream elements[P::size];
  };
  if (width % P::size == 0) {
    for (std::int64_t i = threadIdx.x; i < width / P::size; i += threads) {
      const Group left = reinterpret_cast<const Group*>(x + row)[i];
      const P right = reinterpret_cast<const P*>(w + own)[i];
      Group result;
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        result.elements[e] = rounded<Stream>(widened(left.elements[e]) + widened(right.elements[e]));
      }
      reinterpret_cast<Group*>(y + row)[i] = result;
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += threads) {
      y[row + i] = rounded<Stream>(widened(x[row + i]) + widened(w[own + i]));
    }
  }
}

/// One thread per element of dW; sums run in the order of the samples.
template <typename Element, typename Gradient>
__global__ void __launch_bounds__(threads)
    add_positions_backward_kernel(const Element* dy, Gradient* dw, std::int64_t positions, std::int64_t samples, std::int64_t width,
                                  std::int64_t first, bool accumulate) {
  allow_next();
  await_previous();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * threads + threadIdx.x;
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) - first;
  if (column >= width) {
    return;
  }
  Gradient& result = dw[blockIdx.x * width + column];
  float sum = accumulate ? widened(result) : 0.0F;
  if (position >= 0 && position < positions) {
    float added = 0;
#pragma unroll 8
    for (std::int64_t s = 0; s < samples; ++s) {
      added += widened(dy[(position * samples + s) * width + column]);
    }
    sum += added;
  }
  result = rounded<Gradient>(sum);
}

}  // namespace

void rotary(DType type, const void* x, void* y, std::int64_t positions, std::int64_t width, std::int64_t head, double base,
            std::int64_t first, bool backward, cudaStream_t stream) {
  constexpr std::int64_t per_thread = 8;  // pairs
  const auto parts = static_cast<unsigned>(std::clamp<std::int64_t>(width / 2 / (threads * per_thread), 1, 64));
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(rotary_kernel<Element>,
           {dim3(static_cast<unsigned>(positions), parts), dim3(threads),
            static_cast<int>(head / 2 * static_cast<std::int64_t>(sizeof(float2)))},
           stream, static_cast<const Element*>(x), static_cast<Element*>(y), width, static_cast<int>(head), base, first, backward);
  });
}

void add_positions(DType type, DType stream_type, const void* x, const void* w, void* y, std::int64_t positions,
                   std::int64_t samples, std::int64_t width, std::int64_t first, cudaStream_t stream) {
  with_elements(type, stream_type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Stream = decltype(wide);
    launch(add_positions_kernel<Element, Stream>, {dim3(static_cast<unsigned>(positions * samples)), dim3(threads)}, stream,
           static_cast<const Stream*>(x), static_cast<const Element*>(w), static_cast<Stream*>(y), samples, width, first);
  });
}

void add_positions_backward(DType type, const void* dy, DType gradient, void* dw, std::int64_t positions, std::int64_t samples,
                            std::int64_t width, std::int64_t first, std::int64_t held, bool accumulate, cudaStream_t stream) {
  with_either(type, gradient, [&](auto element, auto result) {
    using Element = decltype(element);
    using Gradient = decltype(result);
    launch(add_positions_backward_kernel<Element, Gradient>,
           {dim3(static_cast<unsigned>(held), static_cast<unsigned>((width + threads - 1) / threads)), dim3(threads)}, stream,
           static_cast<const Element*>(dy), static_cast<Gradient*>(dw), positions, samples, width, first, accumulate);
  });
}

}  // namespace baton::cuda
