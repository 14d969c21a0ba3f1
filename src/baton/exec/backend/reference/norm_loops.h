#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

template <typename Real>
Moments Loops<Real>::moments(std::size_t operand, std::int64_t row, double epsilon) const {
  const std::int64_t width = in_shape(operand).last();
  double sum = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
    sum += value(operand, i);
  }
  const double mean = sum / static_cast<double>(width);
  double squares = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
    squares += (value(operand, i) - mean) * (value(operand, i) - mean);
  }
  return {mean, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
}

template <typename Real>
void Loops<Real>::operator()(const op::LayerNorm& norm) const {
  const std::int64_t width = in_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const Moments row = moments(0, r, norm.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[r * width + i] = rounded((value(0, r * width + i) - row.mean) * row.factor * value(1, i) + value(2, i));
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::LayerNormBackwardInput& norm) const {
  const std::int64_t width = in_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const Moments row = moments(1, r, norm.epsilon);
    const auto scaled = [&](std::int64_t i) { return value(0, r * width + i) * value(2, i); };
    const auto normal = [&](std::int64_t i) { return (value(1, r * width + i) - row.mean) * row.factor; };
    double sum = 0;
    double along = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      sum += scaled(i);
      along += scaled(i) * normal(i);
    }
    sum /= static_cast<double>(width);
    along /= static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[r * width + i] = rounded((scaled(i) - sum - normal(i) * along) * row.factor + term(norm.adds, r * width + i));
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::LayerNormBackwardWeight& norm) const {
  const std::int64_t width = in_shape(0).last();
  const std::int64_t rows = in_shape(0).rows();
  std::vector<Moments> all;
  for (std::int64_t r = 0; r < rows; ++r) {
    all.push_back(moments(0, r, norm.epsilon));
  }
  for (std::int64_t i = 0; i < width; ++i) {
    double gain = 0;
    double bias = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Moments& row = all[static_cast<std::size_t>(r)];
      gain += value(1, r * width + i) * (value(0, r * width + i) - row.mean) * row.factor;
      bias += value(1, r * width + i);
    }
    out(0)[i] = rounded((norm.accumulate ? widened(out(0)[i]) : 0.0) + gain);
    out(1)[i] = rounded((norm.accumulate ? widened(out(1)[i]) : 0.0) + bias);
  }
}

template <typename Real>
double Loops<Real>::scale_of(std::size_t operand, std::int64_t row, double epsilon) const {
  const std::int64_t width = in_shape(operand).last();
  double squares = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
    squares += value(operand, i) * value(operand, i);
  }
  return 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

template <typename Real>
void Loops<Real>::operator()(const op::RmsNorm& norm) const {
  const std::int64_t width = in_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const double scale = scale_of(0, r, norm.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[r * width + i] = rounded(value(0, r * width + i) * scale * value(1, i));
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::RmsNormBackwardInput& norm) const {
  const std::int64_t width = in_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const double scale = scale_of(1, r, norm.epsilon);
    const auto scaled = [&](std::int64_t i) { return value(0, r * width + i) * value(2, i); };
    const auto normal = [&](std::int64_t i) { return value(1, r * width + i) * scale; };
    double along = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      along += scaled(i) * normal(i);
    }
    along /= static_cast<double>(width);
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[r * width + i] = rounded((scaled(i) - normal(i) * along) * scale + term(norm.adds, r * width + i));
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::RmsNormBackwardWeight& norm) const {
  const std::int64_t width = in_shape(0).last();
  std::vector<double> sums(static_cast<std::size_t>(width), 0);
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const double scale = scale_of(0, r, norm.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      sums[static_cast<std::size_t>(i)] += value(1, r * width + i) * value(0, r * width + i) * scale;
    }
  }
  for (std::int64_t i = 0; i < width; ++i) {
    out(0)[i] = rounded((norm.accumulate ? widened(out(0)[i]) : 0.0) + sums[static_cast<std::size_t>(i)]);
  }
}

}  // namespace baton::exec::reference
