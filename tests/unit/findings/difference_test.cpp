#include "baton/findings/difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "baton/base/error.h"

namespace baton::findings {
namespace {

TEST(StudentQuantile, IsThatOfPrintedTables) {
  EXPECT_NEAR(student_quantile(0.975, 1), 12.7062, 1e-4);
  EXPECT_NEAR(student_quantile(0.995, 4), 4.6041, 1e-4);
  EXPECT_NEAR(student_quantile(0.995, 8), 3.3554, 1e-4);
  EXPECT_NEAR(student_quantile(0.9, 10), 1.3722, 1e-4);
  EXPECT_NEAR(student_quantile(0.9995, 3), 12.9240, 1e-3);
  EXPECT_NEAR(student_quantile(0.975, 1e9), 1.9600, 1e-4);
  EXPECT_NEAR(student_quantile(0.975, std::numeric_limits<double>::infinity()), 1.959964, 1e-6);
  EXPECT_NEAR(student_quantile(0.025, 7), -student_quantile(0.975, 7), 1e-12);
  EXPECT_NEAR(student_quantile(0.5, 3), 0, 1e-9);
  EXPECT_THROW(student_quantile(1, 3), BugError);
}

TEST(Sample, IsOfTheLogarithmsOfInstances) {
  const std::vector<double> times{100, 102, 104.04};  // each 2 % above the one before
  const Sample sample = sample_of(times);
  EXPECT_NEAR(sample.log_mean, std::log(102.0), 1e-12);
  EXPECT_NEAR(sample.variance, std::pow(std::log(1.02), 2) / 3, 1e-12) << "their variance, over three";
  EXPECT_EQ(sample.degrees, 2);
}

TEST(Interval, OfOneInstanceIsEverything) {
  const std::vector<double> one{100};
  const Interval all = interval(sample_of(one), 0.95);
  EXPECT_EQ(all.low, 0);
  EXPECT_TRUE(std::isinf(all.high));
  EXPECT_FALSE(difference(sample_of(one), exact(1e6)).differ);
  EXPECT_TRUE(std::isinf(difference(sample_of(one), exact(1e6)).smallest));
}

TEST(Interval, SaysWhatItsSampleSaid) {
  const std::vector<double> times{100, 102, 104.04, 101, 99};
  const Sample sample = sample_of(times);
  const Sample again = from_interval(std::exp(sample.log_mean), interval(sample, 0.95), 5);
  EXPECT_NEAR(again.log_mean, sample.log_mean, 1e-12);
  EXPECT_NEAR(again.variance, sample.variance, 1e-12);
  EXPECT_EQ(again.degrees, 4);
  EXPECT_EQ(from_interval(100, {99, 101}, 1).degrees, 0) << "of one instance an interval says nothing";
}

TEST(Quotient, ScattersWithBoth) {
  const std::vector<double> a{100, 102, 104.04, 101, 99};
  const std::vector<double> b{50, 51, 52, 49};
  const Sample ratio = quotient(sample_of(a), sample_of(b));
  EXPECT_NEAR(ratio.log_mean, sample_of(a).log_mean - sample_of(b).log_mean, 1e-12);
  EXPECT_NEAR(ratio.variance, sample_of(a).variance + sample_of(b).variance, 1e-15);
  EXPECT_GT(ratio.degrees, 3);
  EXPECT_LE(ratio.degrees, 7);
  // With an exact time it is the other one; one instance says nothing.
  const Sample half = quotient(sample_of(a), exact(2));
  EXPECT_NEAR(half.variance, sample_of(a).variance, 1e-15);
  EXPECT_NEAR(half.degrees, 4, 1e-9);
  EXPECT_EQ(quotient(sample_of(std::vector<double>{1}), exact(2)).degrees, 0);
  EXPECT_TRUE(std::isinf(quotient(exact(1), exact(2)).degrees));
}

TEST(Difference, OfExactTimesIsAnyDifference) {
  EXPECT_TRUE(difference(exact(100), exact(100.0001)).differ);
  EXPECT_FALSE(difference(exact(100), exact(100)).differ);
  EXPECT_EQ(difference(exact(100), exact(100)).smallest, 0);
}

TEST(Difference, BelowTheResolutionIsNeverClaimed) {
  const std::vector<double> a{1000, 1000, 1000, 1000, 1000};
  const std::vector<double> b{1004, 1004, 1004, 1004, 1004};
  const std::vector<double> c{1006, 1006, 1006, 1006, 1006};
  EXPECT_FALSE(difference(sample_of(a), sample_of(b)).differ);
  EXPECT_TRUE(difference(sample_of(a), sample_of(c)).differ);
}

TEST(Difference, MorePairsAndMoreDriftTakeALargerOne) {
  const std::vector<double> a{990, 995, 1000, 1005, 1010};
  std::vector<double> b;
  for (const double time : a) {
    b.push_back(1.02 * time);
  }
  const Sample first = sample_of(a);
  const Sample second = sample_of(b);
  EXPECT_TRUE(difference(first, second).differ);
  EXPECT_FALSE(difference(first, second, {.pairs = 28}).differ);
  EXPECT_FALSE(difference(first, second, {.drift = 0.01}).differ);
  EXPECT_GT(difference(first, second, {.pairs = 28}).smallest, difference(first, second).smallest);
}

TEST(Difference, OfLessThanTwiceWhatTheMachineChangedByIsNone) {
  const std::vector<double> a{999, 1000, 1001, 1000, 1000};
  std::vector<double> b;
  for (const double time : a) {
    b.push_back(1.2 * time);
  }
  const Sample first = sample_of(a);
  const Sample second = sample_of(b);
  EXPECT_TRUE(difference(first, second, {.shift = 0.08}).differ);
  EXPECT_TRUE(difference(first, second, {.shift = -0.08}).differ);
  EXPECT_FALSE(difference(first, second, {.shift = 0.1}).differ);
  EXPECT_FALSE(difference(second, first, {.shift = 0.1}).differ);
  EXPECT_GT(difference(first, second, {.shift = 0.1}).smallest, 0.2);
}

// Times as machines give them: what all steps of an instance share, what its steps scatter by, and the speed of the machine at the
// time.

using Random = std::mt19937_64;

struct Noise {
  const char* name;
  std::function<double(Random&)> instance;  // the logarithm of what an instance is slower by
  double step = 0.02;                       // standard deviation of steps, relative
  double drift = 0;                         // drift of the machine from one turn to the next, a random walk
};

double normal(Random& random) { return std::normal_distribution<double>()(random); }

std::vector<Noise> machines() {
  return {{"quiet", [](Random& r) { return 0.005 * normal(r); }},
          {"steps alone scatter", [](Random&) { return 0.0; }},
          {"two placements in memory", [](Random& r) { return (r() % 2 == 0 ? 0.03 : 0.0) + 0.002 * normal(r); }},
          {"one instance in five is slow", [](Random& r) { return (r() % 5 == 0 ? 0.2 : 0.0) + 0.005 * normal(r); }},
          {"heavy tails", [](Random& r) { return 0.005 * std::min(50.0, std::abs(std::cauchy_distribution<double>()(r))); }},
          {"busy", [](Random& r) { return std::exponential_distribution<double>(8)(r); }, 0.1},
          {"drifts", [](Random& r) { return 0.005 * normal(r); }, 0.02, 0.004},
          {"drifts fast", [](Random& r) { return 0.002 * normal(r); }, 0.02, 0.02}};
}

/// Medians of instances of two jobs that take turns, the second `slower` times as long: a, b, b, a, a, b, ...
std::pair<std::vector<double>, std::vector<double>> turns(const Noise& noise, std::size_t instances, double slower,
                                                          Random& random) {
  std::vector<double> a;
  std::vector<double> b;
  double speed = 0;
  for (std::size_t round = 0; round < instances; ++round) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      speed += noise.drift * normal(random);
      const double median_of_steps = noise.step * normal(random) / 5;  // the median of some tens of steps
      const double time = 1e6 * std::exp(speed + noise.instance(random) + median_of_steps);
      ((round + turn) % 2 == 0 ? a : b).push_back(time * ((round + turn) % 2 == 0 ? 1 : slower));
    }
  }
  return {a, b};
}

