#include <algorithm>

#include "baton/cuda/convolution.h"
#include "baton/cuda/map.cuh"

/// Norms over the samples and pixels of a channel. A unit is a channel of a group of samples, of which one mean is taken. Its sums
/// are taken in parts, and the parts added up in order, in double precision.
namespace baton::cuda {
namespace {

constexpr int threads = 256;

struct Moments {
  float mean;
  float factor;  // 1 / √(variance + epsilon)
};

struct Units {
  int channels;
  int pixels;
  int group;  // samples
  int parts;
};

/// Two sums over a block, for its first thread.
__device__ double2 sums_of_block(double first, double second) {
  __shared__ double2 shared[threads / 32];
  const auto over_warp = [&] {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      first += __shfl_xor_sync(0xffffffffU, first, distance);
      second += __shfl_xor_sync(0xffffffffU, second, distance);
    }
  };
  over_warp();
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = {first, second};
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const bool valid = threadIdx.x < threads / 32;
    first = valid ? shared[threadIdx.x].x : 0;
    second = valid ? shared[threadIdx.x].y : 0;
    over_warp();
  }
  return {first, second};
}

/// Calls `work(offset)` for groups of `Width` elements of the block's part of its unit. blockIdx is (channel, group, part).
template <int Width, typename Work>
__device__ void over_part(const Units& units, Work work) {
  const int first = static_cast<int>(static_cast<std::int64_t>(units.group) * blockIdx.z / units.parts);
  const int last = static_cast<int>(static_cast<std::int64_t>(units.group) * (blockIdx.z + 1) / units.parts);
  const int groups = units.pixels / Width;
  for (int i = first * groups + static_cast<int>(threadIdx.x); i < last * groups; i += threads) {
    const int sample = static_cast<int>(blockIdx.y) * units.group + i / groups;
    work((static_cast<std::int64_t>(sample) * units.channels + blockIdx.x) * units.pixels + i % groups * Width);
  }
}

template <typename Element, int Width>
struct alignas(Width * sizeof(Element)) Group {
  Element elements[Width];
};

/// Sums of the distances from the unit's first element, and of their squares.
template <typename Element, int Width>
__global__ void __launch_bounds__(threads) moment_sums_kernel(const Element* x, double2* sums, Units units) {
  allow_next();
  await_previous();
  const float shift = widened(
      x[(static_cast<std::int64_t>(blockIdx.y) * units.group * units.channels + blockIdx.x) * units.pixels]);
  float sum = 0;
  float squares = 0;
  over_part<Width>(units, [&](std::int64_t offset) {
    const auto group = *reinterpret_cast<const Group<Element, Width>*>(x + offset);
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      const float distance = widened(group.elements[e]) - shift;
      sum += distance;
      squares += distance * distance;
    }
  });
  const double2 both = sums_of_block(static_cast<double>(sum), static_cast<double>(squares));
  if (threadIdx.x == 0) {
    sums[(static_cast<std::int64_t>(blockIdx.y) * units.channels + blockIdx.x) * units.parts + blockIdx.z] = both;
  }
}

__device__ double2 sum_of_parts(const double2* sums, std::int64_t unit, int parts) {
  double2 total{};
  for (int part = 0; part < parts; ++part) {
    total.x += sums[unit * parts + part].x;
    total.y += sums[unit * parts + part].y;
  }
  return total;
}

/// One thread per unit.
template <typename Element>
__global__ void __launch_bounds__(threads)
    moments_kernel(const Element* x, const double2* sums, Moments* moments, Units units, int count, float epsilon) {
  allow_next();
  await_previous();
  const int unit = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (unit >= count) {
    return;
  }
  const int group = unit / units.channels;
  const auto shift = static_cast<double>(
      widened(x[(static_cast<std::int64_t>(group) * units.group * units.channels + unit % units.channels) * units.pixels]));
  const double2 total = sum_of_parts(sums, unit, units.parts);
  const double elements = static_cast<double>(units.group) * units.pixels;
  const double mean = total.x / elements;
  const double variance = fmax(0.0, total.y / elements - mean * mean);
  moments[unit] = {static_cast<float>(shift + mean), static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)))};
}

/// One thread per channel: moments as they were kept.
__global__ void __launch_bounds__(threads)
    kept_moments_kernel(const float* mean, const float* variance, Moments* moments, int channels, float epsilon) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel < channels) {
    const double factor = 1 / sqrt(static_cast<double>(variance[channel]) + static_cast<double>(epsilon));
    moments[channel] = {mean[channel], static_cast<float>(factor)};
  }
}

