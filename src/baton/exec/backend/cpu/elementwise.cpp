#include "baton/exec/backend/cpu/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "baton/exec/backend/cpu/exponential.h"
#include "baton/exec/backend/cpu/lane_sums.h"
#include "baton/exec/backend/cpu/tiled_weight.h"
#include "baton/exec/backend/cpu/transpose.h"
#include "baton/exec/rounding.h"

namespace baton::exec::cpu {
namespace {

/// The bits of an infinity, which are also those of the exponent.
constexpr std::uint16_t infinity_of(DType type) { return type == DType::f16 ? 0x7c00 : 0x7f80; }

template <typename Word>
bool none_full(Word exponent, const Word* words, std::int64_t count) {
  constexpr std::int64_t strip = 4096;
  for (std::int64_t begin = 0; begin < count; begin += strip) {
    Word found = 0;
    for (std::int64_t i = begin; i < std::min(count, begin + strip); ++i) {
      found = static_cast<Word>(found | ((words[i] & exponent) == exponent ? 1 : 0));
    }
    if (found != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

void relu(const float* __restrict x, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[i] < 0 ? 0 : x[i];
  }
}

void add(const float* a, const float* __restrict b, float* c, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    c[i] = a[i] + b[i];
  }
}

void add_bias(const float* x, const float* __restrict bias, float* y, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      y[r * width + i] = x[r * width + i] + bias[i];
    }
  }
}

void add_bias_backward(const float* __restrict dy, float* __restrict db, std::int64_t rows, std::int64_t width, std::int64_t begin,
                       std::int64_t end, bool accumulate) {
  if (!accumulate) {
    std::fill(db + begin, db + end, 0.0F);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = begin; i < end; ++i) {
      db[i] += dy[r * width + i];
    }
  }
}

namespace {

struct Moments {
  double mean;
  double factor;  // 1 / √(variance + epsilon)
};

Moments moments(const float* x, std::int64_t width, double epsilon) {
  const double mean = lane_sum(width, [&](std::int64_t i) { return static_cast<double>(x[i]); }) / static_cast<double>(width);
  const double squares = lane_sum(width, [&](std::int64_t i) {
    const double distance = static_cast<double>(x[i]) - mean;
    return distance * distance;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
}

}  // namespace

void layer_norm(const float* x, const float* gain, const float* bias, float* y, std::int64_t begin, std::int64_t end,
                std::int64_t width, double epsilon) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* row = x + r * width;
    const Moments of_row = moments(row, width, epsilon);
    const auto mean = static_cast<float>(of_row.mean);
    const auto factor = static_cast<float>(of_row.factor);
    for (std::int64_t i = 0; i < width; ++i) {
      y[r * width + i] = (row[i] - mean) * factor * gain[i] + bias[i];
    }
  }
}

void layer_norm_backward_input(const float* dy, const float* x, const float* gain, float* dx, std::int64_t begin, std::int64_t end,
                               std::int64_t width, double epsilon) {
  for (std::int64_t r = begin; r < end; ++r) {
    const Moments row = moments(x + r * width, width, epsilon);
    const auto scaled = [&](std::int64_t i) { return static_cast<double>(dy[r * width + i]) * static_cast<double>(gain[i]); };
    const auto normal = [&](std::int64_t i) { return (static_cast<double>(x[r * width + i]) - row.mean) * row.factor; };
    const double sum = lane_sum(width, scaled) / static_cast<double>(width);
    const double along = lane_sum(width, [&](std::int64_t i) { return scaled(i) * normal(i); }) / static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      dx[r * width + i] = static_cast<float>((scaled(i) - sum - normal(i) * along) * row.factor);
    }
  }
}

void layer_norm_moments(const float* x, float* of_rows, std::int64_t begin, std::int64_t end, std::int64_t width, double epsilon) {
  for (std::int64_t r = begin; r < end; ++r) {
    const Moments of_row = moments(x + r * width, width, epsilon);
    of_rows[2 * r] = static_cast<float>(of_row.mean);
    of_rows[2 * r + 1] = static_cast<float>(of_row.factor);
  }
}

