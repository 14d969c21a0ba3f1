#include "baton/lab/instances.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "baton/job/step_json.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::trained;
using test::with;

std::vector<Record> three() {
  return {with(trained(12), {{"losses", {1.0, 0.5, 0.25}}, {"steps_timed", 40}, {"where", "slow"}}),
          with(trained(10), {{"losses", {1.0}}, {"steps_timed", 20}, {"where", "middle"}}),
          with(trained(9), {{"losses", {1.0}}, {"steps_timed", 20}, {"where", "fast"}})};
}

TEST(Instances, TimesAreOfTheOneInTheMiddleAndLossesOfTheFirst) {
  const Json merged = merge_instances(three()).json();
  EXPECT_EQ(merged["time_per_step_ns"], 10e6);
  EXPECT_EQ(merged["where"], "middle");
  EXPECT_EQ(merged["losses"].size(), 3U);
  EXPECT_EQ(merged["steps_timed"], 80);
  EXPECT_EQ(merged["instances"], 3);
  EXPECT_EQ(merged["instance_times_ns"], (Json{12e6, 10e6, 9e6})) << "in the order in which they were measured";
}

/// What is recorded of steps that took these times.
Json spread_of(const std::vector<std::int64_t>& times) {
  std::vector<Nanoseconds> list(times.begin(), times.end());
  return with(job::times_record(list, 1, trace::Origin::measured).json(), {{"steps_timed", times.size()}});
}

TEST(Instances, StepTimesScatterOverTheStepsOfAllOfThem) {
  std::mt19937 engine(11);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Record> records;
    std::vector<std::int64_t> all;
    for (int instance = 0; instance < 4; ++instance) {
      std::vector<std::int64_t> times;
      const int steps = std::uniform_int_distribution<int>(1, 40)(engine);
      const int level = std::uniform_int_distribution<int>(1000, 3000)(engine);
      for (int i = 0; i < steps; ++i) {
        times.push_back(level + std::uniform_int_distribution<int>(0, 500)(engine));
      }
      all.insert(all.end(), times.begin(), times.end());
      records.emplace_back(spread_of(times));
    }
    const Json merged = merge_instances(records).json();
    const Json expected = spread_of(all);
    EXPECT_EQ(merged["steps_timed"], expected["steps_timed"]);
    for (const char* key : {"mean_ns", "std_ns", "min_ns", "max_ns"}) {
      EXPECT_NEAR(merged[key].get<double>(), expected[key].get<double>(), 3) << key;
    }
    EXPECT_EQ(merged["quantiles_ns"].size(), std::min<std::size_t>(50, all.size()));
    std::sort(all.begin(), all.end());
    const auto below = [&](double time) {
      return static_cast<double>(
                 std::count_if(all.begin(), all.end(), [&](std::int64_t one) { return static_cast<double>(one) <= time; })) /
             static_cast<double>(all.size());
    };
    const double one = 1.0 / static_cast<double>(all.size());
    EXPECT_NEAR(below(merged["p5_ns"].get<double>()), 0.05, 2 * one);
    EXPECT_NEAR(below(merged["p95_ns"].get<double>()), 0.95, 2 * one);
  }
}

TEST(Instances, TheIntervalIsStudentsOverTheInstances) {
  const Json merged = merge_instances(three()).json();
  const double mean = (std::log(12e6) + std::log(10e6) + std::log(9e6)) / 3;
  double squares = 0;
  for (const double time : {12e6, 10e6, 9e6}) {
    squares += std::pow(std::log(time) - mean, 2);
  }
  const double reach = 4.30265 * std::sqrt(squares / 2 / 3);  // Student's for two degrees of freedom
  EXPECT_NEAR(merged["time_low_ns"], std::exp(mean - reach), 50);
  EXPECT_NEAR(merged["time_high_ns"], std::exp(mean + reach), 50);
  EXPECT_EQ(merged["interval_level"], 0.95);
  EXPECT_GT(merged["smallest_difference"], 0.2);
}

TEST(Instances, OneAloneHasNoInterval) {
  const Json merged = merge_instances({trained(10)}).json();
  EXPECT_TRUE(merged["interval_level"].is_null());
  EXPECT_TRUE(merged["smallest_difference"].is_null());
  EXPECT_EQ(merged["time_low_ns"], merged["time_high_ns"]);
}

TEST(Instances, OfSimulatedTimesThereIsOneAndNoNoise) {
  const Json merged = merge_instances({with(trained(10), {{"origin", "simulated"}})}).json();
  EXPECT_EQ(merged["instances"], 1);
  EXPECT_EQ(merged["time_low_ns"], 9.9e6) << "what the simulation said";
}

