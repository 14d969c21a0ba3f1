#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

template <typename Real>
void Loops<Real>::operator()(const op::MeanSquaredError& loss) const {
  const std::int64_t rows = in_shape(0).rows();
  const std::int64_t width = in_shape(0).last();
  const auto elements = static_cast<double>(loss.elements);
  const double scale = loss_scale(loss.scaled);
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double difference = value(0, i) - value(1, i);
      sum += difference * difference;
      out(1)[i] = rounded(2 * difference / elements * scale);
    }
    out<double>(0)[r] = sum / elements;
  }
}

template <typename Real>
ScoreTerms Loops<Real>::terms_of(std::int64_t row, std::int64_t classes, std::int64_t label, double smoothing, double each) const {
  const auto score = [&](std::int64_t c) { return value(0, row * classes + c); };
  ScoreTerms terms{score(0), 0, label >= 0 && label < classes ? (1 - smoothing) * score(label) : 0};
  for (std::int64_t c = 1; c < classes; ++c) {
    terms.largest = std::max(terms.largest, score(c));
  }
  for (std::int64_t c = 0; c < classes; ++c) {
    terms.sum += std::exp(score(c) - terms.largest);
    terms.label += each > 0 ? each * score(c) : 0;
  }
  return terms;
}

template <typename Real>
void Loops<Real>::operator()(const op::CrossEntropyTerms& terms) const {
  const std::int64_t classes = in_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
    const ScoreTerms row = terms_of(r, classes, in<std::int32_t>(1)[r] - terms.first, terms.smoothing,
                                    terms.smoothing / static_cast<double>(terms.of));
    out<double>(0)[3 * r] = row.largest;
    out<double>(0)[3 * r + 1] = row.sum;
    out<double>(0)[3 * r + 2] = row.label;
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::CrossEntropy& loss) const {
  const std::int64_t rows = in_shape(0).rows();
  const std::int64_t classes = in_shape(0).last();
  const auto total = static_cast<double>(loss.rows);
  const double scale = loss_scale(loss.scaled);
  const double each = loss.smoothing / static_cast<double>(loss.of > 0 ? loss.of : classes);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto score = [&](std::int64_t c) { return value(0, r * classes + c); };
    const std::int64_t label = in<std::int32_t>(1)[r] - loss.first;
    ScoreTerms terms{-std::numeric_limits<double>::infinity(), 0, 0};
    for (std::int64_t p = 0; p < loss.parts; ++p) {
      const double* one = in<double>(2) + 3 * (p * rows + r);
      terms.add({one[0], one[1], one[2]});
    }
    if (loss.parts == 0) {
      terms = terms_of(r, classes, label, loss.smoothing, each);
    }
    const double largest = terms.largest;
    const double sum = terms.sum;
    out<double>(0)[r] = (std::log(sum) + largest - terms.label) / total;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double share = std::exp(score(c) - largest) / sum;
      const double wanted = (c == label ? 1 - loss.smoothing : 0) + each;
      out(1)[r * classes + c] = rounded((share - wanted) / total * scale);
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::CheckFinite&) const {
  int broken = 0;
  for (std::size_t operand = 0; operand < task.reads.size(); ++operand) {
    bool finite = true;
    for (std::int64_t i = 0; i < in_shape(operand).elements(); ++i) {
      finite = finite && std::isfinite(any_value(operand, i));
    }
    broken += finite ? 0 : 1;
  }
  *out<float>(0) = static_cast<float>(broken);
}

template <typename Real>
void Loops<Real>::operator()(const op::AdjustScale& adjust) const {
  *out<op::ScaleState>(0) = op::adjusted(*in<op::ScaleState>(1), *in<float>(0) == 0, adjust.growth_interval);
}

template <typename Real>
void Loops<Real>::operator()(const op::SquaredSum&) const {
  double sum = 0;
  for (std::size_t operand = 0; operand < task.reads.size(); ++operand) {
    for (std::int64_t i = 0; i < in_shape(operand).elements(); ++i) {
      sum += any_value(operand, i) * any_value(operand, i);
    }
  }
  *out<double>(0) = sum;
}

}  // namespace baton::exec::reference
