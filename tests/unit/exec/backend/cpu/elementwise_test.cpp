#include "baton/exec/backend/cpu/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace baton::exec::cpu {
namespace {

TEST(CrossEntropy, GivesTheSameLossAndGradientIfTheGradientLiesWhereTheScoresDo) {
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t classes = 19;
  for (const double smoothing : {0.0, 0.2}) {
    std::vector<float> scores(rows * classes);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      scores[i] = static_cast<float>(i * 37 % 101) / 20.0F - 2.0F;
    }
    std::vector<std::int32_t> labels(rows);
    for (std::size_t r = 0; r < labels.size(); ++r) {
      labels[r] = static_cast<std::int32_t>(r * 5 % classes);
    }
    const ScorePart whole{.smoothing = smoothing, .each = smoothing / classes};
    std::vector<double> loss(rows);
    std::vector<float> gradient(scores.size());
    cross_entropy(scores.data(), labels.data(), loss.data(), gradient.data(), 0, rows, classes, rows, 1, whole);
    std::vector<double> loss_in_place(rows);
    std::vector<float> in_place = scores;
    cross_entropy(in_place.data(), labels.data(), loss_in_place.data(), in_place.data(), 0, rows, classes, rows, 1, whole);
    EXPECT_EQ(loss_in_place, loss);
    EXPECT_EQ(in_place, gradient);
  }
}

TEST(CrossEntropy, IsThatOfSumsInDoublePrecisionForAnyNumberOfClasses) {
  std::mt19937 engine(11);
  std::uniform_real_distribution<float> uniform(-30, 30);
  for (const std::int64_t classes : {1, 2, 15, 16, 17, 65, 1003}) {
    SCOPED_TRACE(classes);
    constexpr std::int64_t rows = 5;
    std::vector<float> scores(static_cast<std::size_t>(rows * classes));
    for (float& score : scores) {
      score = uniform(engine);
    }
    std::vector<std::int32_t> labels(rows);
    for (std::int32_t& label : labels) {
      label = static_cast<std::int32_t>(engine() % static_cast<std::uint32_t>(classes));
    }
    const auto smoothing = 0.1;
    const ScorePart whole{.smoothing = smoothing, .each = smoothing / static_cast<double>(classes)};
    std::vector<double> loss(rows);
    std::vector<float> gradient(scores.size());
    cross_entropy(scores.data(), labels.data(), loss.data(), gradient.data(), 0, rows, classes, rows, 1, whole);
    std::vector<double> terms(3 * rows);
    cross_entropy_terms(scores.data(), labels.data(), terms.data(), 0, rows, classes, whole);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* row = scores.data() + r * static_cast<std::size_t>(classes);
      const auto count = static_cast<std::size_t>(classes);
      const auto largest = static_cast<double>(*std::max_element(row, row + count));
      double sum = 0;
      double all = 0;
      for (std::size_t c = 0; c < count; ++c) {
        sum += std::exp(static_cast<double>(row[c]) - largest);
        all += static_cast<double>(row[c]);
      }
      const auto label = static_cast<std::size_t>(labels[r]);
      const double score = (1 - smoothing) * static_cast<double>(row[label]) + whole.each * all;
      EXPECT_NEAR(loss[r], (std::log(sum) + largest - score) / rows, 1e-6);
      EXPECT_EQ(terms[3 * r], largest);
      EXPECT_NEAR(terms[3 * r + 1] / sum, 1, 1e-6);
      EXPECT_NEAR(terms[3 * r + 2], score, 1e-9 * std::abs(score) + 1e-12);
      for (std::size_t c = 0; c < count; ++c) {
        const double share = std::exp(static_cast<double>(row[c]) - largest) / sum;
        const double expected = (share - (c == label ? 1 - smoothing : 0) - whole.each) / rows;
        ASSERT_NEAR(static_cast<double>(gradient[r * count + c]), expected, 1e-7) << c;
      }
    }
  }
}

TEST(Gelu, IsThatOfTheErrorFunctionInDoublePrecision) {
  std::vector<float> x;
  for (float at = -9; at < 9; at += 0.00037F) {
    x.push_back(at);
  }
  x.insert(x.end(), {0.0F, -0.0F, 1e-30F, 1.30107F, 1.30108F, 40.0F, -40.0F});  // the two series meet at 0.92 · √2
  const std::vector<float> dy(x.size(), 1);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  gelu(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  gelu_backward(dy.data(), x.data(), dx.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<double>(x[i]);
    const double share = std::erfc(-at / std::sqrt(2.0)) / 2;
    const double density = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0));
    ASSERT_NEAR(static_cast<double>(y[i]), at * share, 2e-7 * std::max(1.0, std::abs(at))) << at;
    ASSERT_NEAR(static_cast<double>(dx[i]), share + at * density, 3e-7) << at;
  }
  const float bad = std::numeric_limits<float>::quiet_NaN();
  gelu(&bad, y.data(), 1);
  EXPECT_TRUE(std::isnan(y[0])) << "a number that is none stays one";
}

}  // namespace
}  // namespace baton::exec::cpu
