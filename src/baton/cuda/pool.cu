#include "baton/cuda/convolution.h"
#include "baton/cuda/map.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = map_threads;

struct Window {
  int height;
  int width;
  int window;
  int stride;
  int padding;
  int out_height;
  int out_width;
};

Window window_of(const PoolShape& shape) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {number(shape.height),  number(shape.width),        number(shape.window),     number(shape.stride),
          number(shape.padding), number(shape.out_height()), number(shape.out_width())};
}

/// The place in an image of the first of the largest elements of a window. A NaN is larger than all, and the last of them counts.
template <typename Element>
__device__ int place_of_largest(const Element* image, const Window& w, int out_y, int out_x) {
  int best = -1;
  float largest = 0;
  const int first_y = out_y * w.stride - w.padding;
  const int first_x = out_x * w.stride - w.padding;
  for (int y = max(first_y, 0); y < min(first_y + w.window, w.height); ++y) {
    for (int x = max(first_x, 0); x < min(first_x + w.window, w.width); ++x) {
      const float value = widened(image[y * w.width + x]);
      if (best < 0 || value > largest || isnan(value)) {
        best = y * w.width + x;
        largest = value;
      }
    }
  }
  return best;
}

/// One thread per element of y.
template <typename Element>
__global__ void __launch_bounds__(threads) max_pool_kernel(const Element* x, Element* y, std::int64_t count, Window w) {
  allow_next();
  await_previous();
  const int pixels = w.out_height * w.out_width;
  over<1>(
      count,
      [&](std::int64_t i) {
        const Element* image = x + i / pixels * w.height * w.width;
        const int pixel = static_cast<int>(i % pixels);
        const int place = place_of_largest(image, w, pixel / w.out_width, pixel % w.out_width);
        y[i] = image[place];
      },
      [](std::int64_t) {});
}

/// One thread per element of dx, which adds from all windows that hold it, in their order.
template <typename Element>
__global__ void __launch_bounds__(threads)
    max_pool_backward_kernel(const Element* dy, const Element* x, Element* dx, std::int64_t count, Window w) {
  allow_next();
  await_previous();
  const int pixels = w.height * w.width;
  over<1>(
      count,
      [&](std::int64_t i) {
        const std::int64_t image = i / pixels;
        const int pixel = static_cast<int>(i % pixels);
        const int y = pixel / w.width + w.padding;
        const int x_at = pixel % w.width + w.padding;
        const int first_y = y < w.window ? 0 : (y - w.window) / w.stride + 1;
        const int first_x = x_at < w.window ? 0 : (x_at - w.window) / w.stride + 1;
        float sum = 0;
        for (int out_y = first_y; out_y <= min(y / w.stride, w.out_height - 1); ++out_y) {
          for (int out_x = first_x; out_x <= min(x_at / w.stride, w.out_width - 1); ++out_x) {
            if (place_of_largest(x + image * pixels, w, out_y, out_x) == pixel) {
              sum += widened(dy[(image * w.out_height + out_y) * w.out_width + out_x]);
            }
          }
        }
        dx[i] = rounded<Element>(sum);
      },
      [](std::int64_t) {});
}

