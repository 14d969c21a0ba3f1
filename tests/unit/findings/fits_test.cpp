#include "baton/findings/fits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/error.h"
#include "support/usage_sentence.h"

namespace baton::findings {
namespace {

using test::says;

const std::vector<double> device_counts{1, 2, 4, 8};

std::vector<double> amdahl_times(double t1, double serial) {
  std::vector<double> times;
  for (const double n : device_counts) {
    times.push_back(t1 * (serial + (1 - serial) / n));
  }
  return times;
}

TEST(Line, GoesThroughPointsThatLieOnOne) {
  const std::vector<double> x{0, 5, 10, 40};
  const std::vector<double> y{3, 13, 23, 83};
  const Line line = fit_line(x, y);
  EXPECT_NEAR(line.intercept, 3, 1e-12);
  EXPECT_NEAR(line.slope, 2, 1e-12);
  EXPECT_NEAR(line.r2, 1, 1e-12);
  EXPECT_EQ(line.points, 4U);
}

TEST(Line, LeavesTheSmallestSquares) {
  // By hand: means 2 and 7/3; covariance 1, variance 2.
  const std::vector<double> x{1, 2, 3};
  const std::vector<double> y{2, 2, 3};
  const Line line = fit_line(x, y);
  EXPECT_NEAR(line.slope, 0.5, 1e-12);
  EXPECT_NEAR(line.intercept, 4.0 / 3, 1e-12);
  EXPECT_NEAR(line.r2, 0.75, 1e-12);
}

TEST(Line, SaysThatAParabolaIsNone) {
  const std::vector<double> x{-2, -1, 0, 1, 2};
  const std::vector<double> y{4, 1, 0, 1, 4};
  const Line line = fit_line(x, y);
  EXPECT_NEAR(line.slope, 0, 1e-12);
  EXPECT_NEAR(line.r2, 0, 1e-12);
  EXPECT_TRUE(says(quality(line.r2), "bad fit"));
}

TEST(Line, IsFlatWhereNothingVaries) {
  const std::vector<double> constant{5, 5, 5};
  const std::vector<double> x{1, 2, 3};
  const Line flat = fit_line(x, constant);
  EXPECT_EQ(flat.slope, 0);
  EXPECT_EQ(flat.intercept, 5);
  EXPECT_EQ(flat.r2, 1);
  const Line upright = fit_line(constant, x);  // every x the same: the mean is all there is to say
  EXPECT_EQ(upright.slope, 0);
  EXPECT_EQ(upright.intercept, 2);
  EXPECT_EQ(upright.r2, 0);
}

TEST(Line, IsNotDrawnThroughNothing) {
  const std::vector<double> none;
  const std::vector<double> one{1};
  const std::vector<double> two{1, 2};
  EXPECT_THROW(fit_line(none, none), BugError);
  EXPECT_THROW(fit_line(one, two), BugError);
  EXPECT_NEAR(fit_line(one, one).intercept, 1, 1e-12);
}

TEST(Amdahl, FindsTheSerialFractionThatTheTimesWereMadeWith) {
  for (const double serial : {0.0, 0.1, 0.5, 1.0}) {
    const Amdahl fit = fit_amdahl(device_counts, amdahl_times(200, serial));
    EXPECT_NEAR(fit.serial, serial, 1e-12);
    EXPECT_NEAR(fit.r2, 1, 1e-9) << serial;
  }
}

TEST(Amdahl, LimitsTheSpeedupToOneOverTheSerialFraction) {
  EXPECT_NEAR(fit_amdahl(device_counts, amdahl_times(200, 0.1)).limit(), 10, 1e-9);
  EXPECT_NEAR(fit_amdahl(device_counts, amdahl_times(200, 0.5)).limit(), 2, 1e-9);
}

TEST(Amdahl, SeesNoLimitWhereTheSpeedupIsMoreThanLinear) {
  const std::vector<double> times{100, 45, 20, 9};
  const Amdahl fit = fit_amdahl(device_counts, times);
  EXPECT_LT(fit.serial, 0);
  EXPECT_EQ(fit.limit(), 0);
}

TEST(Amdahl, NeedsNoParticularOrder) {
  const std::vector<double> devices{4, 1, 2};
  const std::vector<double> times{100 * (0.2 + 0.8 / 4), 100, 100 * (0.2 + 0.8 / 2)};
  EXPECT_NEAR(fit_amdahl(devices, times).serial, 0.2, 1e-12);
}

TEST(Amdahl, FindsItWithoutAPointOfOneDeviceToo) {
  const std::vector<double> devices{2, 4, 8};
  std::vector<double> times;
  for (const double n : devices) {
    times.push_back(100 * (0.1 + 0.9 / n));
  }
  EXPECT_NEAR(fit_amdahl(devices, times).serial, 0.1, 1e-9);
}

TEST(Amdahl, SaysThatTimesThatRiseAgainAreNotItsLaw) {
  const std::vector<double> times{100, 50, 90, 200};
  EXPECT_TRUE(says(quality(fit_amdahl(device_counts, times).r2), "bad fit"));
}

TEST(Gustafson, FindsTheSerialFractionThatTheSpeedupsWereMadeWith) {
  for (const double serial : {0.0, 0.1, 0.75}) {
    std::vector<double> speedups;
    for (const double n : device_counts) {
      speedups.push_back(n - serial * (n - 1));
    }
    const Gustafson fit = fit_gustafson(device_counts, speedups);
    EXPECT_NEAR(fit.serial, serial, 1e-12);
    EXPECT_NEAR(fit.r2, 1, 1e-12);
  }
}

TEST(Gustafson, SaysThatAFallIsNotItsLaw) {
  const std::vector<double> speedups{1, 3, 1, 0.5};
  EXPECT_TRUE(says(quality(fit_gustafson(device_counts, speedups).r2), "bad fit"));
}

TEST(AlphaBeta, FindsTheLatencyAndTheBandwidthThatTheTimesWereMadeWith) {
  const std::vector<double> bytes{1024, 65536, 1048576, 16777216};
  std::vector<double> times;
  for (const double size : bytes) {
    times.push_back(5000 + size / 4.0);  // 5 µs and 4 bytes per nanosecond
  }
  const AlphaBeta fit = fit_alpha_beta(bytes, times);
  EXPECT_NEAR(fit.alpha_ns, 5000, 1e-3);
  EXPECT_NEAR(fit.beta, 4e9, 1);
  EXPECT_NEAR(fit.r2, 1, 1e-12);
  EXPECT_NEAR(fit.worst_residual, 0, 1e-6);
}

TEST(AlphaBeta, NamesTheWorstPoint) {
  const std::vector<double> bytes{0, 1000, 2000};
  const std::vector<double> times{100, 100, 400};  // the line is 50 + 0.15 n: 50, 200, 350
  const AlphaBeta fit = fit_alpha_beta(bytes, times);
  EXPECT_NEAR(fit.worst_residual, 1.0, 1e-9) << "200 where 100 was measured";
}

TEST(AlphaBeta, OfFewerThanThreeSizesIsNotTested) {
  const std::vector<double> bytes{1000, 1000, 2000, 2000};
  const std::vector<double> times{100, 101, 200, 201};
  EXPECT_EQ(fit_alpha_beta(bytes, times).sizes, 2U);
  EXPECT_FALSE(fit_alpha_beta(bytes, times).testable());
  EXPECT_FALSE(fit_message(bytes, times).testable());
  EXPECT_EQ(quality(fit_message(bytes, times)), "not tested: a formula with two parameters needs three sizes, and there are 2");
  EXPECT_TRUE(says(quality(fit_message(std::vector<double>{8}, std::vector<double>{700})), "needs three sizes, and there is 1"));
}

TEST(AlphaBeta, IsJudgedByHowFarTheWorstSizeIsOff) {
  // Times that hardly differ have no spread that a formula could explain, and the formula is good all the same.
  const std::vector<double> bytes{8, 32, 128, 512};
  const std::vector<double> flat{700, 702, 699, 701};
  EXPECT_TRUE(says(quality(fit_message(bytes, flat)), "a good fit (at worst 0."));
  const std::vector<double> jump{700, 700, 700, 2000};
  EXPECT_TRUE(says(quality(fit_message(bytes, jump)), "fit (at worst "));
  const std::vector<double> wild{700, 7000, 700, 2000};
  EXPECT_TRUE(says(quality(fit_message(bytes, wild)), "a bad fit (at worst "));
}

TEST(AlphaBeta, HasNoBandwidthWhereTimeDoesNotGrowWithSize) {
  const std::vector<double> bytes{1000, 2000, 4000};
  const std::vector<double> flat{70, 70, 70};
  const std::vector<double> falling{90, 80, 60};
  EXPECT_EQ(fit_alpha_beta(bytes, flat).beta, 0);
  EXPECT_EQ(fit_alpha_beta(bytes, falling).beta, 0);
}

TEST(Message, FindsTheLawOverManyPowersOfTenThoughTheLargestAreNoisy) {
  std::vector<double> bytes;
  std::vector<double> times;
  for (double size = 8; size < 1e9; size *= 4) {
    bytes.push_back(size);
    times.push_back((2000 + size / 5) * (size > 1e8 ? 1.05 : 1));  // 2 µs, 5 GB/s
  }
  const AlphaBeta fit = fit_message(bytes, times);
  EXPECT_NEAR(fit.alpha_ns, 2000, 20);
  EXPECT_NEAR(fit.beta, 5e9, 0.2e9);
  EXPECT_GT(fit.r2, 0.999);
  EXPECT_GT(std::abs(fit_alpha_beta(bytes, times).alpha_ns - 2000), 1000) << "absolute errors would do as well";
}

TEST(Message, HasNoNegativeLatency) {
  const std::vector<double> bytes{1000, 2000, 4000};
  const std::vector<double> times{800, 2000, 4600};
  const AlphaBeta fit = fit_message(bytes, times);
  EXPECT_EQ(fit.alpha_ns, 0);
  EXPECT_GT(fit.beta, 0);
}

TEST(Message, IsALatencyAloneWhereThereIsOneSizeOrTimesAreEqual) {
  const std::vector<double> one{64};
  const std::vector<double> time{700};
  EXPECT_NEAR(fit_message(one, time).alpha_ns, 700, 1e-6);
  EXPECT_EQ(fit_message(one, time).beta, 0);
  const std::vector<double> sizes{8, 64, 512};
  const std::vector<double> equal{700, 700, 700};
  EXPECT_NEAR(fit_message(sizes, equal).alpha_ns, 700, 1e-3);
  EXPECT_EQ(fit_message({}, {}).alpha_ns, 0);
}

TEST(Quality, HasThreeGrades) {
  EXPECT_EQ(quality(0.998), "R² = 0.998, a good fit");
  EXPECT_EQ(quality(0.98), "R² = 0.980, a good fit");
  EXPECT_EQ(quality(0.91), "R² = 0.91, a rough fit");
  EXPECT_EQ(quality(0.8), "R² = 0.80, a rough fit");
  EXPECT_TRUE(says(quality(0.4), "R² = 0.40, a bad fit"));
  EXPECT_TRUE(says(quality(-3), "does not describe these numbers"));
}

}  // namespace
}  // namespace baton::findings