TEST(Instances, WhatIsNoTimingIsThatOfTheFirst) {
  EXPECT_EQ(merge_instances({Json{{"value", 1}}, Json{{"value", 2}}}).json()["value"], 1);
}

TEST(PreciseEnough, IsAskedAfterTenAndEveryFifthThen) {
  const std::vector<double> equal(10, 100.0);
  EXPECT_TRUE(precise_enough({equal}));
  EXPECT_FALSE(precise_enough({std::vector<double>(9, 100.0)}));
  EXPECT_FALSE(precise_enough({std::vector<double>(12, 100.0)}));
  EXPECT_FALSE(precise_enough({equal, std::vector<double>(9, 100.0)}));
  EXPECT_FALSE(precise_enough({}));
  std::vector<double> scattered;
  for (int i = 0; i < 10; ++i) {
    scattered.push_back(i % 2 == 0 ? 100 : 106);
  }
  EXPECT_FALSE(precise_enough({scattered}));
  EXPECT_FALSE(precise_enough({scattered, equal}));
  EXPECT_TRUE(precise_enough({scattered, scattered})) << "what a round does to both does not count";
}

/// Rounds until the two points are precise enough, as the runner asks for them; `common` is what a round does to both.
std::pair<std::vector<double>, std::vector<double>> precisely(double scatter, double common, double slower,
                                                              std::mt19937_64& random) {
  std::vector<double> a;
  std::vector<double> b;
  std::normal_distribution<double> normal;
  while (!precise_enough({a, b}) && a.size() < most_precise_instances) {
    const double round = common * normal(random);
    a.push_back(1e6 * std::exp(round + scatter * normal(random)));
    b.push_back(1e6 * std::exp(round + scatter * normal(random)) * slower);
  }
  return {a, b};
}

TEST(PreciseEnough, FindsThreePercentInNineOfTenAndEqualJobsStillEqual) {
  std::mt19937_64 random(5);
  for (const double scatter : {0.003, 0.01, 0.02, 0.03}) {
    for (const double common : {0.0, 0.1}) {
      int found = 0;
      int wrong = 0;
      for (int draw = 0; draw < 250; ++draw) {
        const auto [a, b] = precisely(scatter, common, 1.03, random);
        found += findings::paired_difference(a, b).differ ? 1 : 0;
        const auto [c, d] = precisely(scatter, common, 1, random);
        wrong += findings::paired_difference(c, d).differ ? 1 : 0;
      }
      EXPECT_GE(found, 225) << scatter << " " << common;
      EXPECT_LE(wrong, 10) << scatter << " " << common << ": 3 are expected of 250, though it stops when the scatter looks small";
    }
  }
}

TEST(PreciseEnough, SlowInstancesNowAndThenHideNoThreePercent) {
  std::mt19937_64 random(6);
  std::normal_distribution<double> normal;
  std::bernoulli_distribution strikes(0.3);
  std::exponential_distribution<double> slow(1 / 0.2);
  const auto instance = [&] { return 1e6 * std::exp(0.01 * normal(random) + (strikes(random) ? slow(random) : 0)); };
  const auto differ = [&](double slower) {
    std::vector<std::vector<double>> times(2);
    while (!precise_enough(times) && times[0].size() < most_precise_instances) {
      times[0].push_back(instance());
      times[1].push_back(instance() * slower);
    }
    return findings::paired_difference(times[0], times[1]).differ;
  };
  int found = 0;
  int wrong = 0;
  for (int draw = 0; draw < 150; ++draw) {
    found += differ(draw % 2 == 0 ? 1.03 : 1 / 1.03) ? 1 : 0;
    wrong += differ(1) ? 1 : 0;
  }
  EXPECT_GE(found, 143) << "135 are nine of ten";
  EXPECT_LE(wrong, 6) << "1.5 are expected of 150";
}

TEST(Drift, IsWhatAllPointsHaveInCommon) {
  std::vector<std::vector<double>> points(5, std::vector<double>{100, 110, 100, 110, 100, 110});
  EXPECT_NEAR(drift_of(points), std::log(1.1) / 2 * std::sqrt(6.0 / 5), 1e-9);
  // Each point on its own, none like another: nothing in common.
  points = {{100, 110, 100, 100}, {100, 100, 110, 100}, {100, 100, 100, 110}, {100, 100, 100, 100}, {100, 100, 100, 100}};
  EXPECT_LT(drift_of(points), 0.013);
  EXPECT_EQ(drift_of({{100}}), 0);
  EXPECT_EQ(drift_of({}), 0);
}

}  // namespace
}  // namespace baton::lab