/// One thread per channel.
template <typename Element>
__global__ void __launch_bounds__(threads) track_moments_kernel(const Element* x, const double2* sums, float* mean, float* variance,
                                                                std::int32_t* tracked, Units units, int groups, float momentum) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel == 0) {
    *tracked += groups;
  }
  if (channel >= units.channels) {
    return;
  }
  const double elements = static_cast<double>(units.group) * units.pixels;
  const double share = momentum;
  for (int group = 0; group < groups; ++group) {
    const std::int64_t unit = static_cast<std::int64_t>(group) * units.channels + channel;
    const auto shift = static_cast<double>(
        widened(x[(static_cast<std::int64_t>(group) * units.group * units.channels + channel) * units.pixels]));
    const double2 total = sum_of_parts(sums, unit, units.parts);
    const double distance = total.x / elements;
    const double biased = fmax(0.0, total.y / elements - distance * distance);
    const double unbiased = biased * elements / fmax(1.0, elements - 1);
    mean[channel] = static_cast<float>((1 - share) * static_cast<double>(mean[channel]) + share * (shift + distance));
    variance[channel] = static_cast<float>((1 - share) * static_cast<double>(variance[channel]) + share * unbiased);
  }
}

/// Sums of dy, and of dy times what the norm made of x before gain and bias.
template <typename Element, int Width>
__global__ void __launch_bounds__(threads)
    slope_sums_kernel(const Element* dy, const Element* x, const Moments* moments, double2* sums, Units units) {
  allow_next();
  await_previous();
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.y) * units.channels + blockIdx.x;
  const Moments own = moments[unit];
  float sum = 0;
  float along = 0;
  over_part<Width>(units, [&](std::int64_t offset) {
    const auto slopes = *reinterpret_cast<const Group<Element, Width>*>(dy + offset);
    const auto values = *reinterpret_cast<const Group<Element, Width>*>(x + offset);
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      const float slope = widened(slopes.elements[e]);
      sum += slope;
      along += slope * ((widened(values.elements[e]) - own.mean) * own.factor);
    }
  });
  const double2 both = sums_of_block(static_cast<double>(sum), static_cast<double>(along));
  if (threadIdx.x == 0) {
    sums[unit * units.parts + blockIdx.z] = both;
  }
}

/// One thread per unit: the means of the sums of slope_sums_kernel.
__global__ void __launch_bounds__(threads) slope_means_kernel(const double2* sums, float2* means, Units units, int count) {
  allow_next();
  await_previous();
  const int unit = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (unit < count) {
    const double2 total = sum_of_parts(sums, unit, units.parts);
    const double elements = static_cast<double>(units.group) * units.pixels;
    means[unit] = {static_cast<float>(total.x / elements), static_cast<float>(total.y / elements)};
  }
}

/// Calls `work(element, channel, unit)` for groups of `Width` elements of all images.
template <int Width, typename Work>
__device__ void over_images(std::int64_t count, const Units& units, Work work) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x; i < count / Width; i += stride) {
    const auto image = static_cast<unsigned>(i * Width / units.pixels);
    const unsigned channel = image % static_cast<unsigned>(units.channels);
    const unsigned group = image / static_cast<unsigned>(units.channels) / static_cast<unsigned>(units.group);
    work(i, channel, group * static_cast<unsigned>(units.channels) + channel);
  }
}

template <typename Element, int Width>
__global__ void __launch_bounds__(threads) batch_norm_kernel(const Element* x, const Element* gain, const Element* bias, Element* y,
                                                             const Moments* moments, std::int64_t count, Units units) {
  allow_next();
  await_previous();
  using G = Group<Element, Width>;
  over_images<Width>(count, units, [&](std::int64_t i, unsigned channel, unsigned unit) {
    const Moments own = moments[unit];
    const float factor = own.factor * widened(gain[channel]);
    const float offset = widened(bias[channel]);
    const G values = reinterpret_cast<const G*>(x)[i];
    G result;
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      result.elements[e] = rounded<Element>((widened(values.elements[e]) - own.mean) * factor + offset);
    }
    reinterpret_cast<G*>(y)[i] = result;
  });
}