TEST(Difference, IsClaimedOfEqualJobsInAboutOneOfAHundredWhateverTheNoise) {
  Random random(20);
  constexpr int draws = 2500;
  for (const Noise& noise : machines()) {
    for (const std::size_t instances : {4, 5, 12}) {
      int called = 0;
      for (int draw = 0; draw < draws; ++draw) {
        const auto [a, b] = turns(noise, instances, 1, random);
        called += difference(sample_of(a), sample_of(b)).differ ? 1 : 0;
      }
      // 25 are expected of 2500, and more than 50 have a chance of about one in a million.
      EXPECT_LE(called, 50) << noise.name << ", " << instances << " instances";
    }
  }
}

TEST(PairedDifference, IsClaimedOfEqualJobsInAboutOneOfAHundredWhateverTheNoise) {
  Random random(23);
  constexpr int draws = 1500;
  for (const Noise& noise : machines()) {
    for (const std::size_t rounds : {10, 15, 40}) {
      int called = 0;
      for (int draw = 0; draw < draws; ++draw) {
        const auto [a, b] = turns(noise, rounds, 1, random);
        called += paired_difference(a, b).differ ? 1 : 0;
      }
      EXPECT_LE(called, 35) << noise.name << ", " << rounds << " rounds: 15 are expected of 1500";
    }
  }
}

