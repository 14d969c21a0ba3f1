#include <algorithm>

#include "baton/exec/backend/cuda/element.cuh"
#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/programmatic.cuh"

namespace baton::exec::cuda {
namespace {

constexpr int threads = 256;

LaunchShape shape_for(std::int64_t count) {
  return {dim3(static_cast<unsigned>(std::clamp<std::int64_t>((count + threads - 1) / threads, 1, 2048))), dim3(threads)};
}

__device__ float normal_share(float x) { return 0.5F * (1 + erff(x * 0.70710678F)); }

template <typename Element>
__global__ void __launch_bounds__(threads) gelu_kernel(const Element* x, Element* y, std::int64_t count) {
  allow_next();
  await_previous();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const float value = widened(x[i]);
    y[i] = rounded<Element>(value * normal_share(value));
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    gelu_backward_kernel(const Element* dy, const Element* x, Element* dx, std::int64_t count) {
  allow_next();
  await_previous();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const float value = widened(x[i]);
    const float density = expf(-value * value / 2) * 0.39894228F;
    dx[i] = rounded<Element>(widened(dy[i]) * (normal_share(value) + value * density));
  }
}

}  // namespace

void gelu(DType type, const void* x, void* y, std::int64_t count, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(gelu_kernel<Element>, shape_for(count), stream, static_cast<const Element*>(x), static_cast<Element*>(y), count);
  });
}

void gelu_backward(DType type, const void* dy, const void* x, void* dx, std::int64_t count, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(gelu_backward_kernel<Element>, shape_for(count), stream, static_cast<const Element*>(dy), static_cast<const Element*>(x),
           static_cast<Element*>(dx), count);
  });
}

}  // namespace baton::exec::cuda
