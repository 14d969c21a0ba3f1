#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"

/// Between images and sequences: elements move and nothing is computed, but for one sum over samples.
namespace baton::cuda {
namespace {

constexpr int threads = 256;

/// One thread per element of the sequence.
template <typename Element, typename Stream>
__global__ void __launch_bounds__(threads)
    image_to_sequence_kernel(const Element* x, const Element* token, Stream* y, SequenceShape shape) {
  allow_next();
  await_previous();
  const std::int64_t step = shape.samples * shape.channels;
  const std::int64_t count = shape.positions * step;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * threads) {
    const std::int64_t position = shape.first + i / step;
    y[i] = rounded<Stream>(widened(position == 0 ? token[i % shape.channels] : x[i % step * shape.places + position - 1]));
  }
}

/// One thread per element of the images.
template <typename Element, typename Stream>
__global__ void __launch_bounds__(threads) image_to_sequence_backward_kernel(const Stream* dy, Element* dx, SequenceShape shape) {
  allow_next();
  await_previous();
  const std::int64_t step = shape.samples * shape.channels;
  const std::int64_t count = shape.places * step;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * threads) {
    const std::int64_t position = i % shape.places + 1 - shape.first;
    const bool held = position >= 0 && position < shape.positions;
    dx[i] = rounded<Element>(held ? widened(dy[position * step + i / shape.places]) : 0.0F);
  }
}

/// One thread per channel; sums run in the order of the samples.
template <typename Element, typename Gradient>
__global__ void __launch_bounds__(threads)
    token_gradient_kernel(const Element* dy, Gradient* dtoken, std::int64_t samples, std::int64_t channels, bool accumulate) {
  allow_next();
  await_previous();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (c >= channels) {
    return;
  }
  float sum = 0;
  for (std::int64_t b = 0; b < samples; ++b) {
    sum += widened(dy[b * channels + c]);
  }
  dtoken[c] = rounded<Gradient>((accumulate ? widened(dtoken[c]) : 0.0F) + sum);
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    copy_front_kernel(const Element* x, Element* y, std::int64_t copied, std::int64_t count) {
  allow_next();
  await_previous();
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * threads) {
    y[i] = i < copied ? x[i] : rounded<Element>(0.0F);
  }
}

}  // namespace

void image_to_sequence(DType type, DType stream_type, const SequenceShape& shape, const void* x, const void* token, void* y,
                       cudaStream_t stream) {
  with_elements(type, stream_type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Stream = decltype(wide);
    launch(image_to_sequence_kernel<Element, Stream>,
           {dim3(blocks_for(shape.positions * shape.samples * shape.channels)), dim3(threads)}, stream,
           static_cast<const Element*>(x), static_cast<const Element*>(token), static_cast<Stream*>(y), shape);
  });
}

void image_to_sequence_backward_input(DType type, DType stream_type, const SequenceShape& shape, const void* dy, void* dx,
                                      cudaStream_t stream) {
  with_elements(type, stream_type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Stream = decltype(wide);
    launch(image_to_sequence_backward_kernel<Element, Stream>,
           {dim3(blocks_for(shape.places * shape.samples * shape.channels)), dim3(threads)}, stream, static_cast<const Stream*>(dy),
           static_cast<Element*>(dx), shape);
  });
}

void image_to_sequence_backward_weight(DType type, const SequenceShape& shape, const void* dy, DType gradient, void* dtoken,
                                       bool accumulate, cudaStream_t stream) {
  with_either(type, gradient, [&](auto element, auto result) {
    using Element = decltype(element);
    using Gradient = decltype(result);
    launch(token_gradient_kernel<Element, Gradient>,
           {dim3(static_cast<unsigned>((shape.channels + threads - 1) / threads)), dim3(threads)}, stream,
           static_cast<const Element*>(dy), static_cast<Gradient*>(dtoken), shape.first == 0 ? shape.samples : std::int64_t{0},
           shape.channels, accumulate);
  });
}

void copy_front(DType type, const void* x, void* y, std::int64_t copied, std::int64_t count, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(copy_front_kernel<Element>, {dim3(blocks_for(count)), dim3(threads)}, stream, static_cast<const Element*>(x),
           static_cast<Element*>(y), copied, count);
  });
}

}  // namespace baton::cuda
