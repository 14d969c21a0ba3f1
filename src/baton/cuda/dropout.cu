#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = 256;

template <typename Element>
__global__ void __launch_bounds__(threads) dropout_kernel(const __grid_constant__ DropoutSettings settings, const Element* x,
                                                          Element* y, std::int64_t count, const std::int64_t* step) {
  allow_next();
  await_previous();
  const op::DropoutMask mask(settings.rate, settings.layer, settings.seed, *step);
  const auto factor = static_cast<float>(1 / (1 - settings.rate));
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const std::int64_t place = settings.places.of(i);
    y[i] = rounded<Element>(mask.drops(mask.words(place), place) ? 0.0F : widened(x[i]) * factor);
  }
}

}  // namespace

void dropout(DType type, const DropoutSettings& settings, const void* x, void* y, std::int64_t count, const std::int64_t* step,
             cudaStream_t stream) {
  const std::int64_t blocks = std::clamp<std::int64_t>((count + threads - 1) / threads, 1, 8192);
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(dropout_kernel<Element>, {dim3(static_cast<unsigned>(blocks)), dim3(threads)}, stream, settings,
           static_cast<const Element*>(x), static_cast<Element*>(y), count, step);
  });
}

}  // namespace baton::cuda