void layer_norm_backward_weight(const float* x, const float* dy, const float* of_rows, float* dgain, float* dbias,
                                std::int64_t rows, std::int64_t width, std::int64_t begin, std::int64_t end, bool accumulate) {
  if (!accumulate) {
    std::fill(dgain + begin, dgain + end, 0.0F);
    std::fill(dbias + begin, dbias + end, 0.0F);
  }
  for (std::int64_t r = 0; r < rows && begin < end; ++r) {
    const float mean = of_rows[2 * r];
    const float factor = of_rows[2 * r + 1];
    for (std::int64_t i = begin; i < end; ++i) {
      dgain[i] += dy[r * width + i] * (x[r * width + i] - mean) * factor;
      dbias[i] += dy[r * width + i];
    }
  }
}

namespace {

/// 1 / √(mean of squares + epsilon).
double scale_of(const float* x, std::int64_t width, double epsilon) {
  const double squares = lane_sum(width, [&](std::int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
  return 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

}  // namespace

void rms_norm(const float* x, const float* gain, float* y, std::int64_t begin, std::int64_t end, std::int64_t width,
              double epsilon) {
  for (std::int64_t r = begin; r < end; ++r) {
    const auto scale = static_cast<float>(scale_of(x + r * width, width, epsilon));
    for (std::int64_t i = 0; i < width; ++i) {
      y[r * width + i] = x[r * width + i] * scale * gain[i];
    }
  }
}

void rms_norm_backward_input(const float* dy, const float* x, const float* gain, float* dx, std::int64_t begin, std::int64_t end,
                             std::int64_t width, double epsilon) {
  for (std::int64_t r = begin; r < end; ++r) {
    const double scale = scale_of(x + r * width, width, epsilon);
    const double along = lane_sum(width, [&](std::int64_t i) {
      return static_cast<double>(dy[r * width + i]) * static_cast<double>(gain[i]) * static_cast<double>(x[r * width + i]);
    });
    const auto factor = static_cast<float>(scale);
    const auto back = static_cast<float>(along * scale * scale * scale / static_cast<double>(width));
    for (std::int64_t i = 0; i < width; ++i) {
      dx[r * width + i] = dy[r * width + i] * gain[i] * factor - x[r * width + i] * back;
    }
  }
}

void rms_norm_backward_weight(const float* x, const float* dy, float* dgain, std::int64_t rows, std::int64_t width,
                              std::int64_t begin, std::int64_t end, double epsilon, bool accumulate) {
  if (!accumulate) {
    std::fill(dgain + begin, dgain + end, 0.0F);
  }
  for (std::int64_t r = 0; r < rows && begin < end; ++r) {
    const auto scale = static_cast<float>(scale_of(x + r * width, width, epsilon));
    for (std::int64_t i = begin; i < end; ++i) {
      dgain[i] += dy[r * width + i] * x[r * width + i] * scale;
    }
  }
}

void gelu_tanh(const float* __restrict x, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[i] * sigmoid(1.59576912F * (x[i] + 0.044715F * x[i] * x[i] * x[i]));  // (1 + tanh u) / 2 = σ(2u)
  }
}

void gelu_tanh_backward(const float* __restrict dy, const float* __restrict x, float* __restrict dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = sigmoid(1.59576912F * (x[i] + 0.044715F * x[i] * x[i] * x[i]));
    const float slope = share * (1 - share) * 1.59576912F * (1 + 0.134145F * x[i] * x[i]);
    dx[i] = dy[i] * (share + x[i] * slope);
  }
}

void silu_gate(const float* __restrict a, const float* __restrict b, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = a[i] * sigmoid(a[i]) * b[i];
  }
}

void silu_gate_backward(const float* __restrict dy, const float* __restrict a, const float* __restrict b, float* __restrict da,
                        float* __restrict db, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = sigmoid(a[i]);
    da[i] = dy[i] * b[i] * share * (1 + a[i] * (1 - share));
    db[i] = dy[i] * a[i] * share;
  }
}

void add_positions(const float* x, const float* table, float* y, std::int64_t begin, std::int64_t end, std::int64_t samples,
                   std::int64_t width, std::int64_t first) {
  for (std::int64_t t = begin; t < end; ++t) {
    add_bias(x + t * samples * width, table + (first + t) * width, y + t * samples * width, samples, width);
  }
}

