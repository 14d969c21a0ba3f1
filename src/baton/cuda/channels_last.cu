#include <algorithm>

#include "baton/cuda/channels_last.h"
#include "baton/cuda/map.cuh"

namespace baton::cuda {
namespace {

constexpr int chunk = channel_multiple;
constexpr int threads = 256;

/// Calls `run` with an element of 16 bits.
template <typename Run>
void with_narrow(DType type, Run run) {
  if (type == DType::bf16) {
    run(__nv_bfloat16{});
  } else if (type == DType::f16) {
    run(__half{});
  } else {
    throw std::runtime_error("no kernel for images of this type with their channels last");
  }
}

unsigned blocks_of(std::int64_t items) { return static_cast<unsigned>((items + threads - 1) / threads); }

// Copies.

constexpr int square = 64;  // channels and pixels of a block's tile

/// `Width` pixels are read at once.
template <typename Element, int Width>
__global__ void __launch_bounds__(threads)
    channels_last_kernel(const Element* x, Element* y, int channels, int padded_to, int pixels) {
  struct alignas(Width * sizeof(Element)) Group {
    Element elements[Width];
  };
  __shared__ Element tile[square][square + 2];
  allow_next();
  await_previous();
  const int first_pixel = static_cast<int>(blockIdx.x) * square;
  const int first_channel = static_cast<int>(blockIdx.y) * square;
  const std::int64_t sample = blockIdx.z;
  for (int i = static_cast<int>(threadIdx.x); i < square * square / Width; i += threads) {
    const int channel = i / (square / Width);
    const int pixel = i % (square / Width) * Width;
    Group group{};
    if (first_channel + channel < channels && first_pixel + pixel < pixels) {
      group = *reinterpret_cast<const Group*>(x + (sample * channels + first_channel + channel) * pixels + first_pixel + pixel);
    }
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      tile[channel][pixel + e] = group.elements[e];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < square * square / chunk; i += threads) {
    const int pixel = i / (square / chunk);
    const int channel = i % (square / chunk) * chunk;
    if (first_pixel + pixel < pixels && first_channel + channel < padded_to) {
      Pack<Element> pack;
#pragma unroll
      for (int e = 0; e < chunk; ++e) {
        pack.elements[e] = tile[channel + e][pixel];
      }
      *reinterpret_cast<Pack<Element>*>(y + (sample * pixels + first_pixel + pixel) * padded_to + first_channel + channel) = pack;
    }
  }
}

/// Rows are output channels and others input channels, or with `turned` the other way round.
template <typename Element>
__global__ void __launch_bounds__(threads) arrange_weights_kernel(const Element* w, Element* to, int in, int window, int others,
                                                                  int padded_others, bool turned, std::int64_t count) {
  allow_next();
  await_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) {
    return;
  }
  const auto other = static_cast<int>(i % padded_others);
  const auto place = static_cast<int>(i / padded_others % window);
  const auto row = static_cast<int>(i / padded_others / window);
  const std::int64_t of_out = turned ? other : row;
  const std::int64_t of_in = turned ? row : other;
  to[i] = other < others ? w[(of_out * in + of_in) * window + place] : rounded<Element>(0.0F);
}

// Norms. A unit is a channel of a group of samples. Each block has a tile of channels and a part of a group's pixels; a thread has
// eight channels of every 32nd pixel. Their sums are added up in order, in double precision.

constexpr int tile_channels = 64;
constexpr int columns = tile_channels / chunk;
constexpr int lanes = threads / columns;

struct Norm {
  int channels;
  int groups;
  std::int64_t rows;  // pixels of a group
  int parts;

  __host__ __device__ int units() const { return groups * channels; }
  __host__ __device__ int tiles() const { return (channels + tile_channels - 1) / tile_channels; }
};

Norm norm_of(const BatchNormShape& shape) {
  constexpr std::int64_t enough_blocks = 132 * 5;
  constexpr std::int64_t least_rows = 4 * lanes;
  Norm norm{static_cast<int>(shape.channels), static_cast<int>(shape.samples / shape.group), shape.group * shape.pixels, 1};
  const std::int64_t blocks = static_cast<std::int64_t>(norm.tiles()) * norm.groups;
  norm.parts = static_cast<int>(
      std::clamp<std::int64_t>(enough_blocks / blocks, 1, std::max<std::int64_t>(1, norm.rows / least_rows)));
  return norm;
}

/// The part of a thread of a block (tile, group, part).
struct At {
  int channel;  // the first of eight
  int group;
  std::int64_t first;  // pixel, of all
  std::int64_t last;
  bool valid;

