#pragma once

#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/programmatic.cuh"

/// Kernels that work element by element.
namespace baton::cuda {

constexpr int map_threads = 256;

inline unsigned blocks_for(std::int64_t items) {
  constexpr std::int64_t most_blocks = 2048;
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + map_threads - 1) / map_threads, 1, most_blocks));
}

/// Calls `work(i)` for the packs of `Size` elements, and then `one(i)` for the elements after the last whole pack.
template <int Size, typename Work, typename One>
__device__ void over(std::int64_t count, Work work, One one) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count / Size; i += stride) {
    work(i);
  }
  for (std::int64_t i = count / Size * Size + first; i < count; i += stride) {
    one(i);
  }
}

/// c[i] = f(a[i], b[i]); b may be a.
template <typename Element, typename Function>
__global__ void __launch_bounds__(map_threads)
    map_kernel(const Element* a, const Element* b, Element* c, std::int64_t count, Function f) {
  allow_next();
  await_previous();
  using P = Pack<Element>;
  over<P::size>(
      count,
      [&](std::int64_t i) {
        const P left = reinterpret_cast<const P*>(a)[i];
        const P right = reinterpret_cast<const P*>(b)[i];
        P result;
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          result.elements[e] = f(left.elements[e], right.elements[e]);
        }
        reinterpret_cast<P*>(c)[i] = result;
      },
      [&](std::int64_t i) { c[i] = f(a[i], b[i]); });
}

template <typename Function>
void map(DType type, const void* a, const void* b, void* c, std::int64_t count, Function f, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(map_kernel<Element, Function>, {dim3(blocks_for(count / Pack<Element>::size)), dim3(map_threads)}, stream,
           static_cast<const Element*>(a), static_cast<const Element*>(b), static_cast<Element*>(c), count, f);
  });
}

}  // namespace baton::cuda
