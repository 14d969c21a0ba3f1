#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

/// Calls `visit(head)` for all heads of all samples.
template <typename Visit>
void each_head(const Shape& q, const Shape& k, const Visit& visit) {
  const std::int64_t groups = q[1] * q[2];
  const std::int64_t size = k.last();
  const std::int64_t heads = q.last() / size;  // heads per group
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t r = 0; r < heads; ++r) {
      visit(Head{(g * heads + r) * size, groups * heads * size, g * size, groups * size, g * heads + r, groups * heads});
    }
  }
}

template <typename Real>
double Loops<Real>::scores_of(std::size_t q, std::size_t k, const Head& head, std::int64_t t, std::int64_t seen,
                              std::vector<double>& scores) const {
  const std::int64_t size = in_shape(k).last();
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t s = 0; s < seen; ++s) {
    double sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      sum += value(q, head.q + t * head.q_step + i) * value(k, head.k + s * head.k_step + i);
    }
    scores[static_cast<std::size_t>(s)] = sum / std::sqrt(static_cast<double>(size));
    largest = std::max(largest, scores[static_cast<std::size_t>(s)]);
  }
  double sum = 0;
  for (std::int64_t s = 0; s < seen; ++s) {
    sum += std::exp(scores[static_cast<std::size_t>(s)] - largest);
  }
  return largest + std::log(sum);
}

template <typename Real>
void Loops<Real>::operator()(const op::Attention& attention) const {
  const std::int64_t positions = in_shape(0)[0];
  const std::int64_t size = in_shape(1).last();
  std::vector<double> scores(static_cast<std::size_t>(positions));
  each_head(in_shape(0), in_shape(1), [&](const Head& head) {
    for (std::int64_t t = 0; t < positions; ++t) {
      const std::int64_t seen = attention.causal ? t + 1 : positions;
      const double sum = scores_of(0, 1, head, t, seen, scores);
      out<float>(1)[head.sums + t * head.sums_step] = static_cast<float>(sum);
      const auto share = [&](std::int64_t s) { return std::exp(scores[static_cast<std::size_t>(s)] - sum); };
      const auto v = [&](std::int64_t s, std::int64_t i) { return value(2, head.k + s * head.k_step + i); };
      sum_products(seen, size, share, v,
                   [&](std::int64_t i, double mixed) { out(0)[head.q + t * head.q_step + i] = rounded(mixed); });
    }
  });
}

template <typename Real>
void Loops<Real>::operator()(const op::AttentionBackward& attention) const {
  const std::int64_t positions = in_shape(1)[0];
  const std::int64_t size = in_shape(2).last();
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  const auto count = static_cast<std::size_t>(positions);
  std::vector<double> scores(count);
  std::vector<double> slopes(count);
  std::vector<double> dk(static_cast<std::size_t>(in_shape(2).elements()), 0);
  std::vector<double> dv(dk.size(), 0);
  each_head(in_shape(1), in_shape(2), [&](const Head& head) {
    for (std::int64_t t = 0; t < positions; ++t) {
      const std::int64_t seen = attention.causal ? t + 1 : positions;
      const double sum = scores_of(1, 2, head, t, seen, scores);
      const std::int64_t q = head.q + t * head.q_step;
      double mean = 0;
      for (std::int64_t s = 0; s < seen; ++s) {
        double& share = scores[static_cast<std::size_t>(s)];
        double& slope = slopes[static_cast<std::size_t>(s)];
        share = std::exp(share - sum);
        slope = 0;
        for (std::int64_t i = 0; i < size; ++i) {
          slope += value(0, q + i) * value(3, head.k + s * head.k_step + i);
        }
        mean += share * slope;
      }
      std::vector<double> dq(static_cast<std::size_t>(size), 0);
      for (std::int64_t s = 0; s < seen; ++s) {
        const double share = scores[static_cast<std::size_t>(s)];
        const double change = share * (slopes[static_cast<std::size_t>(s)] - mean) * scale;
        for (std::int64_t i = 0; i < size; ++i) {
          const std::int64_t k = head.k + s * head.k_step + i;
          dq[static_cast<std::size_t>(i)] += change * value(2, k);
          dk[static_cast<std::size_t>(k)] += change * value(1, q + i);
          dv[static_cast<std::size_t>(k)] += share * value(0, q + i);
        }
      }
      for (std::int64_t i = 0; i < size; ++i) {
        out(0)[q + i] = rounded(dq[static_cast<std::size_t>(i)]);
      }
    }
  });
  for (std::size_t i = 0; i < dk.size(); ++i) {
    out(1)[i] = rounded(dk[i]);
    out(2)[i] = rounded(dv[i]);
  }
}

}  // namespace baton::exec::reference