  __device__ explicit At(const Norm& norm)
      : channel(static_cast<int>(blockIdx.x) * tile_channels + static_cast<int>(threadIdx.x) % columns * chunk),
        group(static_cast<int>(blockIdx.y)),
        first(norm.rows * blockIdx.y + norm.rows * blockIdx.z / gridDim.z + threadIdx.x / columns),
        last(norm.rows * blockIdx.y + norm.rows * (blockIdx.z + 1) / gridDim.z),
        valid(channel < norm.channels) {}
  __device__ int unit(const Norm& norm) const { return group * norm.channels + channel; }
};

/// Adds up the sums of a block's threads for each channel, and writes sums[part][unit].
__device__ void add_up(const Norm& norm, const At& at, const float (&first)[chunk], const float (&second)[chunk], double2* sums) {
  __shared__ float2 shared[lanes][tile_channels];
  const int lane = static_cast<int>(threadIdx.x) / columns;
  const int column = static_cast<int>(threadIdx.x) % columns * chunk;
#pragma unroll
  for (int e = 0; e < chunk; ++e) {
    shared[lane][column + e] = {first[e], second[e]};
  }
  __syncthreads();
  const int channel = static_cast<int>(blockIdx.x) * tile_channels + static_cast<int>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) < tile_channels && channel < norm.channels) {
    double2 total{};
#pragma unroll
    for (int l = 0; l < lanes; ++l) {
      total.x += static_cast<double>(shared[l][threadIdx.x].x);
      total.y += static_cast<double>(shared[l][threadIdx.x].y);
    }
    sums[static_cast<std::int64_t>(blockIdx.z) * norm.units() + at.group * norm.channels + channel] = total;
  }
}

template <typename Element>
__device__ Pack<Element> pack_at(const Element* x, std::int64_t row, const Norm& norm, int channel) {
  return *reinterpret_cast<const Pack<Element>*>(x + row * norm.channels + channel);
}

/// Calls use(row, read(row)) for the rows of a thread. Four rows are read before the first of them is used: what is written might
/// lie where something is read, as far as the compiler knows, so it would wait for each row's reads by themselves.
template <typename Read, typename Use>
__device__ void each_row(const At& at, Read read, Use use) {
  constexpr int ahead = 4;
  for (std::int64_t row = at.first; row < at.last; row += ahead * lanes) {
    decltype(read(row)) packs[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (row + i * lanes < at.last) {
        packs[i] = read(row + i * lanes);
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; ++i) {
      if (row + i * lanes < at.last) {
        use(row + i * lanes, packs[i]);
      }
    }
  }
}

/// Sums of the distances from the group's first pixel, and of their squares.
template <typename Element>
__global__ void __launch_bounds__(threads) moment_sums_kernel(const Element* x, double2* sums, Norm norm) {
  allow_next();
  await_previous();
  const At at(norm);
  float sum[chunk] = {};
  float squares[chunk] = {};
  if (at.valid) {
    const Pack<Element> start = pack_at(x, norm.rows * at.group, norm, at.channel);
    float shift[chunk];
#pragma unroll
    for (int e = 0; e < chunk; ++e) {
      shift[e] = widened(start.elements[e]);
    }
    each_row(
        at, [&](std::int64_t row) { return pack_at(x, row, norm, at.channel); },
        [&](std::int64_t, const Pack<Element>& pack) {
#pragma unroll
          for (int e = 0; e < chunk; ++e) {
            const float distance = widened(pack.elements[e]) - shift[e];
            sum[e] += distance;
            squares[e] += distance * distance;
          }
        });
  }
  add_up(norm, at, sum, squares, sums);
}

constexpr int finish_units = 32;
constexpr int finish_lanes = threads / finish_units;

/// The sum of a unit's parts, for the threads of the first lane; a block has 32 units.
__device__ double2 sum_of_parts(const double2* sums, int unit, const Norm& norm) {
  __shared__ double2 shared[finish_lanes][finish_units];
  const int lane = static_cast<int>(threadIdx.x) / finish_units;
  double2 total{};
  if (unit < norm.units()) {
#pragma unroll 8
    for (int part = lane; part < norm.parts; part += finish_lanes) {
      const double2 one = sums[static_cast<std::int64_t>(part) * norm.units() + unit];
      total.x += one.x;
      total.y += one.y;
    }
  }
  shared[lane][threadIdx.x % finish_units] = total;
  __syncthreads();
  total = {};
#pragma unroll
  for (int l = 0; l < finish_lanes; ++l) {
    total.x += shared[l][threadIdx.x % finish_units].x;
    total.y += shared[l][threadIdx.x % finish_units].y;
  }
  return total;
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    moments_kernel(const Element* x, const double2* sums, NormMoments* moments, Norm norm, float epsilon) {
  allow_next();
  await_previous();
  const int unit = static_cast<int>(blockIdx.x) * finish_units + static_cast<int>(threadIdx.x) % finish_units;
  const double2 total = sum_of_parts(sums, unit, norm);
  if (static_cast<int>(threadIdx.x) >= finish_units || unit >= norm.units()) {
    return;
  }
  const int group = unit / norm.channels;
  const auto shift = static_cast<double>(widened(x[norm.rows * group * norm.channels + unit % norm.channels]));
  const auto elements = static_cast<double>(norm.rows);
  const double mean = total.x / elements;
  const double variance = fmax(0.0, total.y / elements - mean * mean);
  moments[unit].mean = static_cast<float>(shift + mean);
  moments[unit].factor = static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)));
  moments[unit].variance = static_cast<float>(variance);
}

