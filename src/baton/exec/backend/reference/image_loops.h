#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

/// The index of an image that tap `k` of the window sees at place `p`; outside of the image it sees padding.
template <typename AnyOp>
std::int64_t seen(const AnyOp& o, std::int64_t p, std::int64_t k) {
  return p * o.stride - o.padding + k;
}

/// The place at which tap `k` sees index `y`, or -1 if there is none.
template <typename AnyOp>
std::int64_t place_of(const AnyOp& o, std::int64_t y, std::int64_t k, std::int64_t places) {
  const std::int64_t from = y + o.padding - k;
  return from >= 0 && from % o.stride == 0 && from / o.stride < places ? from / o.stride : -1;
}

/// Calls `visit(sample, channel, row, column, offset)` for each element of images.
template <typename Visit>
void each_pixel(const Shape& shape, const Visit& visit) {
  std::int64_t offset = 0;
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      for (std::int64_t y = 0; y < shape[2]; ++y) {
        for (std::int64_t x = 0; x < shape[3]; ++x) {
          visit(n, c, y, x, offset++);
        }
      }
    }
  }
}

inline std::int64_t offset_of(const Shape& shape, std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
  return ((n * shape[1] + c) * shape[2] + y) * shape[3] + x;
}

inline bool is_inside(const Shape& shape, std::int64_t y, std::int64_t x) {
  return y >= 0 && y < shape[2] && x >= 0 && x < shape[3];
}

template <typename Real>
void Loops<Real>::operator()(const op::Conv2d& o) const {
  const Shape& images = in_shape(0);
  const Shape& weight = in_shape(1);
  each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
    double sum = 0;
    for (std::int64_t i = 0; i < weight[1]; ++i) {
      for (std::int64_t k = 0; k < weight[2]; ++k) {
        for (std::int64_t l = 0; l < weight[3]; ++l) {
          if (is_inside(images, seen(o, p, k), seen(o, q, l))) {
            sum += value(0, offset_of(images, n, i, seen(o, p, k), seen(o, q, l))) * value(1, offset_of(weight, c, i, k, l));
          }
        }
      }
    }
    out(0)[offset] = rounded(sum + (o.no_bias ? 0.0 : value(2, c)));
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::Conv2dBackwardInput& o) const {
  const Shape& gradients = in_shape(0);
  const Shape& weight = in_shape(1);
  each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t offset) {
    double sum = 0;
    for (std::int64_t c = 0; c < weight[0]; ++c) {
      for (std::int64_t k = 0; k < weight[2]; ++k) {
        for (std::int64_t l = 0; l < weight[3]; ++l) {
          const std::int64_t p = place_of(o, y, k, gradients[2]);
          const std::int64_t q = place_of(o, x, l, gradients[3]);
          if (p >= 0 && q >= 0) {
            sum += value(0, offset_of(gradients, n, c, p, q)) * value(1, offset_of(weight, c, i, k, l));
          }
        }
      }
    }
    out(0)[offset] = rounded(sum);
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::Conv2dBackwardWeight& o) const {
  const Shape& images = in_shape(0);
  const Shape& gradients = in_shape(1);
  const auto finish = [&](Real& result, double sum) { result = rounded((o.accumulate ? widened(result) : 0.0) + sum); };
  const auto sum_over = [&](std::int64_t c, const auto& term) {
    double sum = 0;
    for (std::int64_t n = 0; n < gradients[0]; ++n) {
      for (std::int64_t p = 0; p < gradients[2]; ++p) {
        for (std::int64_t q = 0; q < gradients[3]; ++q) {
          sum += value(1, offset_of(gradients, n, c, p, q)) * term(n, p, q);
        }
      }
    }
    return sum;
  };
  each_pixel(out_shape(0), [&](std::int64_t c, std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t offset) {
    const double sum = sum_over(c, [&](std::int64_t n, std::int64_t p, std::int64_t q) {
      const bool inside = is_inside(images, seen(o, p, k), seen(o, q, l));
      return inside ? value(0, offset_of(images, n, i, seen(o, p, k), seen(o, q, l))) : 0.0;
    });
    finish(out(0)[offset], sum);
  });
  for (std::int64_t c = 0; c < gradients[1] && !o.no_bias; ++c) {
    finish(out(1)[c], sum_over(c, [](std::int64_t, std::int64_t, std::int64_t) { return 1.0; }));
  }
}

/// Calls `visit(channel, begin, end)` for each channel of each group of samples.
template <typename Visit>
void each_group(const Shape& shape, std::int64_t group, const Visit& visit) {
  const std::int64_t size = group == 0 ? shape[0] : group;
  for (std::int64_t first = 0; first < shape[0]; first += size) {
    for (std::int64_t c = 0; c < shape[1]; ++c) {
      visit(c, first, first + size);
    }
  }
}

/// Calls `visit(offset)` for each element of a channel of samples [begin, end).
template <typename Visit>
void each_of_channel(const Shape& shape, std::int64_t c, std::int64_t begin, std::int64_t end, const Visit& visit) {
  const std::int64_t pixels = shape[2] * shape[3];
  for (std::int64_t n = begin; n < end; ++n) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      visit((n * shape[1] + c) * pixels + i);
    }
  }
}

