#include "baton/exec/backend/cpu/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "baton/exec/backend/cpu/lane_sums.h"

namespace baton::exec::cpu {
namespace {

double wide(float value) { return static_cast<double>(value); }

struct ChannelMoments {
  double mean;
  double variance;
  double factor;  // 1 / √(variance + epsilon)
};

/// The sum of all that `add_run(lanes, run)` adds up for the runs of pixels of a channel of samples [begin, end). A run is an
/// offset.
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

Range Pool::whole_across() const {
  const std::int64_t begin = std::min(places_across(), (padding + stride - 1) / stride);
  const std::int64_t fitting = shape.width + padding < window ? 0 : (shape.width + padding - window) / stride + 1;
  return {begin, std::clamp(fitting, begin, places_across())};
}

namespace {

/// Takes the larger value and its offset: of two numbers, or of two vectors of numbers without a branch. A NaN is the largest, and
/// of equal values the first is taken.
template <typename Number, typename Offset>
void take_larger(Number& value, Offset& offset, Number one, Offset where) {
  const auto larger = (one > value) | (one != one);  // NOLINT(misc-redundant-expression): a NaN
  value = larger ? one : value;
  offset = larger ? where : offset;
}

/// The largest number in some rows and columns of an image.
struct Largest {
  float value;
  std::int32_t offset;  // in the image

  Largest(const float* image, std::int64_t width, Range rows, Range columns)
      : value(image[rows.begin * width + columns.begin]), offset(static_cast<std::int32_t>(rows.begin * width + columns.begin)) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        const std::int64_t at = row * width + column;
        take_larger(value, offset, image[at], static_cast<std::int32_t>(at));
      }
    }
  }
};

/// The distance between windows, as far as loads depend on it: if it is two, every second number of two loads is taken.
enum class Apart : std::uint8_t { one, two, any };

/// `lanes` windows side by side, one lane per window, of which the image has these rows and all columns.
template <std::size_t lanes, Apart apart>
class WindowBlock {
 public:
  // NOLINTBEGIN(modernize-use-using): GCC leaves out an attribute whose size depends on a parameter in a `using`.
  typedef float Floats __attribute__((vector_size(lanes * sizeof(float))));
  typedef std::int32_t Offsets __attribute__((vector_size(lanes * sizeof(std::int32_t))));
  // NOLINTEND(modernize-use-using)

  WindowBlock(const Pool& pool, const float* from, std::int64_t rows) : pool_(pool), largest_(load(from, 0)), offset_{} {
    for (std::int64_t k = 0; k < rows; ++k) {
      for (std::int64_t l = 0; l < pool.window; ++l) {
        const std::int64_t at = k * pool.shape.width + l;
        take_larger(largest_, offset_, load(from + at, l), Offsets{} + static_cast<std::int32_t>(at));
      }
    }
  }
  void store_largest(float* to) const { std::memcpy(to, &largest_, sizeof largest_); }
  /// Stores the places of the largest numbers, as offsets from the first window's first number. Returns their number.
  std::int64_t store_offsets(std::int32_t* to) const {
    std::memcpy(to, &offset_, sizeof offset_);
    for (std::size_t i = 0; i < lanes; ++i) {
      to[i] += static_cast<std::int32_t>(static_cast<std::int64_t>(i) * pool_.stride);
    }
    return static_cast<std::int64_t>(lanes);
  }
  /// For windows of 2 × 2 that do not overlap: stores each window's gradient at its largest number, and zeros in the rest of it.
  void store_gradients(const float* given, float* to) const {
    const Floats gradients = load(given);
    for (const std::int64_t row : {std::int64_t{0}, pool_.shape.width}) {
      const auto at = [&](std::int64_t offset) { return offset_ == static_cast<std::int32_t>(offset) ? gradients : Floats{}; };
      store_in_turns(at(row), at(row + 1), to + row, std::make_index_sequence<lanes>());
    }
  }

 private:
  static Floats load(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
  }
  /// The number in column `column` of each window. Reads only numbers that a window sees: with each also the one before it, or the
  /// one after it for the first column.
  Floats load(const float* from, std::int64_t column) const {
    if constexpr (apart == Apart::one) {
      return load(from);
    } else if constexpr (apart == Apart::two) {
      return column == 0 ? every_second<0>(from, std::make_index_sequence<lanes>())
                         : every_second<1>(from - 1, std::make_index_sequence<lanes>());
    } else {
      std::array<float, lanes> values;
      for (std::size_t i = 0; i < lanes; ++i) {
        values[i] = from[static_cast<std::int64_t>(i) * pool_.stride];
      }
      return load(values.data());
    }
  }
  template <std::size_t first, std::size_t... i>
  static Floats every_second(const float* from, std::index_sequence<i...> /*lanes*/) {
    return __builtin_shufflevector(load(from), load(from + lanes), (first + 2 * i)...);
  }
  template <std::size_t... i>
  static void store_in_turns(Floats even, Floats odd, float* to, std::index_sequence<i...> /*lanes*/) {
    const Floats low = __builtin_shufflevector(even, odd, (i / 2 + i % 2 * lanes)...);
    const Floats high = __builtin_shufflevector(even, odd, (lanes / 2 + i / 2 + i % 2 * lanes)...);
    std::memcpy(to, &low, sizeof low);
    std::memcpy(to + lanes, &high, sizeof high);
  }