__global__ void __launch_bounds__(threads)
    set_moments_kernel(const float* mean, const float* variance, NormMoments* moments, int channels, float epsilon) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel < channels) {
    moments[channel].mean = mean[channel];
    moments[channel].factor = static_cast<float>(1 / sqrt(static_cast<double>(variance[channel]) + static_cast<double>(epsilon)));
    moments[channel].variance = variance[channel];
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads)
    set_scales_kernel(const Element* gain, const Element* bias, NormMoments* moments, Norm norm) {
  allow_next();
  await_previous();
  const int unit = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (unit < norm.units()) {
    const int channel = unit % norm.channels;
    moments[unit].scale = moments[unit].factor * widened(gain[channel]);
    moments[unit].bias = bias == nullptr ? 0.0F : widened(bias[channel]);
  }
}

/// One thread per channel.
__global__ void __launch_bounds__(threads)
    track_kernel(const NormMoments* moments, float* mean, float* variance, std::int32_t* tracked, Norm norm, float momentum) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel == 0) {
    *tracked += norm.groups;
  }
  if (channel >= norm.channels) {
    return;
  }
  const auto elements = static_cast<double>(norm.rows);
  const double share = momentum;
  for (int group = 0; group < norm.groups; ++group) {
    const NormMoments& own = moments[group * norm.channels + channel];
    const double unbiased = static_cast<double>(own.variance) * elements / fmax(1.0, elements - 1);
    mean[channel] = static_cast<float>((1 - share) * static_cast<double>(mean[channel]) + share * static_cast<double>(own.mean));
    variance[channel] = static_cast<float>((1 - share) * static_cast<double>(variance[channel]) + share * unbiased);
  }
}

/// The eight channels of a thread.
struct Eight {
  float mean[chunk];
  float factor[chunk];
  float scale[chunk];
  float bias[chunk];

  __device__ Eight(const NormMoments* moments, int unit) {
#pragma unroll
    for (int e = 0; e < chunk; ++e) {
      const NormMoments own = moments[unit + e];
      mean[e] = own.mean;
      factor[e] = own.factor;
      scale[e] = own.scale;
      bias[e] = own.bias;
    }
  }
  __device__ float of(float x, int e) const { return (x - mean[e]) * scale[e] + bias[e]; }
};

template <typename Element, bool Added, bool Relu>
__global__ void __launch_bounds__(threads)
    apply_norm_kernel(const Element* x, const NormMoments* moments, const Element* added, Element* y, Norm norm) {
  allow_next();
  await_previous();
  const At at(norm);
  if (!at.valid) {
    return;
  }
  const Eight own(moments, at.unit(norm));
  struct Packs {
    Pack<Element> value;
    Pack<Element> other;
  };
  each_row(
      at,
      [&](std::int64_t row) {
        Packs packs;
        packs.value = pack_at(x, row, norm, at.channel);
        if constexpr (Added) {
          packs.other = pack_at(added, row, norm, at.channel);
        }
        return packs;
      },
      [&](std::int64_t row, const Packs& packs) {
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          Element value = rounded<Element>(own.of(widened(packs.value.elements[e]), e));
          if constexpr (Added) {
            value = rounded<Element>(widened(value) + widened(packs.other.elements[e]));
          }
          if constexpr (Relu) {
            value = widened(value) > 0.0F || isnan(widened(value)) ? value : rounded<Element>(0.0F);
          }
          result.elements[e] = value;
        }
        *reinterpret_cast<Pack<Element>*>(y + row * norm.channels + at.channel) = result;
      });
}