/// The mean of what `term` makes of their offsets.
template <typename Term>
double mean_over(const Shape& shape, std::int64_t c, std::int64_t begin, std::int64_t end, const Term& term) {
  double sum = 0;
  each_of_channel(shape, c, begin, end, [&](std::int64_t i) { sum += term(i); });
  return sum / static_cast<double>((end - begin) * shape[2] * shape[3]);
}

template <typename Real>
Moments Loops<Real>::channel_moments(std::size_t operand, std::int64_t c, std::int64_t begin, std::int64_t end,
                                     double epsilon) const {
  const Shape& shape = in_shape(operand);
  const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(operand, i); });
  const double variance = mean_over(shape, c, begin, end,
                                    [&](std::int64_t i) { return (value(operand, i) - mean) * (value(operand, i) - mean); });
  return {mean, 1 / std::sqrt(variance + epsilon)};
}

template <typename Real>
void Loops<Real>::operator()(const op::BatchNorm& norm) const {
  const Shape& shape = in_shape(0);
  each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    const Moments moments = norm.running ? Moments{any_value(3, c), 1 / std::sqrt(any_value(4, c) + norm.epsilon)}
                                         : channel_moments(0, c, begin, end, norm.epsilon);
    each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
      out(0)[i] = rounded((value(0, i) - moments.mean) * moments.factor * value(1, c) + value(2, c));
    });
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::BatchNormBackwardInput& norm) const {
  const Shape& shape = in_shape(0);
  each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    const Moments moments = channel_moments(1, c, begin, end, norm.epsilon);
    const auto normal = [&](std::int64_t i) { return (value(1, i) - moments.mean) * moments.factor; };
    const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(0, i); });
    const double along = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(0, i) * normal(i); });
    each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
      out(0)[i] = rounded((value(0, i) - mean - normal(i) * along) * moments.factor * value(2, c));
    });
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::BatchNormBackwardWeight& norm) const {
  const Shape& shape = in_shape(0);
  std::vector<double> gain(static_cast<std::size_t>(shape[1]), 0);
  std::vector<double> bias(gain);
  each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    const Moments moments = channel_moments(0, c, begin, end, norm.epsilon);
    each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
      gain[static_cast<std::size_t>(c)] += value(1, i) * (value(0, i) - moments.mean) * moments.factor;
      bias[static_cast<std::size_t>(c)] += value(1, i);
    });
  });
  for (std::size_t c = 0; c < gain.size(); ++c) {
    out(0)[c] = rounded((norm.accumulate ? widened(out(0)[c]) : 0.0) + gain[c]);
    out(1)[c] = rounded((norm.accumulate ? widened(out(1)[c]) : 0.0) + bias[c]);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::TrackMoments& track) const {
  const Shape& shape = in_shape(0);
  each_group(shape, track.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
    const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return any_value(0, i); });
    const auto square = [&](std::int64_t i) { return (any_value(0, i) - mean) * (any_value(0, i) - mean); };
    const auto count = static_cast<double>((end - begin) * shape[2] * shape[3]);
    const double variance = mean_over(shape, c, begin, end, square) * count / std::max(1.0, count - 1);
    out(0)[c] = rounded((1 - track.momentum) * widened(out(0)[c]) + track.momentum * mean);
    out(1)[c] = rounded((1 - track.momentum) * widened(out(1)[c]) + track.momentum * variance);
  });
  *out<std::int32_t>(2) += static_cast<std::int32_t>(track.group == 0 ? 1 : shape[0] / track.group);
}

template <typename Real>
template <typename AnyPool>
std::int64_t Loops<Real>::largest_of(const AnyPool& pool, std::size_t operand, std::int64_t n, std::int64_t c, std::int64_t p,
                                     std::int64_t q) const {
  const Shape& images = in_shape(operand);
  std::int64_t found = -1;
  for (std::int64_t y = seen(pool, p, 0); y < seen(pool, p, pool.window); ++y) {
    for (std::int64_t x = seen(pool, q, 0); x < seen(pool, q, pool.window); ++x) {
      if (!is_inside(images, y, x)) {
        continue;
      }
      const std::int64_t at = offset_of(images, n, c, y, x);
      if (found < 0 || value(operand, at) > value(operand, found) || std::isnan(value(operand, at))) {
        found = at;
      }
    }
  }
  return found;
}

template <typename Real>
void Loops<Real>::operator()(const op::MaxPool& pool) const {
  each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
    out(0)[offset] = rounded(value(0, largest_of(pool, 0, n, c, p, q)));
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::MaxPoolBackward& pool) const {
  std::vector<double> sums(static_cast<std::size_t>(out_shape(0).elements()), 0);
  each_pixel(in_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
    sums[static_cast<std::size_t>(largest_of(pool, 1, n, c, p, q))] += value(0, offset);
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out(0)[i] = rounded(sums[i]);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AveragePool&) const {
  const std::int64_t pixels = in_shape(0).elements() / out_shape(0).elements();
  for (std::int64_t image = 0; image < out_shape(0).elements(); ++image) {
    double sum = 0;
    for (std::int64_t i = image * pixels; i < (image + 1) * pixels; ++i) {
      sum += value(0, i);
    }
    out(0)[image] = rounded(sum / static_cast<double>(pixels));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AveragePoolBackward&) const {
  const std::int64_t pixels = out_shape(0).elements() / in_shape(0).elements();
  for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i / pixels) / static_cast<double>(pixels));
  }
}

}  // namespace baton::exec::reference
