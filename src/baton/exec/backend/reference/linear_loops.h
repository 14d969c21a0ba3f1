#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

template <typename Real>
void Loops<Real>::operator()(const op::Linear& linear) const {
  const auto [rows, width, outputs] = product();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        sum += value(0, r * width + i) * value(1, o * width + i);
      }
      sum += linear.partial || linear.no_bias ? 0.0 : value(2, o);
      out(0)[r * outputs + o] = rounded(linear.relu && sum < 0 ? 0 : sum);
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::LinearBackwardInput& backward) const {
  const op::ProductExtents extents = product();
  const std::int64_t width = extents.in;
  const std::int64_t outputs = extents.out;
  for (std::int64_t r = 0; r < extents.rows; ++r) {
    const auto dy = [&](std::int64_t o) { return value(0, r * outputs + o); };
    const auto weight = [&](std::int64_t o, std::int64_t i) { return value(1, o * width + i); };
    sum_products(outputs, width, dy, weight, [&](std::int64_t i, double sum) {
      const bool blocked = backward.mask && !(value(2, r * width + i) > 0);
      const double slope = backward.gelu ? gelu_slope(value(2, r * width + i), true) : 1;
      out(0)[r * width + i] = rounded(blocked ? 0 : sum * slope + term(backward.adds, r * width + i));
    });
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::LinearBackwardWeight& backward) const {
  const op::ProductExtents extents = product();
  const std::int64_t rows = extents.rows;
  const std::int64_t width = extents.in;
  const std::int64_t outputs = extents.out;
  const bool add = backward.accumulate || backward.sgd_rate > 0;
  const double factor = backward.sgd_rate > 0 ? -backward.sgd_rate : 1;
  const auto finish = [&](Real& result, double sum) { result = rounded((add ? widened(result) : 0.0) + factor * sum); };
  for (std::int64_t o = 0; o < outputs; ++o) {
    const auto dy = [&](std::int64_t r) { return any_value(1, r * outputs + o); };
    const auto x = [&](std::int64_t r, std::int64_t i) { return any_value(0, r * width + i); };
    sum_products(rows, width, dy, x, [&](std::int64_t i, double sum) { finish(out(0)[o * width + i], sum); });
    if (!backward.partial) {
      const auto one = [](std::int64_t, std::int64_t) { return 1.0; };
      sum_products(rows, 1, dy, one, [&](std::int64_t, double sum) { finish(out(1)[o], sum); });
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::MatrixProduct&) const {
  const std::int64_t inner = in_shape(0)[1];
  const std::int64_t columns = in_shape(1)[1];
  for (std::int64_t r = 0; r < in_shape(0)[0]; ++r) {
    const auto left = [&](std::int64_t k) { return value(0, r * inner + k); };
    const auto right = [&](std::int64_t k, std::int64_t c) { return value(1, k * columns + c); };
    sum_products(inner, columns, left, right, [&](std::int64_t c, double sum) { out(0)[r * columns + c] = rounded(sum); });
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AddBias&) const {
  const std::int64_t width = in_shape(1)[0];
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    out(0)[i] = rounded(value(0, i) + value(1, i % width));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AddBiasBackward& backward) const {
  const std::int64_t width = out_shape(0)[0];
  for (std::int64_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      sum += value(0, r * width + i);
    }
    out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Transpose&) const {
  const Shape& shape = in_shape(0);
  const std::int64_t rows = shape[1];
  const std::int64_t columns = shape.elements() / shape[0] / rows;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t row = i / columns % rows;
    out(0)[i / (rows * columns) * rows * columns + i % columns * rows + row] = in(0)[i];
  }
}

}  // namespace baton::exec::reference