  const Pool& pool_;
  Floats largest_;
  Offsets offset_;
};

/// The fewest windows of a line that vectors are used for.
constexpr std::int64_t fewest_lanes = 4;

/// Calls `work(block, first)` until blocks of windows cover a line of `count`, of which some may come twice: lines are short as a
/// rule, and a last block that overlaps the one before leaves no rest.
template <Apart apart, typename Work>
void each_block(const Pool& pool, const float* from, std::int64_t rows, std::int64_t count, const Work& work) {
  const auto cover = [&]<std::size_t lanes>(std::integral_constant<std::size_t, lanes> /*size*/) {
    constexpr auto size = static_cast<std::int64_t>(lanes);
    for (std::int64_t first = 0; first < count; first = first + size < count ? std::min(first + size, count - size) : count) {
      work(WindowBlock<lanes, apart>(pool, from + first * pool.stride, rows), first);
    }
  };
  if (count >= 16) {
    cover(std::integral_constant<std::size_t, 16>());
  } else if (count >= 8) {
    cover(std::integral_constant<std::size_t, 8>());
  } else {
    cover(std::integral_constant<std::size_t, fewest_lanes>());
  }
}

/// The same with the loads that fit the pool.
template <typename Work>
void in_blocks(const Pool& pool, const float* from, std::int64_t rows, std::int64_t count, const Work& work) {
  if (pool.stride == 1) {
    each_block<Apart::one>(pool, from, rows, count, work);
  } else if (pool.stride == 2 && pool.window > 1) {
    each_block<Apart::two>(pool, from, rows, count, work);
  } else {
    each_block<Apart::any>(pool, from, rows, count, work);
  }
}

}  // namespace

template <typename Inner, typename Edge>
void Pool::each_line(Range planes, const Inner& inner, const Edge& edge) const {
  const Range whole = whole_across();
  const Range within = whole.size() < fewest_lanes ? Range{places_across(), places_across()} : whole;
  for (std::int64_t plane = planes.begin; plane < planes.end; ++plane) {
    for (std::int64_t p = 0; p < places_down(); ++p) {
      const Line line{
          .places = (plane * places_down() + p) * places_across(), .image = plane * shape.pixels(), .rows = seen(p, shape.height)};
      for (std::int64_t q = 0; q < within.begin; ++q) {
        edge(line, q);
      }
      if (within.size() > 0) {
        inner(line, within);
      }
      for (std::int64_t q = within.end; q < places_across(); ++q) {
        edge(line, q);
      }
    }
  }
}

void Pool::forward(const float* x, float* y, Range planes) const {
  each_line(
      planes,
      [&](const Line& line, Range within) {
        float* to = y + line.places + within.begin;
        in_blocks(*this, x + first_seen(line, within.begin), line.rows.size(), within.size(),
                  [&](const auto& block, std::int64_t first) { block.store_largest(to + first); });
      },
      [&](const Line& line, std::int64_t q) {
        y[line.places + q] = Largest(x + line.image, shape.width, line.rows, seen(q, shape.width)).value;
      });
}

void Pool::backward(const float* dy, const float* x, float* dx, Range planes) const {
  const bool is_two = window == 2 && stride == 2;
  const bool writes_all = is_two && padding == 0 && shape.height % 2 == 0 && shape.width % 2 == 0 &&
                          places_across() >= fewest_lanes;
  if (!writes_all) {
    std::fill_n(dx + planes.begin * shape.pixels(), planes.size() * shape.pixels(), 0.0F);
  }
  each_line(
      planes,
      [&](const Line& line, Range within) {
        const float* given = dy + line.places + within.begin;
        const float* from = x + first_seen(line, within.begin);
        float* to = dx + first_seen(line, within.begin);
        if (is_two && line.rows.size() == 2) {
          in_blocks(*this, from, 2, within.size(),
                    [&](const auto& block, std::int64_t first) { block.store_gradients(given + first, to + 2 * first); });
          return;
        }
        std::array<std::int32_t, 16> offsets;
        std::int64_t done = 0;  // a block may begin with windows of the one before
        in_blocks(*this, from, line.rows.size(), within.size(), [&](const auto& block, std::int64_t first) {
          for (const std::int64_t end = first + block.store_offsets(offsets.data()); done < end; ++done) {
            to[first * stride + offsets[static_cast<std::size_t>(done - first)]] += given[done];
          }
        });
      },
      [&](const Line& line, std::int64_t q) {
        const Largest found(x + line.image, shape.width, line.rows, seen(q, shape.width));
        dx[line.image + found.offset] += dy[line.places + q];
      });
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