/// One block per image. The place of the largest element of each window is found once and kept in shared memory, a byte per window.
template <typename Element>
__global__ void __launch_bounds__(threads)
    max_pool_backward_of_images_kernel(const Element* dy, const Element* x, Element* dx, Window w) {
  extern __shared__ unsigned char places[];
  allow_next();
  await_previous();
  const int pixels = w.height * w.width;
  const int windows = w.out_height * w.out_width;
  const Element* image = x + static_cast<std::int64_t>(blockIdx.x) * pixels;
  const Element* slopes = dy + static_cast<std::int64_t>(blockIdx.x) * windows;
  Element* result = dx + static_cast<std::int64_t>(blockIdx.x) * pixels;
  for (int i = static_cast<int>(threadIdx.x); i < windows; i += threads) {
    const int out_y = i / w.out_width;
    const int out_x = i - out_y * w.out_width;
    const int place = place_of_largest(image, w, out_y, out_x);
    const int y = place / w.width;
    const int in_window = (y - (out_y * w.stride - w.padding)) * w.window + (place - y * w.width) - (out_x * w.stride - w.padding);
    places[i] = static_cast<unsigned char>(in_window);
  }
  __syncthreads();
  for (int pixel = static_cast<int>(threadIdx.x); pixel < pixels; pixel += threads) {
    const int row = pixel / w.width;
    const int y = row + w.padding;
    const int x_at = pixel - row * w.width + w.padding;
    const int first_y = y < w.window ? 0 : (y - w.window) / w.stride + 1;
    const int first_x = x_at < w.window ? 0 : (x_at - w.window) / w.stride + 1;
    const int last_y = min(y / w.stride, w.out_height - 1);
    const int last_x = min(x_at / w.stride, w.out_width - 1);
    float sum = 0;
    for (int out_y = first_y; out_y <= last_y; ++out_y) {
      for (int out_x = first_x; out_x <= last_x; ++out_x) {
        const int window = out_y * w.out_width + out_x;
        if (places[window] == (y - out_y * w.stride) * w.window + x_at - out_x * w.stride) {
          sum += widened(slopes[window]);
        }
      }
    }
    result[pixel] = rounded<Element>(sum);
  }
}

/// One warp per image.
template <typename Element>
__global__ void __launch_bounds__(threads)
    average_pool_kernel(const Element* x, Element* y, std::int64_t images, std::int64_t pixels) {
  allow_next();
  await_previous();
  const std::int64_t image = static_cast<std::int64_t>(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  if (image >= images) {
    return;
  }
  float sum = 0;
  for (std::int64_t p = threadIdx.x % 32; p < pixels; p += 32) {
    sum += widened(x[image * pixels + p]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  }
  if (threadIdx.x % 32 == 0) {
    y[image] = rounded<Element>(sum / static_cast<float>(pixels));
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    average_pool_backward_kernel(const Element* dy, Element* dx, std::int64_t count, std::int64_t pixels) {
  allow_next();
  await_previous();
  over<1>(
      count, [&](std::int64_t i) { dx[i] = rounded<Element>(widened(dy[i / pixels]) / static_cast<float>(pixels)); },
      [](std::int64_t) {});
}

}  // namespace

void max_pool(DType type, const PoolShape& shape, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t count = shape.images * shape.out_height() * shape.out_width();
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(max_pool_kernel<Element>, {dim3(blocks_for(count)), dim3(threads)}, stream, static_cast<const Element*>(x),
           static_cast<Element*>(y), count, window_of(shape));
  });
}

void max_pool_backward(DType type, const PoolShape& shape, const void* dy, const void* x, void* dx, cudaStream_t stream) {
  const std::int64_t count = shape.images * shape.height * shape.width;
  const std::int64_t windows = shape.out_height() * shape.out_width();
  constexpr std::int64_t most_windows = 48 * 1024;  // as many as shared memory holds
  const bool by_image = windows <= most_windows && shape.window < 16;
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    if (by_image) {
      return launch(max_pool_backward_of_images_kernel<Element>,
                    {dim3(static_cast<unsigned>(shape.images)), dim3(threads), static_cast<int>(windows)}, stream,
                    static_cast<const Element*>(dy), static_cast<const Element*>(x), static_cast<Element*>(dx), window_of(shape));
    }
    launch(max_pool_backward_kernel<Element>, {dim3(blocks_for(count)), dim3(threads)}, stream, static_cast<const Element*>(dy),
           static_cast<const Element*>(x), static_cast<Element*>(dx), count, window_of(shape));
  });
}

void average_pool(DType type, const void* x, void* y, std::int64_t images, std::int64_t pixels, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(average_pool_kernel<Element>, {dim3(static_cast<unsigned>((images + threads / 32 - 1) / (threads / 32))), dim3(threads)},
           stream, static_cast<const Element*>(x), static_cast<Element*>(y), images, pixels);
  });
}

void average_pool_backward(DType type, const void* dy, void* dx, std::int64_t images, std::int64_t pixels, cudaStream_t stream) {
  const std::int64_t count = images * pixels;
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    launch(average_pool_backward_kernel<Element>, {dim3(blocks_for(count)), dim3(threads)}, stream, static_cast<const Element*>(dy),
           static_cast<Element*>(dx), count, pixels);
  });
}

}  // namespace baton::cuda