enum class Mask { none, of_output, again };

template <typename Element, Mask Masked>
__global__ void __launch_bounds__(threads, 2) slope_sums_kernel(const Element* dy, const Element* x, const NormMoments* moments,
                                                                const Element* output, Element* to, double2* sums, Norm norm) {
  allow_next();
  await_previous();
  const At at(norm);
  float sum[chunk] = {};
  float along[chunk] = {};
  if (at.valid) {
    const Eight own(moments, at.unit(norm));
    struct Packs {
      Pack<Element> slopes;
      Pack<Element> values;
      Pack<Element> outputs;
    };
    each_row(
        at,
        [&](std::int64_t row) {
          Packs packs;
          packs.slopes = pack_at(dy, row, norm, at.channel);
          packs.values = pack_at(x, row, norm, at.channel);
          if constexpr (Masked == Mask::of_output) {
            packs.outputs = pack_at(output, row, norm, at.channel);
          }
          return packs;
        },
        [&](std::int64_t row, Packs& packs) {
#pragma unroll
          for (int e = 0; e < chunk; ++e) {
            const float value = widened(packs.values.elements[e]);
            if constexpr (Masked != Mask::none) {
              const float after = Masked == Mask::again ? widened(rounded<Element>(own.of(value, e)))
                                                        : widened(packs.outputs.elements[e]);
              packs.slopes.elements[e] = after > 0.0F ? packs.slopes.elements[e] : rounded<Element>(0.0F);
            }
            const float slope = widened(packs.slopes.elements[e]);
            sum[e] += slope;
            along[e] += slope * ((value - own.mean[e]) * own.factor[e]);
          }
          if constexpr (Masked != Mask::none) {
            *reinterpret_cast<Pack<Element>*>(to + row * norm.channels + at.channel) = packs.slopes;
          }
        });
  }
  add_up(norm, at, sum, along, sums);
}

__global__ void __launch_bounds__(threads) slopes_kernel(const double2* sums, NormSlopes* slopes, Norm norm) {
  allow_next();
  await_previous();
  const int unit = static_cast<int>(blockIdx.x) * finish_units + static_cast<int>(threadIdx.x) % finish_units;
  const double2 total = sum_of_parts(sums, unit, norm);
  if (static_cast<int>(threadIdx.x) < finish_units && unit < norm.units()) {
    slopes[unit] = {total.x, total.y};
  }
}

template <typename Element>
__global__ void __launch_bounds__(threads) norm_backward_kernel(const Element* dy, const Element* x, const NormMoments* moments,
                                                                const NormSlopes* slopes, Element* dx, Norm norm) {
  allow_next();
  await_previous();
  const At at(norm);
  if (!at.valid) {
    return;
  }
  const Eight own(moments, at.unit(norm));
  float mean_sum[chunk];
  float mean_along[chunk];
#pragma unroll
  for (int e = 0; e < chunk; ++e) {
    const NormSlopes all = slopes[at.unit(norm) + e];
    mean_sum[e] = static_cast<float>(all.sum / static_cast<double>(norm.rows));
    mean_along[e] = static_cast<float>(all.along / static_cast<double>(norm.rows));
  }
  struct Packs {
    Pack<Element> slopes;
    Pack<Element> values;
  };
  each_row(
      at,
      [&](std::int64_t row) {
        return Packs{pack_at(dy, row, norm, at.channel), pack_at(x, row, norm, at.channel)};
      },
      [&](std::int64_t row, const Packs& packs) {
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          const float normal = (widened(packs.values.elements[e]) - own.mean[e]) * own.factor[e];
          result.elements[e] = rounded<Element>((widened(packs.slopes.elements[e]) - mean_sum[e] - normal * mean_along[e]) *
                                                own.scale[e]);
        }
        *reinterpret_cast<Pack<Element>*>(dx + row * norm.channels + at.channel) = result;
      });
}