template <typename Element, int Width>
__global__ void __launch_bounds__(threads)
    batch_norm_backward_kernel(const Element* dy, const Element* x, const Element* gain, Element* dx, const Moments* moments,
                               const float2* means, std::int64_t count, Units units) {
  allow_next();
  await_previous();
  using G = Group<Element, Width>;
  over_images<Width>(count, units, [&](std::int64_t i, unsigned channel, unsigned unit) {
    const Moments own = moments[unit];
    const float2 mean = means[unit];
    const float factor = own.factor * widened(gain[channel]);
    const G slopes = reinterpret_cast<const G*>(dy)[i];
    const G values = reinterpret_cast<const G*>(x)[i];
    G result;
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      const float normal = (widened(values.elements[e]) - own.mean) * own.factor;
      result.elements[e] = rounded<Element>((widened(slopes.elements[e]) - mean.x - normal * mean.y) * factor);
    }
    reinterpret_cast<G*>(dx)[i] = result;
  });
}

/// One thread per channel.
template <typename Element>
__global__ void __launch_bounds__(threads)
    batch_norm_weight_kernel(const double2* sums, Element* dgain, Element* dbias, Units units, int groups, bool accumulate) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel >= units.channels) {
    return;
  }
  double2 total{};
  for (int group = 0; group < groups; ++group) {
    const double2 own = sum_of_parts(sums, static_cast<std::int64_t>(group) * units.channels + channel, units.parts);
    total.x += own.x;
    total.y += own.y;
  }
  dgain[channel] = rounded<Element>((accumulate ? widened(dgain[channel]) : 0.0F) + static_cast<float>(total.y));
  dbias[channel] = rounded<Element>((accumulate ? widened(dbias[channel]) : 0.0F) + static_cast<float>(total.x));
}

struct Prepared {
  Units units;
  int groups;
  int count;  // number of units
  double2* sums;
  Moments* moments;
  float2* means;

  Prepared(const BatchNormShape& shape, void* workspace) {
    constexpr std::int64_t enough_blocks = 1024;
    groups = static_cast<int>(shape.samples / shape.group);
    count = static_cast<int>(groups * shape.channels);
    const std::int64_t parts = std::clamp<std::int64_t>(enough_blocks / std::max(count, 1), 1, shape.group);
    units = {static_cast<int>(shape.channels), static_cast<int>(shape.pixels), static_cast<int>(shape.group),
             static_cast<int>(parts)};
    sums = static_cast<double2*>(workspace);
    moments = reinterpret_cast<Moments*>(sums + static_cast<std::int64_t>(count) * parts);
    means = reinterpret_cast<float2*>(moments + count);
  }
  std::int64_t bytes() const {
    return count * (units.parts * static_cast<std::int64_t>(sizeof(double2)) + static_cast<std::int64_t>(sizeof(Moments)) +
                    static_cast<std::int64_t>(sizeof(float2)));
  }
  LaunchShape over_parts() const {
    return {dim3(static_cast<unsigned>(units.channels), static_cast<unsigned>(groups), static_cast<unsigned>(units.parts)),
            dim3(threads)};
  }
  static LaunchShape over(std::int64_t items) {
    return {dim3(static_cast<unsigned>((items + threads - 1) / threads)), dim3(threads)};
  }

  template <typename Element, int Width>
  void take_moments(const Element* x, float epsilon, cudaStream_t stream) const {
    launch(moment_sums_kernel<Element, Width>, over_parts(), stream, x, sums, units);
    launch(moments_kernel<Element>, over(count), stream, x, static_cast<const double2*>(sums), moments, units, count, epsilon);
  }
  template <typename Element, int Width>
  void sum_slopes(const Element* dy, const Element* x, cudaStream_t stream) const {
    launch(slope_sums_kernel<Element, Width>, over_parts(), stream, dy, x, static_cast<const Moments*>(moments), sums, units);
  }
};