void add_positions_backward(const float* dy, float* dtable, std::int64_t begin, std::int64_t end, std::int64_t samples,
                            std::int64_t width, std::int64_t first, std::int64_t held, bool accumulate) {
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t t = p - first;
    const bool has = t >= 0 && t < held;
    add_bias_backward(has ? dy + t * samples * width : dy, dtable + p * width, has ? samples : 0, width, 0, width, accumulate);
  }
}

void image_to_sequence(const SequenceOfImages& extents, const float* x, const float* token, float* y, std::int64_t begin,
                       std::int64_t end) {
  const std::int64_t step = extents.samples * extents.channels;
  const std::int64_t last = std::min(extents.places, extents.first + extents.positions - 1);
  for (std::int64_t sample = begin; sample < end; ++sample) {
    if (extents.first == 0) {
      std::copy_n(token, extents.channels, y + sample * extents.channels);
    }
    for (std::int64_t c = 0; c < extents.channels; ++c) {
      const float* image = x + (sample * extents.channels + c) * extents.places;
      for (std::int64_t place = std::max<std::int64_t>(0, extents.first - 1); place < last; ++place) {
        y[(1 + place - extents.first) * step + sample * extents.channels + c] = image[place];
      }
    }
  }
}

void image_to_sequence_backward_input(const SequenceOfImages& extents, const float* dy, float* dx, std::int64_t begin,
                                      std::int64_t end) {
  const std::int64_t step = extents.samples * extents.channels;
  for (std::int64_t sample = begin; sample < end; ++sample) {
    for (std::int64_t c = 0; c < extents.channels; ++c) {
      float* image = dx + (sample * extents.channels + c) * extents.places;
      for (std::int64_t place = 0; place < extents.places; ++place) {
        const std::int64_t position = 1 + place - extents.first;
        const bool held = position >= 0 && position < extents.positions;
        image[place] = held ? dy[position * step + sample * extents.channels + c] : 0;
      }
    }
  }
}

void transpose(const float* x, float* y, std::int64_t rows, std::int64_t columns, std::int64_t begin, std::int64_t end) {
  for (std::int64_t matrix = begin; matrix < end; ++matrix) {
    copy_transposed(rows, columns, x + matrix * rows * columns, columns, y + matrix * rows * columns, rows);
  }
}

void rotate(const Rotation& rotation, const float* x, float* y, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = rotation.size / 2;
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(rotation.size);
      const double angle = static_cast<double>(rotation.first + t) * std::pow(rotation.base, exponent);
      const auto cosine = static_cast<float>(std::cos(angle));
      const auto sine = static_cast<float>(rotation.back ? -std::sin(angle) : std::sin(angle));
      for (std::int64_t at = t * rotation.heads * rotation.size + i; at < (t + 1) * rotation.heads * rotation.size;
           at += rotation.size) {
        const float one = x[at];
        const float other = x[at + half];
        y[at] = one * cosine - other * sine;
        y[at + half] = other * cosine + one * sine;
      }
    }
  }
}

namespace {

float normal_share(float x) { return 0.5F * (1 + error_function(x * 0.70710678F)); }

}  // namespace

void gelu(const float* __restrict x, float* __restrict y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[i] * normal_share(x[i]);
  }
}

void gelu_backward(const float* __restrict dy, const float* __restrict x, float* __restrict dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float density = without_denormals(exponential(-0.5F * x[i] * x[i]) * 0.39894228F);
    dx[i] = dy[i] * (normal_share(x[i]) + x[i] * density);
  }
}

void relu_backward(const float* __restrict dy, const float* __restrict y, float* __restrict dx, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = y[i] > 0 ? dy[i] : 0;
  }
}

void relu(DType type, const std::uint16_t* __restrict x, std::uint16_t* __restrict y, std::int64_t count) {
  const int least = 0x8000 | infinity_of(type);  // as bits, negative numbers rise towards minus infinity
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = x[i] > 0x8000 && x[i] <= least ? std::uint16_t{0} : x[i];
  }
}

void relu_backward(DType type, const std::uint16_t* __restrict dy, const std::uint16_t* __restrict y, std::uint16_t* __restrict dx,
                   std::int64_t count) {
  const int most = infinity_of(type);
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = y[i] > 0 && y[i] <= most ? dy[i] : std::uint16_t{0};
  }
}