/// One thread per channel.
template <typename Gradient>
__global__ void __launch_bounds__(threads)
    norm_weight_kernel(const NormSlopes* slopes, Gradient* dgain, Gradient* dbias, Norm norm, bool accumulate) {
  allow_next();
  await_previous();
  const int channel = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (channel >= norm.channels) {
    return;
  }
  NormSlopes total{};
  for (int group = 0; group < norm.groups; ++group) {
    total.sum += slopes[group * norm.channels + channel].sum;
    total.along += slopes[group * norm.channels + channel].along;
  }
  dgain[channel] = rounded<Gradient>((accumulate ? widened(dgain[channel]) : 0.0F) + static_cast<float>(total.along));
  dbias[channel] = rounded<Gradient>((accumulate ? widened(dbias[channel]) : 0.0F) + static_cast<float>(total.sum));
}

LaunchShape over_parts(const Norm& norm, int parts) {
  return {dim3(static_cast<unsigned>(norm.tiles()), static_cast<unsigned>(norm.groups), static_cast<unsigned>(parts)),
          dim3(threads)};
}
/// For kernels that sum nothing: more blocks.
LaunchShape over_rows(const Norm& norm) {
  constexpr std::int64_t enough_blocks = 132 * 16;
  constexpr std::int64_t least_rows = 4 * lanes;
  const std::int64_t blocks = static_cast<std::int64_t>(norm.tiles()) * norm.groups;
  return over_parts(norm, static_cast<int>(std::clamp<std::int64_t>(enough_blocks / blocks, 1,
                                                                    std::max<std::int64_t>(1, norm.rows / least_rows))));
}
LaunchShape over_units(const Norm& norm) {
  return {dim3(static_cast<unsigned>((norm.units() + finish_units - 1) / finish_units)), dim3(threads)};
}

// Pools.

struct Window {
  int height, width, window, stride, padding, out_height, out_width;
  int packs;  // packs per pixel
};

Window window_of(const PoolShape& shape, std::int64_t channels) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {number(shape.height),  number(shape.width),        number(shape.window),      number(shape.stride),
          number(shape.padding), number(shape.out_height()), number(shape.out_width()), number(channels / chunk)};
}

/// For each of eight channels, the first of the largest elements of a window: its place in the image, and its value. A NaN is
/// larger than all, and the last of them counts.
template <typename Element>
struct Largest {
  int place[chunk];
  Element value[chunk];

  __device__ Largest(const Pack<Element>* image, const Window& w, int out_y, int out_x) {
    const int first_y = out_y * w.stride - w.padding;
    const int first_x = out_x * w.stride - w.padding;
    bool none = true;
    for (int y = max(first_y, 0); y < min(first_y + w.window, w.height); ++y) {
      for (int x = max(first_x, 0); x < min(first_x + w.window, w.width); ++x) {
        const Pack<Element> pack = image[static_cast<std::int64_t>(y * w.width + x) * w.packs];
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          const float next = widened(pack.elements[e]);
          if (none || next > widened(value[e]) || isnan(next)) {
            place[e] = y * w.width + x;
            value[e] = pack.elements[e];
          }
        }
        none = false;
      }
    }
  }
};

/// One thread per pack of y.
template <typename Element>
__global__ void __launch_bounds__(threads) max_pool_kernel(const Pack<Element>* x, Pack<Element>* y, std::int64_t count, Window w) {
  allow_next();
  await_previous();
  over<1>(
      count,
      [&](std::int64_t i) {
        const auto pack = static_cast<int>(i % w.packs);
        const auto pixel = static_cast<int>(i / w.packs % (w.out_height * w.out_width));
        const std::int64_t sample = i / w.packs / (w.out_height * w.out_width);
        const Largest<Element> largest(x + sample * w.height * w.width * w.packs + pack, w, pixel / w.out_width,
                                       pixel % w.out_width);
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          result.elements[e] = largest.value[e];
        }
        y[i] = result;
      },
      [](std::int64_t) {});
}

/// For each of eight channels, the place in its window of the first of the largest elements: a byte each.
struct alignas(chunk) Places {
  unsigned char in_window[chunk];
};

