#include "baton/exec/backend/cpu/elementwise.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace baton::exec::cpu
