#include "baton/exec/backend/cpu/images.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace baton::exec::cpu {
namespace {

/// Running sums, always the same ones: wide enough for vectors, the same bits on every machine.
class LaneSums {
 public:
  /// Adds `term(i)` of each of `count` indices.
  template <typename Term>
  void add(std::int64_t count, const Term& term) {
    std::int64_t i = 0;
    for (; i + width <= count; i += width) {
      for (std::int64_t lane = 0; lane < width; ++lane) {
        sums_[static_cast<std::size_t>(lane)] += term(i + lane);
      }
    }
    for (std::int64_t lane = 0; i < count; ++i, ++lane) {
      sums_[static_cast<std::size_t>(lane)] += term(i);
    }
  }
  double total() const {
    double sum = 0;
    for (const double one : sums_) {
      sum += one;
    }
    return sum;
  }

 private:
  static constexpr std::int64_t width = 16;
  std::array<double, width> sums_{};
};

double wide(float value) { return static_cast<double>(value); }

struct ChannelMoments {
  double mean;
  double variance;
  double factor;  // 1 / √(variance + epsilon)
};

/// The sum over a channel of samples [begin, end) of what `term(run)` makes of each run of pixels: run is an offset.
template <typename AddRun>
double sum_over(const ImageShape& shape, std::int64_t channel, Range samples, const AddRun& add_run) {
  LaneSums lanes;
  for (std::int64_t n = samples.begin; n < samples.end; ++n) {
    add_run(lanes, (n * shape.channels + channel) * shape.pixels());
  }
  return lanes.total();
}

ChannelMoments moments_of(const ImageShape& shape, const float* x, std::int64_t channel, Range samples, double epsilon) {
  const auto count = static_cast<double>(samples.size() * shape.pixels());
  const double sum = sum_over(shape, channel, samples, [&](LaneSums& lanes, std::int64_t run) {
    lanes.add(shape.pixels(), [from = x + run](std::int64_t i) { return wide(from[i]); });
  });
  const double mean = sum / count;
  const double squares = sum_over(shape, channel, samples, [&](LaneSums& lanes, std::int64_t run) {
    lanes.add(shape.pixels(), [from = x + run, mean](std::int64_t i) { return (wide(from[i]) - mean) * (wide(from[i]) - mean); });
  });
  return {mean, squares / count, 1 / std::sqrt(squares / count + epsilon)};
}

/// y = (x − mean) · factor + shift, of a channel of some samples.
void normalise(const ImageShape& shape, const float* x, float* y, std::int64_t channel, Range samples, float mean, float factor,
               float shift) {
  for (std::int64_t n = samples.begin; n < samples.end; ++n) {
    const float* __restrict from = x + (n * shape.channels + channel) * shape.pixels();
    float* __restrict to = y + (n * shape.channels + channel) * shape.pixels();
    for (std::int64_t i = 0; i < shape.pixels(); ++i) {
      to[i] = (from[i] - mean) * factor + shift;
    }
  }
}

}  // namespace

void ChannelNorm::forward(const float* x, const float* gain, const float* bias, float* y, Range units) const {
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const std::int64_t channel = unit % shape.channels;
    const std::int64_t first = unit / shape.channels * group;
    const ChannelMoments moments = moments_of(shape, x, channel, {first, first + group}, epsilon);
    normalise(shape, x, y, channel, {first, first + group}, static_cast<float>(moments.mean),
              static_cast<float>(moments.factor * wide(gain[channel])), bias[channel]);
  }
}

void ChannelNorm::forward_by(const float* x, const float* gain, const float* bias, const float* mean, const float* variance,
                             float* y, Range planes) const {
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    const std::int64_t channel = plane % shape.channels;
    const std::int64_t sample = plane / shape.channels;
    const double factor = wide(gain[channel]) / std::sqrt(wide(variance[channel]) + epsilon);
    normalise(shape, x, y, channel, {sample, sample + 1}, mean[channel], static_cast<float>(factor), bias[channel]);
  }
}

void ChannelNorm::track(const float* x, double momentum, float* mean, float* variance, Range channels) const {
  const auto count = static_cast<double>(group * shape.pixels());
  const double unbiased = count / std::max(1.0, count - 1);
  for (std::int64_t channel = channels.begin; channel < channels.end; ++channel) {
    for (std::int64_t first = 0; first < shape.samples; first += group) {
      const ChannelMoments moments = moments_of(shape, x, channel, {first, first + group}, epsilon);
      mean[channel] = static_cast<float>((1 - momentum) * wide(mean[channel]) + momentum * moments.mean);
      variance[channel] = static_cast<float>((1 - momentum) * wide(variance[channel]) + momentum * moments.variance * unbiased);
    }
  }
}