/// One thread per pack of dy.
template <typename Element>
__global__ void __launch_bounds__(threads)
    largest_places_kernel(const Pack<Element>* x, Places* places, std::int64_t count, Window w) {
  allow_next();
  await_previous();
  over<1>(
      count,
      [&](std::int64_t i) {
        const auto pack = static_cast<int>(i % w.packs);
        const auto pixel = static_cast<int>(i / w.packs % (w.out_height * w.out_width));
        const std::int64_t sample = i / w.packs / (w.out_height * w.out_width);
        const int out_y = pixel / w.out_width;
        const int out_x = pixel % w.out_width;
        const Largest<Element> largest(x + sample * w.height * w.width * w.packs + pack, w, out_y, out_x);
        Places found;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          const int y = largest.place[e] / w.width;
          const int row = y - (out_y * w.stride - w.padding);
          const int column = largest.place[e] - y * w.width - (out_x * w.stride - w.padding);
          found.in_window[e] = static_cast<unsigned char>(row * w.window + column);
        }
        places[i] = found;
      },
      [](std::int64_t) {});
}

/// One thread per pack of dx, which adds from all windows that hold it, in their order.
template <typename Element>
__global__ void __launch_bounds__(threads)
    max_pool_backward_kernel(const Pack<Element>* dy, const Places* places, Pack<Element>* dx, std::int64_t count, Window w) {
  allow_next();
  await_previous();
  over<1>(
      count,
      [&](std::int64_t i) {
        const auto pack = static_cast<int>(i % w.packs);
        const auto pixel = static_cast<int>(i / w.packs % (w.height * w.width));
        const std::int64_t sample = i / w.packs / (w.height * w.width);
        const std::int64_t first = sample * w.out_height * w.out_width * w.packs + pack;
        const int y = pixel / w.width + w.padding;
        const int x_at = pixel % w.width + w.padding;
        const int first_y = y < w.window ? 0 : (y - w.window) / w.stride + 1;
        const int first_x = x_at < w.window ? 0 : (x_at - w.window) / w.stride + 1;
        float sum[chunk] = {};
        for (int out_y = first_y; out_y <= min(y / w.stride, w.out_height - 1); ++out_y) {
          for (int out_x = first_x; out_x <= min(x_at / w.stride, w.out_width - 1); ++out_x) {
            const std::int64_t window = first + static_cast<std::int64_t>(out_y * w.out_width + out_x) * w.packs;
            const int here = (y - out_y * w.stride) * w.window + x_at - out_x * w.stride;
            const Pack<Element> slope = dy[window];
            const Places largest = places[window];
#pragma unroll
            for (int e = 0; e < chunk; ++e) {
              sum[e] += largest.in_window[e] == here ? widened(slope.elements[e]) : 0.0F;
            }
          }
        }
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          result.elements[e] = rounded<Element>(sum[e]);
        }
        dx[i] = result;
      },
      [](std::int64_t) {});
}

/// One thread per pack of y.
template <typename Element>
__global__ void __launch_bounds__(threads)
    average_pool_kernel(const Pack<Element>* x, Pack<Element>* y, std::int64_t count, int packs, std::int64_t pixels) {
  allow_next();
  await_previous();
  over<1>(
      count,
      [&](std::int64_t i) {
        float sum[chunk] = {};
        for (std::int64_t p = 0; p < pixels; ++p) {
          const Pack<Element> pack = x[(i / packs * pixels + p) * packs + i % packs];
#pragma unroll
          for (int e = 0; e < chunk; ++e) {
            sum[e] += widened(pack.elements[e]);
          }
        }
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          result.elements[e] = rounded<Element>(sum[e] / static_cast<float>(pixels));
        }
        y[i] = result;
      },
      [](std::int64_t) {});
}

/// One thread per pack of dx.
template <typename Element>
__global__ void __launch_bounds__(threads)
    average_pool_backward_kernel(const Pack<Element>* dy, Pack<Element>* dx, std::int64_t count, int packs, std::int64_t pixels) {
  allow_next();
  await_previous();
  over<1>(
      count,
      [&](std::int64_t i) {
        const Pack<Element> slope = dy[i / packs / pixels * packs + i % packs];
        Pack<Element> result;
#pragma unroll
        for (int e = 0; e < chunk; ++e) {
          result.elements[e] = rounded<Element>(widened(slope.elements[e]) / static_cast<float>(pixels));
        }
        dx[i] = result;
      },
      [](std::int64_t) {});
}

}  // namespace