bool all_finite(DType type, const std::byte* values, std::int64_t count) {
  return type == DType::f32 ? none_full(0x7f800000U, reinterpret_cast<const std::uint32_t*>(values), count)
                            : none_full(infinity_of(type), reinterpret_cast<const std::uint16_t*>(values), count);
}

namespace {

/// Several running sums, always the same ones: wide enough for vectors, the same bits on every machine.
double squares(const float* values, std::int64_t count) {
  constexpr std::int64_t lanes = 16;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sums[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
    }
  }
  for (; i < count; ++i) {
    sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return std::accumulate(sums, sums + lanes, 0.0);
}

}  // namespace

double squared_sum(DType type, const std::byte* values, std::int64_t count) {
  if (type == DType::f32) {
    return squares(reinterpret_cast<const float*>(values), count);
  }
  constexpr std::int64_t strip = 1024;
  std::array<float, strip> wide;
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += strip) {
    const std::int64_t own = std::min(strip, count - begin);
    widen(type, values + begin * size_of(type), wide.data(), own);
    sum += squares(wide.data(), own);
  }
  return sum;
}

void dropout(const op::DropoutMask& mask, const op::ElementPlaces& places, float factor, const float* __restrict x,
             float* __restrict y, std::int64_t begin, std::int64_t end) {
  const std::int64_t run = places.run();
  for (std::int64_t i = begin; i < end;) {
    std::int64_t place = places.of(i);
    FourWords words = mask.words(place);
    for (const std::int64_t stop = std::min(end, (i / run + 1) * run); i < stop; ++i, ++place) {
      if (place % 4 == 0) {
        words = mask.words(place);
      }
      y[i] = mask.drops(words, place) ? 0 : x[i] * factor;
    }
  }
}

void mean_squared_error(const float* __restrict y, const float* __restrict target, double* __restrict loss, float* __restrict dy,
                        std::int64_t begin, std::int64_t end, std::int64_t width, double elements, double scale) {
  const auto factor = static_cast<float>(2 / elements * scale);
  for (std::int64_t r = begin; r < end; ++r) {
    // Several running sums, always the same ones: wide enough for vectors, the same bits on every machine.
    constexpr std::int64_t lanes = 16;
    double sums[lanes] = {};
    const std::int64_t row = r * width;
    std::int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const float difference = y[row + i + lane] - target[row + i + lane];
        dy[row + i + lane] = difference * factor;
        sums[lane] += static_cast<double>(difference) * static_cast<double>(difference);
      }
    }
    for (; i < width; ++i) {
      const float difference = y[row + i] - target[row + i];
      dy[row + i] = difference * factor;
      sums[0] += static_cast<double>(difference) * static_cast<double>(difference);
    }
    double sum = 0;
    for (const double part : sums) {
      sum += part;
    }
    loss[r] = sum / elements;
  }
}

namespace {

double sum_of(const float* scores, std::int64_t count) {
  return lane_sum(count, [&](std::int64_t c) { return static_cast<double>(scores[c]); });
}

}  // namespace

void cross_entropy(const float* y, const std::int32_t* labels, double* loss, float* dy, std::int64_t begin, std::int64_t end,
                   std::int64_t classes, double rows, double scale, const ScorePart& part) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* scores = y + r * classes;
    float* gradient = dy + r * classes;
    const std::int64_t label = labels[r] - part.first;
    const bool held = label >= 0 && label < classes;
    const auto terms = [&](std::int64_t p) { return part.terms + 3 * (p * part.all_rows + r); };
    float largest = largest_of(scores, classes, -std::numeric_limits<float>::infinity());
    for (std::int64_t p = 0; p < part.parts; ++p) {
      largest = std::max(largest, static_cast<float>(terms(p)[0]));
    }
    // The gradient may lie where the scores do, so they are read first.
    double score = held ? (1 - part.smoothing) * static_cast<double>(scores[label]) : 0;
    score += part.each > 0 ? part.each * sum_of(scores, classes) : 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      gradient[c] = exponential(scores[c] - largest);
    }
    double sum = sum_of(gradient, classes);
    if (part.parts > 0) {
      sum = 0;
      score = 0;
      for (std::int64_t p = 0; p < part.parts; ++p) {
        sum += terms(p)[1] * std::exp(terms(p)[0] - static_cast<double>(largest));
        score += terms(p)[2];
      }
    }
    loss[r] = (std::log(sum) + static_cast<double>(largest) - score) / rows;
    const auto factor = static_cast<float>(1 / (sum * rows) * scale);
    const auto less = static_cast<float>(part.each / rows * scale);
    for (std::int64_t c = 0; c < classes; ++c) {
      gradient[c] = without_denormals(gradient[c] * factor) - less;
    }
    if (held) {
      gradient[label] -= static_cast<float>((1 - part.smoothing) / rows * scale);
    }
  }
}