/// Calls `run(element, width)`: how many neighbours of an image are read at once.
template <typename Run>
void with_width(DType type, std::int64_t pixels, Run run) {
  with_element(type, [&](auto element) {
    constexpr int size = Pack<decltype(element)>::size;
    if (pixels % size == 0) {
      run(element, std::integral_constant<int, size>());
    } else if (pixels % 4 == 0) {
      run(element, std::integral_constant<int, 4>());
    } else {
      run(element, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

std::int64_t batch_norm_workspace(const BatchNormShape& shape) { return Prepared(shape, nullptr).bytes(); }

void batch_norm(DType type, const BatchNormShape& shape, const void* x, const void* gain, const void* bias, void* y,
                void* workspace, cudaStream_t stream) {
  const Prepared prepared(shape, workspace);
  const std::int64_t count = shape.samples * shape.channels * shape.pixels;
  with_width(type, shape.pixels, [&](auto element, auto width) {
    using Element = decltype(element);
    constexpr int size = decltype(width)::value;
    const auto* values = static_cast<const Element*>(x);
    prepared.template take_moments<Element, size>(values, shape.epsilon, stream);
    launch(batch_norm_kernel<Element, size>, {dim3(blocks_for(count / size)), dim3(threads)}, stream, values,
           static_cast<const Element*>(gain), static_cast<const Element*>(bias), static_cast<Element*>(y),
           static_cast<const Moments*>(prepared.moments), count, prepared.units);
  });
}

void batch_norm_by(DType type, const BatchNormShape& shape, const void* x, const void* gain, const void* bias, const float* mean,
                   const float* variance, void* y, void* workspace, cudaStream_t stream) {
  const Prepared prepared(shape, workspace);
  const std::int64_t count = shape.samples * shape.channels * shape.pixels;
  with_width(type, shape.pixels, [&](auto element, auto width) {
    using Element = decltype(element);
    constexpr int size = decltype(width)::value;
    launch(kept_moments_kernel, Prepared::over(shape.channels), stream, mean, variance, prepared.moments,
           static_cast<int>(shape.channels), shape.epsilon);
    launch(batch_norm_kernel<Element, size>, {dim3(blocks_for(count / size)), dim3(threads)}, stream,
           static_cast<const Element*>(x), static_cast<const Element*>(gain), static_cast<const Element*>(bias),
           static_cast<Element*>(y), static_cast<const Moments*>(prepared.moments), count, prepared.units);
  });
}

void track_moments(DType type, const BatchNormShape& shape, const void* x, float momentum, float* mean, float* variance,
                   std::int32_t* groups, void* workspace, cudaStream_t stream) {
  const Prepared prepared(shape, workspace);
  with_width(type, shape.pixels, [&](auto element, auto width) {
    using Element = decltype(element);
    constexpr int size = decltype(width)::value;
    const auto* values = static_cast<const Element*>(x);
    launch(moment_sums_kernel<Element, size>, prepared.over_parts(), stream, values, prepared.sums, prepared.units);
    launch(track_moments_kernel<Element>, Prepared::over(shape.channels), stream, values,
           static_cast<const double2*>(prepared.sums), mean, variance, groups, prepared.units, prepared.groups, momentum);
  });
}

void batch_norm_backward_input(DType type, const BatchNormShape& shape, const void* dy, const void* x, const void* gain, void* dx,
                               void* workspace, cudaStream_t stream) {
  const Prepared prepared(shape, workspace);
  const std::int64_t count = shape.samples * shape.channels * shape.pixels;
  with_width(type, shape.pixels, [&](auto element, auto width) {
    using Element = decltype(element);
    constexpr int size = decltype(width)::value;
    const auto* values = static_cast<const Element*>(x);
    const auto* slopes = static_cast<const Element*>(dy);
    prepared.template take_moments<Element, size>(values, shape.epsilon, stream);
    prepared.template sum_slopes<Element, size>(slopes, values, stream);
    launch(slope_means_kernel, Prepared::over(prepared.count), stream, static_cast<const double2*>(prepared.sums), prepared.means,
           prepared.units, prepared.count);
    launch(batch_norm_backward_kernel<Element, size>, {dim3(blocks_for(count / size)), dim3(threads)}, stream, slopes, values,
           static_cast<const Element*>(gain), static_cast<Element*>(dx), static_cast<const Moments*>(prepared.moments),
           static_cast<const float2*>(prepared.means), count, prepared.units);
  });
}

void batch_norm_backward_weight(DType type, const BatchNormShape& shape, const void* x, const void* dy, DType gradient, void* dgain,
                                void* dbias, bool accumulate, void* workspace, cudaStream_t stream) {
  const Prepared prepared(shape, workspace);
  with_width(type, shape.pixels, [&](auto element, auto width) {
    using Element = decltype(element);
    constexpr int size = decltype(width)::value;
    const auto* values = static_cast<const Element*>(x);
    prepared.template take_moments<Element, size>(values, shape.epsilon, stream);
    prepared.template sum_slopes<Element, size>(static_cast<const Element*>(dy), values, stream);
  });
  with_element(gradient, [&](auto element) {
    using Gradient = decltype(element);
    launch(batch_norm_weight_kernel<Gradient>, Prepared::over(shape.channels), stream, static_cast<const double2*>(prepared.sums),
           static_cast<Gradient*>(dgain), static_cast<Gradient*>(dbias), prepared.units, prepared.groups, accumulate);
  });
}

}  // namespace baton::cuda