void to_channels_last(DType type, const void* x, void* y, std::int64_t samples, std::int64_t channels, std::int64_t pixels,
                      cudaStream_t stream) {
  const LaunchShape shape{dim3(static_cast<unsigned>((pixels + square - 1) / square),
                               static_cast<unsigned>((channels + square - 1) / square), static_cast<unsigned>(samples)),
                          dim3(threads)};
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    const auto with = [&](auto width) {
      launch(channels_last_kernel<Element, decltype(width)::value>, shape, stream, static_cast<const Element*>(x),
             static_cast<Element*>(y), static_cast<int>(channels), static_cast<int>(padded_channels(channels)),
             static_cast<int>(pixels));
    };
    if (pixels % 8 == 0) {
      with(std::integral_constant<int, 8>());
    } else if (pixels % 4 == 0) {
      with(std::integral_constant<int, 4>());
    } else {
      with(std::integral_constant<int, 1>());
    }
  });
}

void weights_channels_last(DType type, const void* w, void* to, std::int64_t out, std::int64_t in, std::int64_t window, bool turned,
                           cudaStream_t stream) {
  const std::int64_t others = turned ? out : in;
  const std::int64_t count = (turned ? in : out) * window * padded_channels(others);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    launch(arrange_weights_kernel<Element>, {dim3(blocks_of(count)), dim3(threads)}, stream, static_cast<const Element*>(w),
           static_cast<Element*>(to), static_cast<int>(in), static_cast<int>(window), static_cast<int>(others),
           static_cast<int>(padded_channels(others)), turned, count);
  });
}

std::int64_t norm_units(const BatchNormShape& shape) { return norm_of(shape).units(); }

std::int64_t norm_workspace(const BatchNormShape& shape) {
  const Norm norm = norm_of(shape);
  return static_cast<std::int64_t>(norm.units()) * norm.parts * static_cast<std::int64_t>(sizeof(double2));
}

void take_moments(DType type, const BatchNormShape& shape, const void* x, NormMoments* moments, void* workspace,
                  cudaStream_t stream) {
  const Norm norm = norm_of(shape);
  auto* sums = static_cast<double2*>(workspace);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    const auto* images = static_cast<const Element*>(x);
    launch(moment_sums_kernel<Element>, over_parts(norm, norm.parts), stream, images, sums, norm);
    launch(moments_kernel<Element>, over_units(norm), stream, images, static_cast<const double2*>(sums), moments, norm,
           shape.epsilon);
  });
}

void set_moments(const BatchNormShape& shape, const float* mean, const float* variance, NormMoments* moments, cudaStream_t stream) {
  launch(set_moments_kernel, {dim3(blocks_of(shape.channels)), dim3(threads)}, stream, mean, variance, moments,
         static_cast<int>(shape.channels), shape.epsilon);
}

void set_scales(DType type, const BatchNormShape& shape, const void* gain, const void* bias, NormMoments* moments,
                cudaStream_t stream) {
  const Norm norm = norm_of(shape);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    launch(set_scales_kernel<Element>, {dim3(blocks_of(norm.units())), dim3(threads)}, stream, static_cast<const Element*>(gain),
           static_cast<const Element*>(bias), moments, norm);
  });
}

void apply_norm(DType type, const BatchNormShape& shape, const void* x, const NormMoments* moments, const void* added, bool relu,
                void* y, cudaStream_t stream) {
  const Norm norm = norm_of(shape);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    const auto with = [&](auto* kernel) {
      launch(kernel, over_rows(norm), stream, static_cast<const Element*>(x), moments, static_cast<const Element*>(added),
             static_cast<Element*>(y), norm);
    };
    if (added != nullptr) {
      relu ? with(apply_norm_kernel<Element, true, true>) : with(apply_norm_kernel<Element, true, false>);
    } else {
      relu ? with(apply_norm_kernel<Element, false, true>) : with(apply_norm_kernel<Element, false, false>);
    }
  });
}

void track_taken_moments(const BatchNormShape& shape, const NormMoments* moments, float momentum, float* mean, float* variance,
                         std::int32_t* groups, cudaStream_t stream) {
  launch(track_kernel, {dim3(blocks_of(shape.channels)), dim3(threads)}, stream, moments, mean, variance, groups, norm_of(shape),
         momentum);
}