void cross_entropy_terms(const float* y, const std::int32_t* labels, double* terms, std::int64_t begin, std::int64_t end,
                         std::int64_t classes, const ScorePart& part) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* scores = y + r * classes;
    const std::int64_t label = labels[r] - part.first;
    const float largest = largest_of(scores, classes, -std::numeric_limits<float>::infinity());
    terms[3 * r] = static_cast<double>(largest);
    terms[3 * r + 1] = lane_sum(classes, [&](std::int64_t c) { return static_cast<double>(exponential(scores[c] - largest)); });
    terms[3 * r + 2] = (label >= 0 && label < classes ? (1 - part.smoothing) * static_cast<double>(scores[label]) : 0) +
                       (part.each > 0 ? part.each * sum_of(scores, classes) : 0);
  }
}

void embed(const std::int32_t* ids, const float* weight, float* y, std::int64_t begin, std::int64_t end, std::int64_t held,
           std::int64_t width, std::int64_t first) {
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t id = ids[r] - first;
    for (std::int64_t i = 0; i < width; ++i) {
      y[r * width + i] = id >= 0 && id < held ? weight[TiledWeight::offset(held, width, id, i)] : 0;
    }
  }
}

void embed_backward(const std::int32_t* ids, const float* dy, float* dw, std::int64_t rows, std::int64_t held, std::int64_t width,
                    std::int64_t begin, std::int64_t end, std::int64_t first, bool accumulate) {
  for (std::int64_t id = 0; id < held && !accumulate; id += TiledWeight::tile) {  // in a tile a column's rows lie side by side
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill_n(dw + TiledWeight::offset(held, width, id, i), std::min(TiledWeight::tile, held - id), 0.0F);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t id = ids[r] - first;
    for (std::int64_t i = begin; i < end && id >= 0 && id < held; ++i) {
      dw[TiledWeight::offset(held, width, id, i)] += dy[r * width + i];
    }
  }
}

void sgd(const op::Sgd& settings, const float* __restrict gradient, float* __restrict weight, float* __restrict velocity,
         std::int64_t count) {
  const auto rate = static_cast<float>(settings.rate);
  const auto momentum = static_cast<float>(settings.momentum);
  const auto decay = static_cast<float>(settings.weight_decay);
  if (velocity == nullptr && decay == 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      weight[i] -= rate * gradient[i];
    }
  } else if (velocity == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      weight[i] -= rate * (gradient[i] + decay * weight[i]);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const float speed = momentum * velocity[i] + (gradient[i] + decay * weight[i]);
      velocity[i] = speed;
      weight[i] -= rate * speed;
    }
  }
}

void adam(const op::Adam& settings, const float* __restrict gradient, float* __restrict weight, float* __restrict first,
          float* __restrict second, std::int64_t count, std::int64_t step) {
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto epsilon = static_cast<float>(settings.epsilon);
  const double bias1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double bias2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  const auto rate = static_cast<float>(settings.rate / bias1);
  const auto root = static_cast<float>(1 / std::sqrt(bias2));
  const auto keep = static_cast<float>(settings.decoupled ? 1 - settings.rate * settings.weight_decay : 1);
  const auto decay = static_cast<float>(settings.decoupled ? 0 : settings.weight_decay);
  for (std::int64_t i = 0; i < count; ++i) {
    const float slope = gradient[i] + decay * weight[i];
    const float m = beta1 * first[i] + (1 - beta1) * slope;
    const float v = beta2 * second[i] + (1 - beta2) * slope * slope;
    first[i] = m;
    second[i] = v;
    weight[i] = keep * weight[i] - rate * m / (std::sqrt(v) * root + epsilon);
  }
}

}  // namespace baton::exec::cpu