void ChannelNorm::backward_input(const float* dy, const float* x, const float* gain, float* dx, Range units) const {
  const auto count = static_cast<double>(group * shape.pixels());
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const std::int64_t channel = unit % shape.channels;
    const Range samples{unit / shape.channels * group, (unit / shape.channels + 1) * group};
    const ChannelMoments moments = moments_of(shape, x, channel, samples, epsilon);
    const double mean = sum_over(shape, channel, samples,
                                 [&](LaneSums& lanes, std::int64_t run) {
                                   lanes.add(shape.pixels(), [from = dy + run](std::int64_t i) { return wide(from[i]); });
                                 }) /
                        count;
    const double along = sum_over(shape, channel, samples,
                                  [&](LaneSums& lanes, std::int64_t run) {
                                    lanes.add(shape.pixels(), [&, given = dy + run, from = x + run](std::int64_t i) {
                                      return wide(given[i]) * ((wide(from[i]) - moments.mean) * moments.factor);
                                    });
                                  }) /
                         count;
    const double factor = moments.factor * wide(gain[channel]);
    const double slope = along * moments.factor;
    for (std::int64_t n = samples.begin; n < samples.end; ++n) {
      const std::int64_t run = (n * shape.channels + channel) * shape.pixels();
      const float* __restrict given = dy + run;
      const float* __restrict from = x + run;
      float* __restrict to = dx + run;
      for (std::int64_t i = 0; i < shape.pixels(); ++i) {
        to[i] = static_cast<float>((wide(given[i]) - mean - (wide(from[i]) - moments.mean) * slope) * factor);
      }
    }
  }
}

void ChannelNorm::backward_weight(const float* x, const float* dy, float* dgain, float* dbias, Range channels,
                                  bool accumulate) const {
  for (std::int64_t channel = channels.begin; channel < channels.end; ++channel) {
    double gain = 0;
    double bias = 0;
    for (std::int64_t first = 0; first < shape.samples; first += group) {
      const Range samples{first, first + group};
      const ChannelMoments moments = moments_of(shape, x, channel, samples, epsilon);
      gain += sum_over(shape, channel, samples, [&](LaneSums& lanes, std::int64_t run) {
        lanes.add(shape.pixels(), [&, given = dy + run, from = x + run](std::int64_t i) {
          return wide(given[i]) * ((wide(from[i]) - moments.mean) * moments.factor);
        });
      });
      bias += sum_over(shape, channel, samples, [&](LaneSums& lanes, std::int64_t run) {
        lanes.add(shape.pixels(), [from = dy + run](std::int64_t i) { return wide(from[i]); });
      });
    }
    dgain[channel] = (accumulate ? dgain[channel] : 0.0F) + static_cast<float>(gain);
    dbias[channel] = (accumulate ? dbias[channel] : 0.0F) + static_cast<float>(bias);
  }
}

Range Pool::seen(std::int64_t place, std::int64_t extent) const {
  const std::int64_t first = place * stride - padding;
  return {std::max<std::int64_t>(0, first), std::min(extent, first + window)};
}

namespace {

/// All ones if `one` is larger, else zero; a NaN is the largest. Together with `choose` no branch, also where no vectors are used:
/// the time does not depend on the values.
std::uint32_t is_larger(float one, float than) {
  return 0U - (static_cast<std::uint32_t>(one > than) | static_cast<std::uint32_t>(std::isnan(one)));
}

template <typename Value>
Value choose(std::uint32_t mask, Value one, Value other) {
  return std::bit_cast<Value>((std::bit_cast<std::uint32_t>(one) & mask) | (std::bit_cast<std::uint32_t>(other) & ~mask));
}

/// to[j] = the larger of it and from[j · stride], for each of `count`. A stride that the compiler knows lets it use vectors.
template <std::int64_t known_stride>
void take_larger(const float* __restrict from, std::int64_t any_stride, float* __restrict to, std::int64_t count) {
  const std::int64_t stride = known_stride > 0 ? known_stride : any_stride;
  for (std::int64_t j = 0; j < count; ++j) {
    const float one = from[j * stride];
    to[j] = choose(is_larger(one, to[j]), one, to[j]);
  }
}

/// The same, and where it was found: at[j] = first + j · stride.
template <std::int64_t known_stride>
void find_larger(const float* __restrict from, std::int64_t any_stride, std::int32_t first, float* __restrict to,
                 std::int32_t* __restrict at, std::int64_t count) {
  const std::int64_t stride = known_stride > 0 ? known_stride : any_stride;
  for (std::int64_t j = 0; j < count; ++j) {
    const float one = from[j * stride];
    const std::uint32_t larger = is_larger(one, to[j]);
    to[j] = choose(larger, one, to[j]);
    at[j] = choose(larger, first + static_cast<std::int32_t>(j * stride), at[j]);
  }
}

}  // namespace

