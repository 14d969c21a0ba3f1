#include "baton/data/order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "support/usage_sentence.h"

using namespace baton;
using namespace baton::data;

namespace {

TEST(Permutation, HasEveryNumberOnce) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const std::uint64_t n = trial < 20 ? static_cast<std::uint64_t>(trial) + 1 : 1 + random() % 5000;
    const Permutation permutation(n, random(), random() % 100);
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t at = permutation(i);
      ASSERT_LT(at, n);
      ASSERT_FALSE(seen[at]) << "n " << n;
      seen[at] = true;
    }
  }
}

TEST(Permutation, DiffersByEpochAndBySeed) {
  constexpr std::uint64_t n = 1000;
  const auto same = [&](const Permutation& a, const Permutation& b) {
    int count = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      count += a(i) == b(i) ? 1 : 0;
    }
    return count;
  };
  const Permutation one(n, 7, 0);
  EXPECT_EQ(same(one, Permutation(n, 7, 0)), 1000);
  EXPECT_LT(same(one, Permutation(n, 7, 1)), 20);
  EXPECT_LT(same(one, Permutation(n, 8, 0)), 20);
}

/// Each number should fall into each tenth of the positions about as often.
TEST(Permutation, SpreadsNumbersEvenly) {
  constexpr std::uint64_t n = 100;
  std::array<std::array<int, 10>, 10> counts{};
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Permutation permutation(n, 11, epoch);
    for (std::uint64_t i = 0; i < n; ++i) {
      ++counts[i / 10][permutation(i) / 10];
    }
  }
  double chi_squared = 0;
  for (const auto& row : counts) {
    for (const int count : row) {
      chi_squared += (count - 400.0) * (count - 400.0) / 400.0;
    }
  }
  EXPECT_LT(chi_squared, 130);  // 81 degrees of freedom: above 126 in one of a thousand
}

TEST(Permutation, TakesNoTimeToSetUpForHugeData) {
  const std::uint64_t n = std::uint64_t{1} << 50;
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(Permutation(n, 5, i / 10)(n - 1 - i), n);
    seen.insert(Permutation(n, 5, 0)(i * 1'000'003));
  }
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(SampleOrder, OfTrainingTakesEachSampleAtMostOncePerEpochAndDropsTheRest) {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 40; ++trial) {
    const auto samples = static_cast<std::int64_t>(1 + random() % 300);
    const auto batch = static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(samples));
    const SampleOrder order = SampleOrder::training(samples, batch, random());
    ASSERT_EQ(order.steps_per_epoch(), samples / batch);
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<std::int64_t> seen;
      for (std::int64_t step = epoch * order.steps_per_epoch(); step < (epoch + 1) * order.steps_per_epoch(); ++step) {
        EXPECT_EQ(order.rows(step), batch);
        for (std::int64_t row = 0; row < batch; ++row) {
          const Draw draw = order.at(step, row);
          EXPECT_EQ(draw.epoch, static_cast<std::uint64_t>(epoch));
          EXPECT_TRUE(seen.insert(draw.sample).second);
          EXPECT_LT(draw.sample, samples);
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), samples / batch * batch);
    }
  }
}

TEST(SampleOrder, IsTheSameForWhoeverAsksAndWheneverItIsAsked) {
  const SampleOrder first = SampleOrder::training(1000, 8, 42);
  const SampleOrder other = SampleOrder::training(1000, 8, 42);
  for (const std::int64_t step : {0, 1, 124, 125, 5000}) {
    for (std::int64_t row = 7; row >= 0; --row) {
      EXPECT_EQ(first.at(step, row), other.at(step, row));
    }
  }
}

TEST(SampleOrder, OfEvaluationHasAllSamplesInTurnAndAPartialBatchAtTheEnd) {
  const SampleOrder order = SampleOrder::evaluation(10, 4);
  EXPECT_EQ(order.steps_per_epoch(), 3);
  EXPECT_EQ(order.rows(1), 4);
  EXPECT_EQ(order.rows(2), 2);
  EXPECT_EQ(order.at(0, 3).sample, 3);
  EXPECT_EQ(order.at(2, 1).sample, 9);
  EXPECT_EQ(order.at(2, 3).sample, 8);  // does not count
}

TEST(SampleOrder, OfFewerSamplesThanABatchIsRefused) {
  EXPECT_TRUE(test::says(test::usage_sentence([] { SampleOrder::training(3, 4, 0); }), "3 samples, fewer than one batch of 4"));
  EXPECT_TRUE(test::says(test::usage_sentence([] { SampleOrder::evaluation(0, 4); }), "no sample"));
}

}  // namespace
