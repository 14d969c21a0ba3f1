#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"

namespace baton::cuda {
namespace {

__device__ float normal_share(float x) { return 0.5F * (1 + erff(x * 0.70710678F)); }

constexpr float root = 0.79788456F;  // √(2 / π)
constexpr float cubic = 0.044715F;

__device__ float tanh_of(float x) { return tanhf(root * (x + cubic * x * x * x)); }

struct Gelu {
  template <typename Element>
  __device__ Element operator()(Element x, Element) const {
    const float value = widened(x);
    return rounded<Element>(value * normal_share(value));
  }
};
struct GeluSlope {
  template <typename Element>
  __device__ Element operator()(Element dy, Element x) const {
    const float value = widened(x);
    const float density = expf(-value * value / 2) * 0.39894228F;
    return rounded<Element>(widened(dy) * (normal_share(value) + value * density));
  }
};

struct TanhGelu {
  template <typename Element>
  __device__ Element operator()(Element x, Element) const {
    const float value = widened(x);
    return rounded<Element>(0.5F * value * (1 + tanh_of(value)));
  }
};
struct TanhGeluSlope {
  template <typename Element>
  __device__ Element operator()(Element dy, Element x) const {
    const float value = widened(x);
    const float tangent = tanh_of(value);
    const float inner = root * (1 + 3 * cubic * value * value);
    return rounded<Element>(widened(dy) * 0.5F * (1 + tangent + value * (1 - tangent * tangent) * inner));
  }
};

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

struct SiluGate {
  template <typename Element>
  __device__ Element operator()(Element a, Element b) const {
    const float value = widened(a);
    return rounded<Element>(value * sigmoid(value) * widened(b));
  }
};

template <typename Element>
__device__ void silu_gate_slopes(Element dy, Element a, Element b, Element& da, Element& db) {
  const float slope = widened(dy);
  const float value = widened(a);
  const float share = sigmoid(value);
  da = rounded<Element>(slope * widened(b) * share * (1 + value * (1 - share)));
  db = rounded<Element>(slope * value * share);
}

template <typename Element>
__global__ void __launch_bounds__(map_threads)
    silu_gate_backward_kernel(const Element* dy, const Element* a, const Element* b, Element* da, Element* db, std::int64_t count) {
  allow_next();
  await_previous();
  using P = Pack<Element>;
  over<P::size>(
      count,
      [&](std::int64_t i) {
        const P slope = reinterpret_cast<const P*>(dy)[i];
        const P left = reinterpret_cast<const P*>(a)[i];
        const P right = reinterpret_cast<const P*>(b)[i];
        P left_slope;
        P right_slope;
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          silu_gate_slopes(slope.elements[e], left.elements[e], right.elements[e], left_slope.elements[e], right_slope.elements[e]);
        }
        reinterpret_cast<P*>(da)[i] = left_slope;
        reinterpret_cast<P*>(db)[i] = right_slope;
      },
      [&](std::int64_t i) { silu_gate_slopes(dy[i], a[i], b[i], da[i], db[i]); });
}

}  // namespace

void gelu(DType type, const void* x, void* y, std::int64_t count, bool tanh, cudaStream_t stream) {
  if (tanh) {
    map(type, x, x, y, count, TanhGelu(), stream);
  } else {
    map(type, x, x, y, count, Gelu(), stream);
  }
}

void gelu_backward(DType type, const void* dy, const void* x, void* dx, std::int64_t count, bool tanh, cudaStream_t stream) {
  if (tanh) {
    map(type, dy, x, dx, count, TanhGeluSlope(), stream);
  } else {
    map(type, dy, x, dx, count, GeluSlope(), stream);
  }
}

void silu_gate(DType type, const void* a, const void* b, void* y, std::int64_t count, cudaStream_t stream) {
  map(type, a, b, y, count, SiluGate(), stream);
}

void silu_gate_backward(DType type, const void* dy, const void* a, const void* b, void* da, void* db, std::int64_t count,
                        cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(silu_gate_backward_kernel<Element>, {dim3(blocks_for(count / Pack<Element>::size)), dim3(map_threads)}, stream,
           static_cast<const Element*>(dy), static_cast<const Element*>(a), static_cast<const Element*>(b),
           static_cast<Element*>(da), static_cast<Element*>(db), count);
  });
}

}  // namespace baton::cuda