template <typename Visit>
void Pool::each_column(std::int64_t row, Range wanted, const Visit& visit) const {
  for (std::int64_t l = 0; l < window; ++l) {
    const std::int64_t shift = padding - l;
    const std::int64_t begin = std::max(wanted.begin, std::max<std::int64_t>(0, (shift + stride - 1) / stride));
    const std::int64_t end = std::min(wanted.end, shape.width - 1 + shift < 0 ? 0 : (shape.width - 1 + shift) / stride + 1);
    if (begin < end) {
      visit(row * shape.width + begin * stride - shift, Range{begin, end});
    }
  }
}

void Pool::forward(const float* x, float* y, Range planes) const {
  const auto take = stride == 2 ? take_larger<2> : stride == 1 ? take_larger<1> : take_larger<0>;
  const std::int64_t across = places_across();
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    const float* from = x + plane * shape.pixels();
    for (std::int64_t p = 0; p < places_down(); ++p) {
      float* line = y + (plane * places_down() + p) * across;
      std::fill_n(line, across, -std::numeric_limits<float>::infinity());
      const Range rows = seen(p, shape.height);
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        each_column(row, {0, across},
                    [&](std::int64_t pixel, Range places) { take(from + pixel, stride, line + places.begin, places.size()); });
      }
    }
  }
}

void Pool::backward(const float* dy, const float* x, float* dx, Range planes) const {
  const auto find = stride == 2 ? find_larger<2> : stride == 1 ? find_larger<1> : find_larger<0>;
  const std::int64_t across = places_across();
  constexpr std::int64_t strip = 256;  // places that are looked at together
  std::array<float, strip> largest;
  std::array<std::int32_t, strip> at;
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    const float* from = x + plane * shape.pixels();
    const float* given = dy + plane * places_down() * across;
    float* to = dx + plane * shape.pixels();
    std::fill_n(to, shape.pixels(), 0.0F);
    for (std::int64_t p = 0; p < places_down(); ++p) {
      const Range rows = seen(p, shape.height);
      for (std::int64_t first = 0; first < across; first += strip) {
        const Range wanted{first, std::min(across, first + strip)};
        for (std::int64_t q = wanted.begin; q < wanted.end; ++q) {  // where all are −∞ the first one has it
          at[static_cast<std::size_t>(q - first)] = static_cast<std::int32_t>(rows.begin * shape.width +
                                                                              seen(q, shape.width).begin);
        }
        std::fill_n(largest.begin(), wanted.size(), -std::numeric_limits<float>::infinity());
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
          each_column(row, wanted, [&](std::int64_t pixel, Range places) {
            find(from + pixel, stride, static_cast<std::int32_t>(pixel), largest.data() + (places.begin - first),
                 at.data() + (places.begin - first), places.size());
          });
        }
        for (std::int64_t q = wanted.begin; q < wanted.end; ++q) {
          to[at[static_cast<std::size_t>(q - first)]] += given[p * across + q];
        }
      }
    }
  }
}

void average_pool(const ImageShape& shape, const float* x, float* y, Range planes) {
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    LaneSums lanes;
    lanes.add(shape.pixels(), [from = x + plane * shape.pixels()](std::int64_t i) { return wide(from[i]); });
    y[plane] = static_cast<float>(lanes.total() / static_cast<double>(shape.pixels()));
  }
}

void average_pool_backward(const ImageShape& shape, const float* dy, float* dx, Range planes) {
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    std::fill_n(dx + plane * shape.pixels(), shape.pixels(), dy[plane] / static_cast<float>(shape.pixels()));
  }
}

}  // namespace baton::exec::cpu