void take_slopes(DType type, const BatchNormShape& shape, const void* dy, const void* x, const NormMoments* moments,
                 const ReluBefore* relu, NormSlopes* slopes, void* workspace, cudaStream_t stream) {
  const Norm norm = norm_of(shape);
  auto* sums = static_cast<double2*>(workspace);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    const auto with = [&](auto* kernel) {
      launch(kernel, over_parts(norm, norm.parts), stream, static_cast<const Element*>(dy), static_cast<const Element*>(x), moments,
             static_cast<const Element*>(relu == nullptr ? nullptr : relu->output),
             static_cast<Element*>(relu == nullptr ? nullptr : relu->to), sums, norm);
    };
    if (relu == nullptr) {
      with(slope_sums_kernel<Element, Mask::none>);
    } else if (relu->output != nullptr) {
      with(slope_sums_kernel<Element, Mask::of_output>);
    } else {
      with(slope_sums_kernel<Element, Mask::again>);
    }
  });
  launch(slopes_kernel, over_units(norm), stream, static_cast<const double2*>(sums), slopes, norm);
}

void norm_backward_input(DType type, const BatchNormShape& shape, const void* dy, const void* x, const NormMoments* moments,
                         const NormSlopes* slopes, void* dx, cudaStream_t stream) {
  const Norm norm = norm_of(shape);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    launch(norm_backward_kernel<Element>, over_rows(norm), stream, static_cast<const Element*>(dy), static_cast<const Element*>(x),
           moments, slopes, static_cast<Element*>(dx), norm);
  });
}

void norm_backward_weight(const BatchNormShape& shape, const NormSlopes* slopes, DType gradient, void* dgain, void* dbias,
                          bool accumulate, cudaStream_t stream) {
  with_element(gradient, [&](auto element) {
    using Gradient = decltype(element);
    launch(norm_weight_kernel<Gradient>, {dim3(blocks_of(shape.channels)), dim3(threads)}, stream, slopes,
           static_cast<Gradient*>(dgain), static_cast<Gradient*>(dbias), norm_of(shape), accumulate);
  });
}

void max_pool_last(DType type, const PoolShape& shape, std::int64_t channels, const void* x, void* y, cudaStream_t stream) {
  const std::int64_t count = shape.images * shape.out_height() * shape.out_width() * channels / chunk;
  with_narrow(type, [&](auto element) {
    using P = Pack<decltype(element)>;
    launch(max_pool_kernel<decltype(element)>, {dim3(blocks_of(count)), dim3(threads)}, stream, static_cast<const P*>(x),
           static_cast<P*>(y), count, window_of(shape, channels));
  });
}

std::int64_t max_pool_last_workspace(const PoolShape& shape, std::int64_t channels) {
  return shape.images * shape.out_height() * shape.out_width() * channels;
}

void max_pool_last_backward(DType type, const PoolShape& shape, std::int64_t channels, const void* dy, const void* x, void* dx,
                            void* workspace, cudaStream_t stream) {
  const std::int64_t windows = shape.images * shape.out_height() * shape.out_width() * channels / chunk;
  const std::int64_t count = shape.images * shape.height * shape.width * channels / chunk;
  auto* places = static_cast<Places*>(workspace);
  with_narrow(type, [&](auto element) {
    using Element = decltype(element);
    using P = Pack<Element>;
    launch(largest_places_kernel<Element>, {dim3(blocks_of(windows)), dim3(threads)}, stream, static_cast<const P*>(x), places,
           windows, window_of(shape, channels));
    launch(max_pool_backward_kernel<Element>, {dim3(blocks_of(count)), dim3(threads)}, stream, static_cast<const P*>(dy),
           static_cast<const Places*>(places), static_cast<P*>(dx), count, window_of(shape, channels));
  });
}

void average_pool_last(DType type, const void* x, void* y, std::int64_t samples, std::int64_t channels, std::int64_t pixels,
                       cudaStream_t stream) {
  const std::int64_t count = samples * channels / chunk;
  with_narrow(type, [&](auto element) {
    using P = Pack<decltype(element)>;
    launch(average_pool_kernel<decltype(element)>, {dim3(blocks_of(count)), dim3(threads)}, stream, static_cast<const P*>(x),
           static_cast<P*>(y), count, static_cast<int>(channels / chunk), pixels);
  });
}

void average_pool_last_backward(DType type, const void* dy, void* dx, std::int64_t samples, std::int64_t channels,
                                std::int64_t pixels, cudaStream_t stream) {
  const std::int64_t count = samples * pixels * channels / chunk;
  with_narrow(type, [&](auto element) {
    using P = Pack<decltype(element)>;
    launch(average_pool_backward_kernel<decltype(element)>, {dim3(blocks_of(count)), dim3(threads)}, stream,
           static_cast<const P*>(dy), static_cast<P*>(dx), count, static_cast<int>(channels / chunk), pixels);
  });
}

}  // namespace baton::cuda