TEST(PairedDifference, FindsThreePercentBesideADriftThatHidesItFromTheOtherTest) {
  Random random(24);
  const Noise drifting{"drifts", [](Random& r) { return 0.015 * normal(r) + (r() % 10 == 0 ? 0.2 : 0.0); }, 0.02, 0.02};
  int found = 0;
  int unpaired = 0;
  for (int draw = 0; draw < 300; ++draw) {
    const auto [a, b] = turns(drifting, 60, 1.03, random);
    found += paired_difference(a, b).differ ? 1 : 0;
    unpaired += difference(sample_of(a), sample_of(b)).differ ? 1 : 0;
  }
  EXPECT_GE(found, 270);
  EXPECT_LE(unpaired, 150);
}

TEST(PairedDifference, HasTheSignTheSizeAndTheIntervalOfTheTruth) {
  Random random(25);
  int held = 0;
  for (int draw = 0; draw < 400; ++draw) {
    const auto [a, b] = turns(machines()[0], 20, 1.1, random);
    const Difference one = paired_difference(a, b);
    const Difference other = paired_difference(b, a);
    EXPECT_NEAR(one.ratio, 1.1, 0.02);
    EXPECT_NEAR(one.ratio * other.ratio, 1, 1e-9);
    EXPECT_EQ(one.differ, other.differ);
    held += one.of_ratio.low <= 1.1 && 1.1 <= one.of_ratio.high ? 1 : 0;
  }
  EXPECT_GE(held, 370);
  EXPECT_LE(held, 395);
}

TEST(PairedDifference, TakesEnoughRoundsForTheLevel) {
  EXPECT_FALSE(can_pair(5));
  EXPECT_FALSE(can_pair(7));
  EXPECT_TRUE(can_pair(8)) << "2 / 256 is below 1 %";
  EXPECT_FALSE(can_pair(8, {.pairs = 28}));
  EXPECT_TRUE(can_pair(13, {.pairs = 28}));
  EXPECT_TRUE(can_pair(1000));
  const std::vector<double> same(10, 100.0);
  EXPECT_FALSE(paired_difference(same, same).differ);
  const std::vector<double> longer(12, 103.0);
  EXPECT_TRUE(paired_difference(same, longer).differ);
  EXPECT_FALSE(paired_difference(same, std::vector<double>(10, 100.4)).differ) << "below what is ever claimed";
}

TEST(Difference, OfTheFastestAndTheSlowestOfEightEqualJobsIsClaimedAsRarely) {
  Random random(21);
  constexpr int draws = 1500;
  for (const Noise& noise : machines()) {
    if (noise.drift > 0) {
      continue;  // takes turns of two jobs
    }
    int called = 0;
    for (int draw = 0; draw < draws; ++draw) {
      std::vector<Sample> jobs;
      for (int job = 0; job < 4; ++job) {
        const auto [a, b] = turns(noise, 5, 1, random);
        jobs.push_back(sample_of(a));
        jobs.push_back(sample_of(b));
      }
      const Scatter usual = usual_scatter(jobs);
      const auto [least, most] = std::minmax_element(jobs.begin(), jobs.end(),
                                                     [](const Sample& a, const Sample& b) { return a.log_mean < b.log_mean; });
      called += difference(at_least(*least, usual), at_least(*most, usual), {.pairs = 28}).differ ? 1 : 0;
    }
    EXPECT_LE(called, 35) << noise.name << ": 15 are expected of 1500";
  }
}

TEST(Difference, OfTheSizeThatIsSaidToBeSeenIsFoundInNineOfTen) {
  Random random(22);
  const Noise quiet = machines()[0];
  // The smallest difference is an estimate itself: its median over many runs is the size that is tried.
  std::vector<double> said;
  for (int draw = 0; draw < 500; ++draw) {
    const auto [a, b] = turns(quiet, 5, 1, random);
    said.push_back(difference(sample_of(a), sample_of(b)).smallest);
  }
  std::nth_element(said.begin(), said.begin() + 250, said.end());
  int found = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    const auto [a, b] = turns(quiet, 5, 1 + said[250], random);
    found += difference(sample_of(a), sample_of(b)).differ ? 1 : 0;
  }
  EXPECT_GE(found, 1750);
  EXPECT_LE(found, 1980) << "a smaller one would have been found too";
}

}  // namespace
}  // namespace baton::findings
