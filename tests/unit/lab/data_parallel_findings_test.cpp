/// Part A: every answer is made from numbers that support it, and not from numbers that do not. Expected numbers are worked out by
/// hand.

#include <cmath>
#include <limits>
#include <random>
#include <sstream>

#include "baton/lab/rows.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::answer;
using test::derived;
using test::findings;
using test::headline;
using test::on_cores;
using test::says;
using test::silent_on;
using test::simulated;
using test::trained;
using test::with;

// timing

std::vector<Json> three_runs(double first_step_ms, const std::vector<double>& same, const std::vector<double>& other) {
  std::vector<double> steps(30, 2e6);
  steps[0] = first_step_ms * 1e6;
  const Json row = with(trained(2, 2), {{"first_step_times_ns", steps}, {"losses", {1.0, 0.5}}});
  return {with(row, {{"run", "first"}}), with(row, {{"run", "same seed"}, {"losses", same}}),
          with(row, {{"run", "other seed"}, {"losses", other}})};
}

TEST(Timing, ASlowFirstStepIsWhyOneWarmsUp) {
  const std::string said = answer("timing", "hw1/1/Q1", three_runs(10, {1.0, 0.5}, {1.1, 0.6}));
  EXPECT_TRUE(says(said,
                   "Because step 1 does work that later ones do not: it took 10.0 ms, 10.0 ms and 10.0 ms, 5.00, 5.00 "
                   "and 5.00 times the median"));
  // (10 + 29 · 2) / 30 over 2
  EXPECT_TRUE(says(said, "the first 5 would change the mean by +13.3 %, +13.3 % and +13.3 %"));
}

TEST(Timing, EveryRunOfTheTableIsSpokenOf) {
  std::vector<Json> rows = three_runs(2, {1.0, 0.5}, {1.1, 0.6});
  const auto said = [&] { return answer("timing", "hw1/1/Q1", rows); };
  EXPECT_TRUE(says(said(),
                   "To be safe, though here step 1 does not stand out from the others: it took 2.00 ms, "
                   "2.00 ms and 2.00 ms, 1.00, 1.00 and 1.00 times the median"));
  EXPECT_TRUE(says(said(), "+0.0 %, +0.0 % and +0.0 %"));
  rows[2]["first_step_times_ns"][0] = 8e6;
  EXPECT_TRUE(says(said(),
                   "may do work that later ones do not, which shows in 1 of 3 runs: it took 2.00 ms, 2.00 ms and 8.00 ms, 1.00, "
                   "1.00 and 4.00 times the median"));
  rows.resize(1);
  rows[0]["first_step_times_ns"][0] = 8e6;
  EXPECT_TRUE(says(said(),
                   "Because step 1 does work that later ones do not: it took 8.00 ms, 4.00 times the median; the first 5 would "
                   "change the mean by +10.0 %."));
}

TEST(Timing, AFirstStepWithinTheScatterOfTheOthersShowsNoWarmUp) {
  std::vector<Json> rows = three_runs(2.4, {1.0, 0.5}, {1.1, 0.6});  // 1.20 times the median
  for (Json& row : rows) {
    row["std_ns"] = 0.3e6;
  }
  const std::string within = answer("timing", "hw1/1/Q1", rows);
  EXPECT_TRUE(says(within, "To be safe, though here step 1 does not stand out from the others: it took 2.40 ms"));
  EXPECT_TRUE(silent_on(within, "Because"));
  for (Json& row : rows) {
    for (std::size_t step = 0; step < 5; ++step) {
      row["first_step_times_ns"][step] = 8e6;  // all of the first, not the first alone
    }
    row["std_ns"] = 5e6;
  }
  EXPECT_TRUE(
      says(answer("timing", "hw1/1/Q1", rows), "Because the first steps are slower, though step 1 is within the scatter of all"));
  for (std::size_t step = 0; step < 5; ++step) {
    rows[1]["first_step_times_ns"][step] = 1e6;  // faster in one of the runs
  }
  EXPECT_TRUE(says(answer("timing", "hw1/1/Q1", rows), "To be safe, though here step 1 does not stand out from the others"));
  rows = three_runs(2.4, {1.0, 0.5}, {1.1, 0.6});
  for (Json& row : rows) {
    row["std_ns"] = 0.3e6;
  }
  rows[0]["std_ns"] = 0.1e6;
  EXPECT_TRUE(says(answer("timing", "hw1/1/Q1", rows), "which shows in 1 of 3 runs: "));
}

TEST(Timing, RunsWithASlowFirstStepAreCountedWhateverTheirNumber) {
  std::mt19937_64 generator(23);
  std::uniform_real_distribution<double> first(1.5, 4);
  std::uniform_real_distribution<double> scatter(0, 0.5);
  for (int tries = 0; tries < 100; ++tries) {
    std::vector<Json> rows;
    int slow = 0;
    for (int r = 0; r < 1 + tries % 6; ++r) {
      rows.push_back(three_runs(first(generator), {1.0}, {1.1})[0]);
      rows.back()["std_ns"] = scatter(generator) * 1e6;
      const double excess = rows.back()["first_step_times_ns"][0].get<double>() - 2e6;
      slow += excess > 0.1e6 && excess > 2 * rows.back()["std_ns"].get<double>() ? 1 : 0;
    }
    const std::string said = answer("timing", "hw1/1/Q1", rows);
    const std::string count = std::to_string(rows.size());
    EXPECT_TRUE(says(said, slow == 0 ? "To be safe"
                           : slow == static_cast<int>(rows.size())
                               ? "Because step 1 does work that later ones do not: "
                               : ", which shows in " + std::to_string(slow) + " of " + count + " runs: "));
  }
}

TEST(Timing, WhichOfAGpusReasonsExistDependsOnTheDevice) {
  std::vector<Json> rows = three_runs(10, {1.0, 0.5}, {1.1, 0.6});
  EXPECT_TRUE(says(answer("timing", "hw1/1/Q1", rows), "On these CPU cores"));
  EXPECT_TRUE(says(answer("timing", "hw1/1/Q1", rows), "context creation, lazy loading of kernels"));
  rows[0]["gpus"] = {{{"ordinal", 0}}};
  EXPECT_TRUE(says(answer("timing", "hw1/1/Q1", rows), "Here it pays only for lazy loading"));
  rows[1]["first_step_times_ns"][0] = 2e6;  // then the answer is longest
  std::istringstream words(answer("timing", "hw1/1/Q1", rows));
  EXPECT_LE(std::distance(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()), 90);
  EXPECT_TRUE(silent_on(answer("timing", "hw1/1/Q1", rows), "CPU cores"));
}

TEST(Timing, SeedsAreJudgedByTheBitsOfTheLosses) {
  const auto said = [](const std::vector<double>& same, const std::vector<double>& other) {
    return answer("timing", "hw1/1/Q2", three_runs(2, same, other));
  };
  EXPECT_TRUE(
      says(said({1.0, 0.5}, {1.1, 0.6}), "Two runs with seed 0 gave the same losses to the bit over 2 steps; seed 1 gave others"));
  EXPECT_TRUE(silent_on(said({1.0, 0.5}, {1.1, 0.6}), "which is a fault"));
  EXPECT_TRUE(says(said({1.0, std::nextafter(0.5, 1.0)}, {1.1, 0.6}), "different losses, which is a fault"));
  EXPECT_TRUE(says(said({1.0, 0.5}, {1.0, 0.5}), "the same losses, which is a fault"));
}

TEST(Timing, RunsOfOneSeedShowOneLossHoweverManyStepsEachHas) {
  const std::vector<Json> rows = derived("timing", three_runs(2, {1.0, 0.5, 0.25}, {1.1, 0.6}));
  EXPECT_EQ(rows[0]["loss_last"], rows[1]["loss_last"]);
  EXPECT_EQ(rows[2]["loss_last"], 0.6);
  EXPECT_EQ(rows[0]["step_1_ns"], 2e6);
  EXPECT_EQ(rows[0]["mean_all_ns"], 2e6);
}

// strong-scaling

std::vector<Json> scaled(const std::vector<double>& ms, const std::vector<std::int64_t>& counts = {1, 2, 4}) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    rows.push_back(with(trained(ms[i], counts[i]), {{"model", "m"}, {"batch", 64}}));
  }
  return rows;
}

/// Where the mean device's step went, in ms.
Json parts(double computing, double exposed, double waiting, double rest) {
  return {{"compute_ns", computing * 1e6}, {"exposed_ns", exposed * 1e6}, {"waiting_ns", waiting * 1e6}, {"rest_ns", rest * 1e6}};
}

TEST(StrongScaling, SpeedupAndEfficiencyAreOverOneDevice) {
  const std::vector<Json> rows = derived("strong-scaling", scaled({8, 5, 4}));
  EXPECT_DOUBLE_EQ(rows[0]["speedup"], 1);
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 1.6);
  EXPECT_DOUBLE_EQ(rows[1]["efficiency"], 0.8);
  EXPECT_DOUBLE_EQ(rows[2]["speedup"], 2);
  EXPECT_DOUBLE_EQ(rows[2]["efficiency"], 0.5);
}

TEST(StrongScaling, TheLostTimeIsAccountedForAndAddsUp) {
  std::vector<Json> rows = scaled({24, 17.5}, {1, 4});
  rows[0].update(parts(23.5, 0, 0, 0.5));
  rows[1].update(parts(15, 2, 0.25, 0.25));
  const Json row = derived("strong-scaling", rows)[1];
  EXPECT_DOUBLE_EQ(row["ideal_ns"], 6e6);
  EXPECT_DOUBLE_EQ(row["unshrunk_ns"], (15 - 23.5 / 4) * 1e6);
  EXPECT_DOUBLE_EQ(row["lost_exposed_ns"], 2e6);
  EXPECT_DOUBLE_EQ(row["lost_waiting_ns"], 0.25e6);
  EXPECT_NEAR(row["lost_rest_ns"].get<double>(), 0.125e6, 1);
  // 11.5 ms lost: 9.125, 2, 0.25, 0.125.
  EXPECT_TRUE(
      says(answer("strong-scaling", "hw1/2/Q3", rows),
           "On 4 devices a step takes 17.5 ms where 6.00 ms (24.0 ms / 4) would be ideal: 11.5 ms are lost, computing that did "
           "not shrink 9.12 ms (79 %), exposed communication 2.00 ms (17 %), waiting 250 µs (2 %), the rest 125 µs (1 %)."));
}

TEST(StrongScaling, ComputingThatShrankMoreThanIdeallyIsExplained) {
  std::vector<Json> rows = scaled({24, 17}, {1, 2});
  rows[0].update(parts(23, 0, 0, 1));
  rows[1].update(parts(8, 8, 0.5, 0.5));  // half of 23 is 11.5: 3.5 less
  EXPECT_TRUE(
      says(answer("strong-scaling", "hw1/2/Q3", rows),
           "5.00 ms are lost, computing, which shrank more than ideally (caches, or noise of the base run), -3.50 ms (-70 %)"));
  EXPECT_TRUE(silent_on(answer("strong-scaling", "hw1/2/Q3", rows), "did not shrink"));
}

TEST(StrongScaling, ASlowDownIsSaidBothWays) {
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", scaled({1, 5}, {1, 2})),
                   "No: 2 devices are 0.20 times as fast as 1 (a step takes 5.00 times as long), where 2 times would be linear"));
  EXPECT_TRUE(silent_on(answer("strong-scaling", "hw1/2/Q1", scaled({8, 5}, {1, 2})), "as long"));
}

TEST(StrongScaling, NothingIsLostWhereScalingIsLinear) {
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q3", scaled({8, 4, 2})), "Nothing is lost: On 4 devices"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", scaled({8, 4, 2})),
                   "Nearly: 4 devices are 4.00 times as fast as 1, where 4 times"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q2", scaled({8, 4, 2})), "Nowhere by more than 5 points"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", scaled({8, 3, 1})), "It is more than linear"));
}

TEST(StrongScaling, TheLargestDropIsNamed) {
  const std::string said = answer("strong-scaling", "hw1/2/Q2", scaled({8, 4.1, 4}));
  EXPECT_TRUE(says(said, "Most between 2 and 4 devices, by 47.6 points: from 1 to 2 devices it goes from 100.0 % to 97.6 %"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", scaled({8, 4.1, 4})), "No: 4 devices are 2.00 times as fast as 1"));
}

TEST(StrongScaling, NoiseThatReachesTheIdealIsNotCalledNo) {
  std::vector<Json> rows = scaled({8, 5}, {1, 2});
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", rows), "No: 2 devices"));
  rows[1]["time_low_ns"] = 3e6;
  EXPECT_TRUE(
      says(answer("strong-scaling", "hw1/2/Q1", rows), "It cannot be distinguished from linear scaling, the noise is too large ("));
  rows = scaled({8, 3.5}, {1, 2});
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", rows), "It is more than linear: 2 devices"));
  rows[1]["time_high_ns"] = 9e6;
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", rows), "It cannot be distinguished from linear scaling"));
}

TEST(StrongScaling, TheAmdahlFitIsTheOneTheTimesWereMadeWith) {
  const std::string said = answer("strong-scaling", "hw1/2/Q3", scaled({10, 5.5, 3.25}));  // s = 0.1
  EXPECT_TRUE(says(said, "through 3 points gives s = 10.0 %, a limit of 10.0 times; R² = 1.000, a good fit"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q3", scaled({10, 2, 9})), "a bad fit"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q3", scaled({8, 12, 16})),
                   "which is not between 0 and 100 %: 2 devices are slower than 1, so the model does not apply"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q3", scaled({8, 3, 1})),
                   "which is not between 0 and 100 %: 2 devices are more than 2 times as fast, so the model does not apply"));
}

/// The rows with times that are known only within this factor.
std::vector<Json> noisy(std::vector<Json> rows, double factor) {
  for (Json& row : rows) {
    row["time_low_ns"] = row["time_per_step_ns"].get<double>() / factor;
    row["time_high_ns"] = row["time_per_step_ns"].get<double>() * factor;
  }
  return rows;
}

TEST(StrongScaling, NothingIsCalledSlowerOrLostThatNoiseAloneMayBe) {
  const std::string slower = answer("strong-scaling", "hw1/2/Q3", noisy(scaled({8, 8.5}, {1, 2}), 3));
  EXPECT_TRUE(says(slower, "gives s = 112.5 %, which is not between 0 and 100 %: the noise is too large for this fit"));
  EXPECT_TRUE(silent_on(slower, "slower"));
  EXPECT_TRUE(says(slower, "4.50 ms are lost (noise may be as large), "));
  EXPECT_TRUE(silent_on(answer("strong-scaling", "hw1/2/Q3", scaled({8, 8.5}, {1, 2})), "noise"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q2", noisy(scaled({8, 8.5}, {1, 2}), 3)),
                   "Most between 1 and 2 devices, by 52.9 points, which noise alone may be: "));
  EXPECT_TRUE(
      says(answer("strong-scaling", "hw1/2/Q2", scaled({8, 8.5}, {1, 2})), "Most between 1 and 2 devices, by 52.9 points: "));
}

TEST(StrongScaling, DevicesAreCalledSlowerExactlyWhereTheTestSaysSo) {
  std::mt19937_64 generator(29);
  std::uniform_real_distribution<double> time(0.8, 1.6);
  std::uniform_real_distribution<double> factor(1.001, 1.5);
  for (int tries = 0; tries < 200; ++tries) {
    const std::vector<Json> rows = noisy(scaled({10, 10 * time(generator)}, {1, 2}), factor(generator));
    const std::string said = answer("strong-scaling", "hw1/2/Q3", rows);
    const bool slow = rows[1]["time_per_step_ns"] > rows[0]["time_per_step_ns"];
    EXPECT_EQ(said.find("2 devices are slower than 1") != std::string::npos, slow && differs(rows[0], rows[1])) << said;
    EXPECT_EQ(said.find("too large for this fit") != std::string::npos, slow && !differs(rows[0], rows[1])) << said;
  }
}

TEST(StrongScaling, OversubscribedRowsAreLeftOutOfTheFitAndNamed) {
  std::vector<Json> rows = scaled({10, 5.5, 9});
  rows[2]["oversubscribed"] = true;
  const std::string said = answer("strong-scaling", "hw1/2/Q3", rows);
  EXPECT_TRUE(says(said, "On 2 devices a step takes 5.50 ms"));
  EXPECT_TRUE(says(said, "through 2 points (those with a core per device) gives s = 10.0 %"));
  EXPECT_TRUE(says(said, "two points always fit"));
  EXPECT_TRUE(says(answer("strong-scaling", "hw1/2/Q1", rows), "Speedup is 1.11 on 4 (devices shared cores)"));
  EXPECT_TRUE(says(findings("strong-scaling", rows), "Rows with 4 devices are oversubscribed"));
}

TEST(StrongScaling, WithoutAPointOfOneDeviceNothingIsSaidOfOne) {
  const std::string all = findings("strong-scaling", scaled({8, 4}, {2, 4}));
  EXPECT_TRUE(says(all, "4 devices are 2.00 times as fast as 2, where 2 times would be linear"));
  EXPECT_TRUE(silent_on(all, "as fast as 1,"));
}

TEST(StrongScaling, SimulatedTimesAreMarked) {
  EXPECT_TRUE(says(headline("strong-scaling", simulated(scaled({8, 5, 4}))), "(simulated)"));
}

// comm-vs-compute

std::vector<Json> cases(double small_on_2, double large_on_2) {
  const auto row = [](double ms, std::int64_t devices, const char* name, double bytes, double flops) {
    return with(trained(ms, devices), {{"case", name}, {"batch", 64}, {"sent_bytes", bytes}, {"flops", flops}});
  };
  return {row(8, 1, "256x2", 0, 1e8), row(small_on_2, 2, "256x2", 1e6, 1e8), row(80, 1, "2048x4", 0, 1e9),
          row(large_on_2, 2, "2048x4", 1e7, 1e9)};
}

TEST(CommVsCompute, TheCaseThatScalesBetterIsNamedAndThePremiseJudged) {
  const std::string expected = answer("comm-vs-compute", "hw1/3/Q1", cases(7, 42));
  EXPECT_TRUE(says(expected, "In 2048x4: efficiency on 2 devices is 57.1 % for 256x2 and 95.2 % for 2048x4"));
  EXPECT_TRUE(says(expected, "as the sheet expects"));
  const std::string reversed = answer("comm-vs-compute", "hw1/3/Q1", cases(4.2, 70));
  EXPECT_TRUE(says(reversed, "In 256x2: efficiency on 2 devices is 95.2 % for 256x2 and 57.1 % for 2048x4"));
  EXPECT_TRUE(says(reversed, "this contradicts it"));
  EXPECT_TRUE(says(reversed, "nearly the same bytes per flop (0.0100 and 0.0100)"));
  const std::string neither = answer("comm-vs-compute", "hw1/3/Q1", cases(4.2, 42.001));
  EXPECT_TRUE(says(neither, "Neither, they are within 2 % of each other: efficiency"));
  EXPECT_TRUE(says(neither, "this does not show it"));
  EXPECT_TRUE(silent_on(neither, "contradicts"));
  std::vector<Json> three = cases(4.2, 42.001);
  for (Json row : cases(4.2, 42.001)) {
    if (row["case"] == "2048x4") {
      three.push_back(with(row, {{"case", "4096x4"}, {"flops", 2e9}, {"sent_bytes", row["devices"] == 1 ? 0 : 2e7}}));
    }
  }
  const std::string none = answer("comm-vs-compute", "hw1/3/Q1", three);
  EXPECT_TRUE(says(none, "None, they are within 2 % of each other: efficiency"));
  EXPECT_TRUE(says(none, "(0.0100, 0.0100 and 0.0100)"));
}

TEST(CommVsCompute, EfficienciesThatTheNoiseDoesNotTellApartAreNotRanked) {
  std::vector<Json> rows = cases(7, 42);  // 57.1 % and 95.2 %
  for (Json& row : rows) {
    row["time_low_ns"] = 0.7 * row["time_per_step_ns"].get<double>();
    row["time_high_ns"] = 1.4 * row["time_per_step_ns"].get<double>();
  }
  const std::string said = answer("comm-vs-compute", "hw1/3/Q1", rows);
  EXPECT_TRUE(
      says(said, "Neither, the difference is within the noise: efficiency on 2 devices is 57.1 % for 256x2 and 95.2 % for 2048x4"));
  EXPECT_TRUE(says(said, "the noise is too large to tell"));
  // The base of one case alone may be what is not known.
  std::vector<Json> base = cases(7, 42);
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q1", base), "In 2048x4: "));
  base[0]["instances"] = 1;
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q1", base), "Neither, the difference is within the noise"));
}

TEST(CommVsCompute, WhatIsSimulatedSaysSoOnce) {
  std::vector<Json> rows = simulated(cases(7, 42));
  for (Json& row : rows) {
    row["balanced_batch"] = 640.0;
  }
  const std::string said = answer("comm-vs-compute", "hw1/3/Q3", rows);
  EXPECT_TRUE(says(said, "below batch 640 (simulated). A larger batch"));
}

TEST(CommVsCompute, TheWhyIsAnsweredByTheRates) {
  // 50 Mflop in 5.6 ms and 500 Mflop in 33.6 ms per device: 8.93 and 14.88 GFLOP/s, 1.67 times; messages take an eighth of both.
  const auto said = [](double large_ms) { return answer("comm-vs-compute", "hw1/3/Q2", cases(7, large_ms)); };
  EXPECT_TRUE(says(said(42), "Because small products pay fixed costs and small messages pay latency. Per device 256x2 computes"));
  EXPECT_TRUE(
      says(said(42),
           "The large one computes at 1.67 and moves at 1.67 times the small one's rate; communication takes 0.12 times as long as "
           "computing, 0.12 times in the small case."));
  EXPECT_TRUE(says(said(140), "Because large products outgrow the caches and large messages outgrow the caches."));
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q2", simulated(cases(7, 140))), "large products are bound by bandwidth"));
  EXPECT_TRUE(says(said(70), "less work; here efficiencies are within 2 % of each other. Per device"));
  std::vector<Json> more = cases(7, 42);
  more[3]["sent_bytes"] = 3e7;
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q2", more), "small messages pay latency, and bytes per flop differ."));
}

TEST(CommVsCompute, NoCauseIsNamedThatTheNoiseHides) {
  const std::string none =
      "In general since fixed costs (launches, latencies) weigh more on less work; here the difference in efficiency is within "
      "the noise, so "
      "these numbers show no cause. Per device";
  std::vector<Json> once = cases(7, 42);
  for (Json& row : once) {
    row["instances"] = 1;
  }
  for (const std::vector<Json>& rows : {noisy(cases(7, 42), 2), once}) {
    const std::string said = answer("comm-vs-compute", "hw1/3/Q2", rows);
    EXPECT_TRUE(says(said, none));
    for (const char* cause : {"Because", "small products pay", "small messages pay"}) {
      EXPECT_TRUE(silent_on(said, cause));
    }
  }
}

TEST(CommVsCompute, ACauseIsNamedOnlyWhereTheFirstAnswerTellsTheCasesApart) {
  std::mt19937_64 generator(31);
  std::uniform_real_distribution<double> large(20, 200);
  std::uniform_real_distribution<double> factor(1.001, 3);
  for (int tries = 0; tries < 200; ++tries) {
    const std::vector<Json> rows = noisy(cases(7, large(generator)), factor(generator));
    const std::string which = answer("comm-vs-compute", "hw1/3/Q1", rows);
    const std::string why = answer("comm-vs-compute", "hw1/3/Q2", rows);
    EXPECT_NE(why.starts_with("Because"), why.starts_with("In general")) << why;
    for (const char* verdict : {"is within the noise", "within 2 % of each other"}) {
      EXPECT_EQ(which.find(verdict) != std::string::npos, why.find(verdict) != std::string::npos) << which << why;
    }
  }
}

TEST(CommVsCompute, TheSheetsCasesAreComparedWhereTheyWereRun) {
  std::vector<Json> rows = cases(7, 42);
  for (const Json& row : cases(7, 42)) {
    if (row["case"] == "256x2") {
      rows.push_back(with(row, {{"case", "1024x2"}, {"flops", 2e8}}));
    }
  }
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q2", rows), "Per device 1024x2 computes"));
  EXPECT_TRUE(silent_on(answer("comm-vs-compute", "hw1/3/Q2", rows), "256x2"));
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows), "for 1024x2 at"));
}

TEST(CommVsCompute, TheBottleneckIsWhereBothWouldTakeAsLong) {
  // 0.5e6 bytes in 0.7 ms and 50 Mflop in 5.6 ms per device: 0.714 GB/s, 8.929 GFLOP/s, 0.08 bytes per flop; batch 64 · 0.7 / 5.6.
  const std::string said = answer("comm-vs-compute", "hw1/3/Q3", cases(7, 42));
  EXPECT_TRUE(says(said,
                   "for 256x2 at 0.714 GB/s and 8.93 GFLOP/s per device above 0.0800 bytes per flop (it has 0.0100), below "
                   "batch 8 at these rates; for 2048x4 at"));
  EXPECT_TRUE(silent_on(said, "communication bounds all"));
  std::vector<Json> rows = cases(7, 42);
  for (Json& row : rows) {
    row["communication_ns"] = 2 * row["compute_ns"].get<double>();
  }
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows), "below batch 128 at these rates"));
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows), "At batch 64 communication bounds all cases"));
}

TEST(CommVsCompute, ABatchHasTheNoiseOfItsRatesOrIsNotGiven) {
  std::vector<Json> rows = cases(7, 42);
  for (Json& row : rows) {
    row["communication_ns"] = 2 * row["compute_ns"].get<double>();
  }
  // A factor of 1.2 with 95 % confidence of five instances: 4.604 / 2.776 times the logarithm with 99 %, 1.353.
  EXPECT_TRUE(
      says(answer("comm-vs-compute", "hw1/3/Q3", noisy(rows, 1.2)), "below batch 128 at these rates (95 to 173 with the noise)"));
  EXPECT_TRUE(silent_on(answer("comm-vs-compute", "hw1/3/Q3", rows), "with the noise"));
  const std::string none = answer("comm-vs-compute", "hw1/3/Q3", noisy(rows, 2));
  EXPECT_TRUE(says(none, "Step times may be off by more than a factor of two, too much for a batch."));
  EXPECT_TRUE(silent_on(none, "below batch"));
  for (Json& row : rows) {
    row["instances"] = 1;
  }
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows),
                   "One instance says nothing about the noise, so these rates give no batch."));
}

TEST(CommVsCompute, ALargeModelThatIsLessEfficientIsNotExplainedByFixedCostsOfTheSmall) {
  std::vector<Json> rows = simulated(cases(7, 140));  // the large one is the less efficient
  const double faster = rows[1]["compute_ns"].get<double>() * rows[3]["flops"].get<double>() / rows[1]["flops"].get<double>() / 2;
  rows[3]["compute_ns"] = faster;  // at twice the small one's rate
  rows[3]["communication_ns"] = rows[1]["communication_ns"].get<double>() * rows[3]["sent_bytes"].get<double>() /
                                rows[1]["sent_bytes"].get<double>();
  const std::string said = answer("comm-vs-compute", "hw1/3/Q2", rows);
  EXPECT_TRUE(says(said, "Because products gain more from their size than messages do"));
  EXPECT_TRUE(silent_on(said, "fixed costs"));
}

TEST(CommVsCompute, WhatComputingHidesReconcilesAnEfficiencyWithLongerCommunication) {
  std::vector<Json> rows = simulated(cases(7, 42));
  const auto said = [&] { return answer("comm-vs-compute", "hw1/3/Q2", rows); };
  EXPECT_TRUE(silent_on(said(), "exposed for"));
  const double more = 2 * rows[3]["communication_ns"].get<double>();  // the large case, which is the more efficient
  rows[3]["communication_ns"] = more;
  for (const std::size_t r : {1U, 3U}) {
    rows[r]["exposed_ns"] = (r == 1 ? 0.3 : 0.1) * rows[r]["time_per_step_ns"].get<double>();
    rows[r]["waiting_ns"] = 0;
  }
  EXPECT_TRUE(says(said(), "times in the small case, exposed for 10.0 % of the step against 30.0 %"));
  rows[1]["exposed_ns"] = 0;
  EXPECT_TRUE(says(said(), "times in the small case, but the large one's computing shrinks more"));
}

TEST(CommVsCompute, SimulatedBalancesAreAllSimulated) {
  std::vector<Json> rows = simulated(cases(7, 42));
  for (Json& row : rows) {
    row["communication_ns"] = 2 * row["compute_ns"].get<double>();
  }
  // As the simulator found it; of the other case it found none.
  rows[1].update(Json{{"balanced_batch", 777.0}, {"balanced_ns", 5e6}, {"balanced_gflops", 108.4}});
  const std::string said = answer("comm-vs-compute", "hw1/3/Q3", rows);
  EXPECT_TRUE(
      says(said,
           "at batch 64's rates below batch 128, but larger products compute faster, so the true balance is at batch 777 (5.00 ms "
           "each); for 2048x4"));
  EXPECT_TRUE(says(said, "at every batch tried"));
  rows[3]["communication_ns"] = 0.5 * rows[3]["compute_ns"].get<double>();
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows), "(it has 0.0100), below batch 32 at these rates"))
      << "computing outweighs it";
  rows[1].update(Json{{"balanced_batch", 129.0}});
  EXPECT_TRUE(says(answer("comm-vs-compute", "hw1/3/Q3", rows), "(it has 0.0100), below batch 129 (5.00 ms each); for 2048x4"));
}

TEST(CommVsCompute, TheBalanceOfASimulationIsOneAtTheRateThatIsNamed) {
  Settings settings{.machine = cluster::probe()};
  settings.cluster = "pcie-5";
  const auto measured = experiment_by_id("comm-vs-compute").open({{"case", "1024x2"}, {"batch", 64}, {"devices", 4}}, settings);
  measured->round(Nanoseconds(1));
  const Json record = measured->record().json();
  const double batch = record["balanced_batch"];
  EXPECT_NEAR(record["balanced_ns"].get<double>() / record["communication_ns"].get<double>(), 1, 0.03);
  const double work = record["flops"].get<double>() / 4 * batch / 64;
  EXPECT_NEAR(record["balanced_gflops"].get<double>() * record["balanced_ns"].get<double>() / work, 1,
              0.05);  // updates do not grow
}

Json message(double bytes, double ns, double overlapped = 0) {
  return {{"kind", "all_reduce"}, {"bytes", bytes}, {"time_ns", ns}, {"overlapped", overlapped}};
}

TEST(CommVsCompute, WhatAMessageCostsIsFittedToItsSizesEachCountedOnce) {
  std::vector<Json> rows = cases(7, 42);
  rows[1]["messages"] = {message(1000, 5250), message(1000000, 255000), message(1000000, 255000)};
  EXPECT_TRUE(silent_on(findings("comm-vs-compute", rows), "An all-reduce of S bytes")) << "two sizes fit any line";
  rows[3]["messages"] = {message(4000000, 1005000)};
  EXPECT_TRUE(says(findings("comm-vs-compute", rows),
                   "took 5.00 µs + S / 4.00 GB/s over 3 message sizes, R² = 1.000, a good fit; the worst is "
                   "off by 0.0 %"));
}

TEST(CommVsCompute, MessagesThatOverlappedComputingAreNotFitted) {
  std::vector<Json> rows = cases(7, 42);
  rows[1]["messages"] = {message(1000, 5250), message(1000000, 255000), message(2000000, 2000000, 0.5)};
  rows[3]["messages"] = {message(4000000, 1005000)};
  EXPECT_TRUE(says(findings("comm-vs-compute", rows), "over 3 message sizes, R² = 1.000, a good fit"));
}

TEST(CommVsCompute, NoLawIsClaimedWithALatencyBelowZeroOrALargeResidual) {
  std::vector<Json> rows = cases(7, 42);
  rows[1]["messages"] = {message(1e6, 100e3), message(2e6, 300e3)};
  rows[3]["messages"] = {message(3e6, 500e3)};
  EXPECT_TRUE(says(findings("comm-vs-compute", rows), "come out with a latency below zero"));
  EXPECT_TRUE(silent_on(findings("comm-vs-compute", rows), "An all-reduce of S bytes"));
  rows[1]["messages"] = {message(1e3, 10e3), message(1e6, 900e3)};
  rows[3]["messages"] = {message(3e6, 1000e3)};
  EXPECT_TRUE(says(findings("comm-vs-compute", rows), "be off by"));
}

// dp-vs-ddp

std::vector<Json> two_strategies(double dp_ms, double ddp_ms, std::int64_t through_0 = 90, std::int64_t devices = 2) {
  std::vector<Json> rows{with(trained(dp_ms, devices), {{"strategy", "dp"}, {"trained", {{"parameter_bytes", 2048}}}}),
                         with(trained(ddp_ms, devices), {{"strategy", "ddp"}})};
  for (Json& row : rows) {
    row["device_list"][0] = test::device(0.9, 0, 30 << 20, through_0 / 2, through_0 / 2);
    for (std::size_t d = 1; d < row["device_list"].size(); ++d) {
      row["device_list"][d] = test::device(0.5, 0, 10 << 20, 15, 15);
    }
    for (Json& device : row["device_list"]) {
      device["tasks"] = row["strategy"] == "dp" ? 11 : 9;
      device["exposed"] = 0.1;
      device["overlapped"] = row["strategy"] == "dp" ? 0.0 : 0.3;
    }
  }
  return rows;
}

TEST(DpVsDdp, TheTableComparesDeviceZeroWithTheOthers) {
  const Json row = derived("dp-vs-ddp", two_strategies(6, 4))[0];
  EXPECT_EQ(row["through_device_0"], 90);
  EXPECT_EQ(row["through_others"], 30);
  EXPECT_EQ(row["memory_device_0"], 30 << 20);
  EXPECT_EQ(row["memory_others"], 10 << 20);
  EXPECT_EQ(row["busy_device_0"], 0.9);
  EXPECT_EQ(row["busy_others"], 0.5);
}

TEST(DpVsDdp, TheBottleneckHasBytesMemoryAndBusyShares) {
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q1", two_strategies(6, 4, 90, 4));
  EXPECT_TRUE(says(said, "On 4 devices: 90 B pass through it, 30 B through others (3.00 times), 90 B under DDP;"));
  EXPECT_TRUE(says(said, "it holds 30.0 MiB, others 10.0 MiB. There it computes for 90.0 % of the step, the others for 50.0 %."));
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q1", two_strategies(6, 4, 30, 2)), "(equal: one sends, one receives)"));
  EXPECT_TRUE(says(said, "The std of step times is 2.0 % of the median, DDP's 2.0 %"));
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q1", simulated(two_strategies(6, 4))), "Simulated step times do not vary"));
}

TEST(DpVsDdp, BusySharesAreThoseOfDevicesWithACoreEach) {
  std::vector<Json> rows = two_strategies(6, 4, 90, 4);
  for (Json row : two_strategies(6, 4, 30, 2)) {
    row["device_list"][0]["busy"] = 0.6;
    rows.push_back(row);
  }
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q1", on_cores(2, rows));
  EXPECT_TRUE(says(said, "On 4 devices: 90 B pass through it"));
  EXPECT_TRUE(says(said, "On 2 devices it computes for 60.0 % of the step, the others for 50.0 %."));
}

TEST(DpVsDdp, BusySharesThatPointTheOtherWayAreRemarkedOn) {
  for (const double others : {0.2, 0.85, 0.89, 0.905, 0.95, 1.0}) {
    std::vector<Json> rows = two_strategies(6, 4, 90, 2);  // device 0 computes for 90 %
    rows[0]["device_list"][1]["busy"] = others;
    const std::string said = answer("dp-vs-ddp", "hw1/4/Q1", rows);
    EXPECT_EQ(said.find("though they have less to do, they took longer") != std::string::npos, others > 0.91) << said;
  }
  std::vector<Json> rows = two_strategies(6, 4, 30, 2);
  for (const Json& row : two_strategies(6, 4, 90, 4)) {
    rows.push_back(row);
  }
  rows[2]["device_list"][0]["busy"] = 0.2;  // dp on four devices: the others 50 %
  EXPECT_TRUE(
      says(answer("dp-vs-ddp", "hw1/4/Q1", on_cores(2, rows)),
           "On 2 devices it computes for 90.0 % of the step, the others for 50.0 %; on 4 (devices shared cores) for 20.0 % and "
           "50.0 %, because devices wait for cores."));
  rows[2]["device_list"][0]["busy"] = 0.6;
  EXPECT_TRUE(silent_on(answer("dp-vs-ddp", "hw1/4/Q1", on_cores(2, rows)), "wait for cores"));
}

TEST(DpVsDdp, EachReasonForDdpHasItsNumber) {
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q2", two_strategies(6, 4, 90, 4));
  EXPECT_TRUE(says(said, "each launches 9 tasks; DP's single Python process, under its global lock, launches all 44"));
  EXPECT_TRUE(says(said, "DP copies 2.00 KiB of parameters to 3 others"));
  EXPECT_TRUE(says(said, "sends and receives 45 B per device"));
  EXPECT_TRUE(says(said, "DDP computes during 75.0 % of its communication, DP during 0.0 %"));
  std::vector<Json> rows = two_strategies(6, 4, 90, 4);
  for (Json& device : rows[1]["device_list"]) {
    device["overlapped"] = 0.0;
  }
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q2", rows), "Overlap hides only 0.0 %, DP's 0.0 %."));
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q2", two_strategies(6, 4, 90, 2)), "parameters to the other every step"));
}

TEST(DpVsDdp, ADpThatCameOutFasterIsRemarkedOn) {
  const auto said = [](double dp, double ddp, std::int64_t cores, double factor = 1.001) {
    return answer("dp-vs-ddp", "hw1/4/Q2", on_cores(cores, noisy(two_strategies(dp, ddp, 90, 4), factor)));
  };
  EXPECT_TRUE(silent_on(said(6, 4, 2), "On 4 DP takes"));
  EXPECT_TRUE(says(said(4, 6, 2), "On 4 DP takes 0.67 times DDP's step: shared cores do all work, and DP updates once."));
  EXPECT_TRUE(says(said(4, 6, 4), "On 4 DP takes 0.67 times DDP's step: these four things weigh little here."));
  EXPECT_TRUE(says(said(4, 6, 2, 4), "On 4 DP takes 0.67 times DDP's step, within the noise."));
}

TEST(DpVsDdp, TheSpreadIsOfTheTimeThatTheTableShows) {
  std::vector<Json> rows = two_strategies(6, 4);
  rows[0].update(Json{{"std_ns", 0.6e6}, {"mean_ns", 9e6}});  // a tenth of the median, a fifteenth of the mean
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q1", rows), "The std of step times is 10.0 % of the median"));
}

TEST(DpVsDdp, AcceptableIsWhereItIsNotMuchSlowerAndOtherwiseFromWhichStepOn) {
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", two_strategies(4.2, 4)),
                   "on 2 devices it takes 1.05 times as long as DDP, which is acceptable"));
  EXPECT_TRUE(silent_on(answer("dp-vs-ddp", "hw1/4/Q3", two_strategies(4.2, 4)), "DP adds"));
  // 2 ms more than 4: a tenth of 20 ms, which are 4 ms and 16 more; computing takes 3.2 ms: 1 + 16 / 3.2 times as long.
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q3", two_strategies(6, 4));
  EXPECT_TRUE(says(said, "on 2 devices it takes 1.50 times as long as DDP"));
  EXPECT_TRUE(
      says(said,
           "DP adds 2.00 ms: 10 %, so acceptable, once a DDP step takes 20.0 ms (now 4.00 ms), with 6.00 times the arithmetic per "
           "parameter (convolutions)."));
  EXPECT_TRUE(silent_on(said, "within the noise"));
  EXPECT_TRUE(silent_on(said, "which is acceptable"));
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", two_strategies(4.02, 4)),
                   "1.00 times as long as DDP, within the noise (0.99 to 1.02 with 99 % confidence), which is acceptable"));
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", two_strategies(3, 4)), "0.75 times as long as DDP"));
}

TEST(DpVsDdp, AVerdictOnNoiseShowsTheIntervalItRestsOn) {
  // Medians that are far apart, of instances that scatter widely.
  std::vector<Json> rows = two_strategies(94, 42);
  const auto measured = [](Json& row, const std::vector<double>& ms) {
    row["instance_times_ns"] = Json::array();
    for (const double time : ms) {
      row["instance_times_ns"].push_back(time * 1e6);
    }
  };
  measured(rows[0], {40, 94, 99, 104});
  measured(rows[1], {41, 42, 42, 43});
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q3", rows);
  EXPECT_TRUE(says(said, "2.24 times as long as DDP, within the noise (0.5"));
  EXPECT_TRUE(says(said, "DP adds 52.0 ms, which may be noise: 10 %, so acceptable, once"));
  EXPECT_TRUE(says(said, " with 99 % confidence)"));
  EXPECT_TRUE(silent_on(said, "which is acceptable"));
}

TEST(DpVsDdp, TheAnswerIsShortHoweverNoisyBothNumbersOfDevicesAre) {
  std::vector<Json> rows = two_strategies(42, 41, 90, 2);
  for (const Json& row : two_strategies(94, 42, 99999, 4)) {
    rows.push_back(row);
  }
  const std::string said = answer("dp-vs-ddp", "hw1/4/Q3", on_cores(2, noisy(rows, 3)));
  EXPECT_TRUE(says(said, " with 99 % confidence), so unclear; on 4 devices 2.24 times, within the noise ("));
  std::istringstream words(said);
  EXPECT_LE(std::distance(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()), 90) << said;
}

TEST(DpVsDdp, WhereDpIsFasterThereIsNoExtraToMakeUpFor) {
  std::vector<Json> rows = two_strategies(4.1, 4, 90, 2);
  for (const Json& row : two_strategies(11.6, 19.6, 90, 4)) {
    rows.push_back(row);
  }
  for (const std::int64_t cores : {2, 4}) {
    const std::string said = answer("dp-vs-ddp", "hw1/4/Q3", on_cores(cores, rows));
    EXPECT_TRUE(says(said, "on 4 devices 0.59 times"));
    EXPECT_TRUE(silent_on(said, "DP adds"));
    EXPECT_TRUE(silent_on(said, "-")) << "no time or factor below zero";
  }
  // Devices with a core each tell what DP costs, also where those that share cores are far apart.
  rows = two_strategies(6, 4, 90, 2);
  for (const Json& row : two_strategies(30, 20, 90, 4)) {
    rows.push_back(row);
  }
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", on_cores(2, rows)), "DP adds 2.00 ms: 10 %, so acceptable, once"));
}

TEST(DpVsDdp, SimulatedStepsAreNotSaidToVary) {
  const std::vector<Json> rows = two_strategies(6, 4);
  EXPECT_TRUE(says(findings("dp-vs-ddp", rows), "Step times of ddp on 2 devices vary by 2.0 % of the median"));
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", simulated(rows)), "Step times of"));
}

TEST(DpVsDdp, ALongStepIsNeverCalledAcceptableBecauseOfNoise) {
  std::vector<Json> rows = two_strategies(94, 42);
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", rows), "it takes 2.24 times as long as DDP, which is not acceptable."));
  for (Json& row : rows) {
    row["instances"] = 1;  // says nothing of the noise
  }
  const std::string unsure = answer("dp-vs-ddp", "hw1/4/Q3", rows);
  EXPECT_TRUE(says(unsure, "2.24 times as long as DDP (one instance says nothing about the noise)"));
  EXPECT_TRUE(silent_on(unsure, "which is acceptable"));
}

TEST(DpVsDdp, TheExtraTimeGrowsWithTheBatchToo) {
  // 2 · 1 · 2 KiB of parameters and gradients for any batch; the rest of 8 KiB is 4 KiB of inputs and outputs.
  std::vector<Json> rows = two_strategies(6, 4, 8192);
  EXPECT_TRUE(
      says(answer("dp-vs-ddp", "hw1/4/Q3", rows), "Device 0 moves 4.00 KiB at any batch (DDP's 8.00 KiB) and 64 B per sample."));
  EXPECT_TRUE(silent_on(answer("dp-vs-ddp", "hw1/4/Q3", rows), "At batch"));
  rows = simulated(rows);
  rows[0].update(Json{{"larger_batch", 16384}, {"larger_batch_ns", 30e6}});
  rows[1].update(Json{{"larger_batch", 16384}, {"larger_batch_ns", 10e6}});
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", rows), "it takes 3.00 times as long: a larger batch does not help."));
  rows[0]["larger_batch_ns"] = 10.5e6;
  EXPECT_TRUE(says(answer("dp-vs-ddp", "hw1/4/Q3", rows), "1.05 times as long: a larger batch is enough."));
}

TEST(DpVsDdp, OutliersAreFlagged) {
  std::vector<Json> rows = two_strategies(6, 4);
  rows[1].update(Json{{"std_ns", 2e6}, {"max_ns", 40e6}, {"p5_ns", 3.9e6}, {"p95_ns", 4.2e6}});
  EXPECT_TRUE(says(findings("dp-vs-ddp", rows),
                   "Step times of ddp on 2 devices vary by 50.0 % of the median (3.90 ms to 4.20 ms from the 5th to the "
                   "95th percentile), because of outliers: the longest of 100 steps took 40.0 ms, 10.00 times"));
  rows[1]["max_ns"] = 4.5e6;
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", rows), "outliers"));
}

TEST(DpVsDdp, GrowthFromOneDeviceIsNotInfinite) {
  std::vector<Json> rows = two_strategies(6, 6, 0, 1);
  for (const Json& row : two_strategies(6, 4)) {
    rows.push_back(row);
  }
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", rows), "inf"));
}

// delay

std::vector<Json> delayed(const std::vector<double>& on_one, const std::vector<double>& on_two, std::int64_t devices = 2) {
  const std::vector<int> delays{0, 5, 10, 20};
  std::vector<Json> rows;
  for (std::size_t i = 0; i < on_one.size(); ++i) {
    rows.push_back(with(trained(on_one[i], 1), {{"model", "m"}, {"delay_ms", delays[i]}}));
    rows.push_back(with(trained(on_two[i], devices), {{"model", "m"}, {"delay_ms", delays[i]}}));
  }
  return rows;
}

TEST(Delay, SpeedupDegradesNonLinearlyByTheLaw) {
  const std::vector<Json> rows = delayed({20, 25, 30, 40}, {10, 15, 20, 30});
  // (20 + d) / (10 + d): 2, 1.67, 1.5, 1.33; -0.067 per ms at first, -0.017 at last.
  const std::string said = answer("delay", "hw1/5A/Q2", rows);
  EXPECT_TRUE(says(said,
                   "It degrades non-linearly. Step time is linear. With c = 20.0 ms on 1 and c_n = 10.0 "
                   "ms on 2 devices"));
  EXPECT_TRUE(says(said,
                   "2.00, 1.67, 1.50 and 1.33 for d = 0, 5, 10 and 20 ms (-0.067 per ms at first, -0.017 at last); "
                   "2.00, 1.67, 1.50 and 1.33 measured, equal."));
  const std::string scaling = answer("delay", "hw1/5A/Q1", rows);
  EXPECT_TRUE(says(scaling, "It takes the speedup away: from 0 to 20 ms the speedup of 2 devices over 1 goes from 2.00 to 1.33"));
  EXPECT_TRUE(says(scaling, "step time = 10.0 ms + 1.00 × delay (R² = 1.000, a good fit)"));
}

TEST(Delay, AmdahlIsConnectedByArithmetic) {
  // s0 = 36.7 % of c = 4.53 ms, as two devices at 3.096 ms give; then (s0 c + d) / (c + d).
  const std::vector<Json> rows = delayed({4.53, 9.53, 14.53, 24.53}, {3.09628, 8.09628, 13.09628, 23.09628});
  const std::string said = answer("delay", "hw1/5A/Q3", rows);
  EXPECT_TRUE(says(
      said,
      "s₀ = 36.7 % of c = 4.53 ms; adding d makes it s = (s₀c + d)/(c + d): 69.9 %, 80.3 % and 88.3 % for d = 5, 10 and 20 ms"));
  EXPECT_TRUE(says(said, "Fits give 69.9 %, 80.3 % and 88.3 %: equal."));
}

TEST(Delay, ASpeedupBelowOneThatRisesIsToldSo) {
  const std::vector<Json> rows = simulated(delayed({1, 6, 11, 21}, {10, 15, 20, 30}, 5));
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q1", rows), "It brings the speedup nearer to 1"));
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q1", rows), "goes from 0.10 to 0.70 (simulated)"));
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q2", rows), "It does not degrade here, it rises, non-linearly."));
}

TEST(Delay, AFractionAbove100PercentIsNotUsedAsAShare) {
  // c = 1 ms, of which 10 on five devices: s₀ = (10 - 0.2) / 0.8. The delay's own share is d / (1 + d).
  const std::vector<Json> rows = simulated(delayed({1, 6, 11, 21}, {10, 15, 20, 30}, 5));
  const std::string said = answer("delay", "hw1/5A/Q3", rows);
  EXPECT_TRUE(
      says(said,
           "Without the delay the serial fraction s₀ = 1225.0 % is outside 0 to 100 %: the formula does not apply (splitting "
           "costs more than it gains)."));
  EXPECT_TRUE(says(said,
                   "A delay d is serial: its share d/(c + d) with c = 1.00 ms, 83.3 %, 90.9 % and 95.2 % for d = 5 to 20 ms, "
                   "limits the speedup to 1.20, 1.10 and 1.05 times; 5 devices reach 0.40, 0.55 and 0.70 (simulated)."));
  EXPECT_TRUE(silent_on(said, "Fits give"));
  const std::string noise = answer("delay", "hw1/5A/Q3", noisy(delayed({20, 25, 30, 40}, {21, 26, 31, 41}), 2));
  EXPECT_TRUE(says(noise, "s₀ = 110.0 % is outside 0 to 100 %: the formula does not apply (times too noisy)"));
  EXPECT_TRUE(silent_on(noise, "costs more than it gains"));
}

TEST(Delay, NoShareIsOutsideOfZeroToAHundredPercentUnremarked) {
  std::mt19937_64 generator(37);
  std::uniform_real_distribution<double> step(2, 40);
  for (int tries = 0; tries < 200; ++tries) {
    std::vector<double> one{step(generator)};
    std::vector<double> two{step(generator)};
    for (const double delay : {5, 10, 20}) {
      one.push_back(one[0] + delay * (0.9 + 0.2 * (tries % 2)));
      two.push_back(two[0] + delay);
    }
    const std::string said = answer("delay", "hw1/5A/Q3", delayed(one, two));
    const double serial = 2 * two[0] / one[0] - 1;
    EXPECT_EQ(said.find(": the formula does not apply (") != std::string::npos, serial <= -0.001 || serial >= 1) << said;
    EXPECT_EQ(said.find("adding d makes it") != std::string::npos, serial > -0.001 && serial < 1) << said;
  }
}

TEST(Delay, LargeNoiseShowsNoEffect) {
  std::vector<Json> rows = delayed({20, 26, 29, 41}, {19, 25, 31, 38});
  for (Json& row : rows) {
    row["time_low_ns"] = 0.5 * row["time_per_step_ns"].get<double>();
    row["time_high_ns"] = 2 * row["time_per_step_ns"].get<double>();
  }
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q1", rows), "By the formula it brings the speedup nearer to 1, but noise hides it"));
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q2", rows), "by the formula, but noise hides it"));
  // s₀ = 90 % of 20 ms: (18 + 20) / 40 is 95.0 % with 20 ms; 38 of 41 ms on two give 85.4 %.
  EXPECT_TRUE(says(answer("delay", "hw1/5A/Q3", rows), "points apart, since steps did not grow by exactly d"));
}

TEST(Delay, ASlopeOtherThanOneIsExplained) {
  const auto said = [](std::vector<double> two, double factor = 1.001) {
    return answer("delay", "hw1/5A/Q1", noisy(delayed({20, 25, 30, 40}, std::move(two)), factor));
  };
  EXPECT_TRUE(says(said({10, 15, 20, 30}), "More devices do not shorten it: step time = 10.0 ms + 1.00 × delay"));
  EXPECT_TRUE(says(said({10, 13.5, 17, 24}),
                   "More devices do not shorten it; step time = 10.0 ms + 0.70 × delay (R² = 1.000, a good fit): the rest of the "
                   "step became shorter, by other programs."));
  EXPECT_TRUE(says(said({10, 16.5, 23, 36}), "1.30 × delay (R² = 1.000, a good fit): the rest of the step became longer"));
  EXPECT_TRUE(says(said({10, 13.5, 17, 24}, 2), "became shorter, by noise or other programs."));
}

TEST(Delay, TheDistanceFromTheFormulaHasAVerdict) {
  const auto said = [](double last, double factor) {
    return answer("delay", "hw1/5A/Q2", noisy(delayed({20, 25, 30, 40}, {10, 15, 20, last}), factor));
  };
  EXPECT_TRUE(says(said(30, 1.001), "measured, equal."));
  EXPECT_TRUE(says(said(30.9, 1.001), "measured, at most 2.9 % apart, so the formula holds."));
  EXPECT_TRUE(says(said(40, 1.001), "measured, at most 25.0 % apart, beyond the noise."));
  EXPECT_TRUE(says(said(40, 2), "measured, at most 25.0 % apart, within the noise."));
}

TEST(Delay, TheHeadlineIsOfDevicesWithACoreEach) {
  std::vector<Json> rows = delayed({20, 25, 30, 40}, {10, 15, 20, 30});
  for (const Json& row : delayed({20, 25, 30, 40}, {30, 35, 40, 50}, 4)) {
    if (row["devices"] == 4) {
      rows.push_back(row);
    }
  }
  EXPECT_TRUE(says(headline("delay", rows), "the speedup of 4 devices"));
  EXPECT_TRUE(says(headline("delay", on_cores(2, rows)), "the speedup of 2 devices"));
  EXPECT_TRUE(says(headline("delay", on_cores(1, rows)), "(devices shared cores)"));
}

// batch-scaling

std::vector<Json> batches(const std::vector<double>& alone_ms, const std::vector<double>& wide_ms) {
  const std::vector<int> sizes{32, 64, 128, 256};
  std::vector<Json> rows;
  for (const std::int64_t devices : {1, 4}) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const double ms = devices == 1 ? alone_ms[i] : wide_ms[i];
      rows.push_back(with(trained(ms, devices), {{"model", "m"}, {"batch", sizes[i]}, {"samples_per_s", sizes[i] * 1e3 / ms}}));
    }
  }
  return rows;
}

TEST(BatchScaling, SaturationIsWithinFivePercentOfTheLimit) {
  // 1 ms + 0.1 ms per sample: a limit of 10000 samples/s, 95 % at 19 · 1 / 0.1 = 190, so at 256 of those measured.
  const std::string said = answer("batch-scaling", "hw1/5B/Q2", batches({8, 16, 32, 64}, {4.2, 7.4, 13.8, 26.6}));
  EXPECT_TRUE(says(said, "On 4 devices at batch 256: step time = 1.00 ms + 100 µs per sample"));
  EXPECT_TRUE(says(said, ". A step takes a + b·batch: throughput nears 1/b, and is within 5 % of it from batch 19a/b."));
  EXPECT_TRUE(says(said, "a limit of 10000 samples/s"));
  EXPECT_TRUE(says(said, "on 1 device at batch 32: "));
}

TEST(BatchScaling, ALimitBeyondTheTableIsSaidToBe) {
  // 3 ms + 10 µs per sample: 95 % at 19 · 300 = 5700; 256 reaches 256 / 5.56 ms = 46043 of 100000.
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q2", batches({1.2, 2.4, 4.8, 9.6}, {3.32, 3.64, 4.28, 5.56})),
                   "On 4 devices beyond this table, at about batch 5700: step time = 3.00 ms + 10.0 µs "
                   "per sample (R² = 1.000, a good fit) "
                   "gives a limit of 100000 samples/s, of which batch 256 reaches 46.0 %"));
}

TEST(BatchScaling, ALineThatIsDrawnOutFarIsCalledAnExtrapolation) {
  // 1 ms + 80 ns per sample: 95 % of the limit at 19 · 12500 = 237500.
  const std::string said = answer("batch-scaling", "hw1/5B/Q2",
                                  batches({0.01, 0.02, 0.04, 0.08}, {1.00256, 1.00512, 1.01024, 1.02048}));
  EXPECT_TRUE(
      says(said,
           "On 4 devices far beyond this table, at about batch 240000 (an extrapolation): step time = 1.00 ms + 80 ns per sample "
           "(R² = 1.000, a good fit) gives a limit of 12.5 million samples/s, of which batch 256 reaches 2.0 %"));
}

TEST(BatchScaling, NoLimitIsFittedWhereTheSlopeIsNotSettled) {
  // From batch 128 to 256 the step grows by 10 µs, where the line through all says 1.4 µs per sample.
  const std::string rising = answer("batch-scaling", "hw1/5B/Q2", batches({8, 16, 32, 64}, {3, 3.1, 3.3, 3.31}));
  EXPECT_TRUE(says(rising,
                   "On 4 devices not up to batch 256: from 128 on throughput still rises by 99.4 %, to 77341 samples/s, and step "
                   "times are too uneven (R² = 0."));
  EXPECT_TRUE(says(rising, "A step takes a + b·batch"));
  EXPECT_TRUE(silent_on(rising, "On 4 devices at"));
  // A line that is settled, but of more than four times the limit of one device.
  const std::string beyond = answer("batch-scaling", "hw1/5B/Q2", batches({4.2, 7.4, 13.8, 26.6}, {1.32, 1.64, 2.28, 3.56}));
  EXPECT_TRUE(says(beyond, "On 4 devices not up to batch 256"));
  EXPECT_TRUE(says(beyond, "and the line through all batches does not give a limit yet"));
  EXPECT_TRUE(says(beyond, "on 1 device at batch 256: step time"));
}

TEST(BatchScaling, APlateauIsALimitWithoutALine) {
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q2", batches({8, 16, 32, 64}, {8, 8, 20, 32})),
                   "On 4 devices at batch 64: no straight line fits the step times yet, so the highest throughput, 8000 samples/s, "
                   "is taken as the limit"));
}

TEST(BatchScaling, HowUnsureTheTimesAreIsSaidIfItIsMuch) {
  const std::vector<Json> rows = batches({8, 16, 32, 64}, {4.2, 7.4, 13.8, 26.6});
  EXPECT_TRUE(silent_on(answer("batch-scaling", "hw1/5B/Q2", rows), "unsure"));
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q2", noisy(rows, 1.2)), " Times may be off by 35.3 %."));
  std::vector<Json> once = rows;
  once[0]["instances"] = 1;
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q2", once), " One instance says nothing about the noise."));
}

TEST(BatchScaling, ASimulationFindsTheLimitByLargerBatches) {
  std::vector<Json> rows = simulated(batches({8, 16, 32, 64}, {3.32, 3.64, 4.28, 5.56}));
  for (Json& row : rows) {
    row.update(
        Json{{"limit_samples_per_s", row["devices"] == 1 ? 4000.0 : 60000.0}, {"limit_batch", 65536}, {"saturated_batch", 3000}});
  }
  const std::string said = answer("batch-scaling", "hw1/5B/Q2", rows);
  EXPECT_TRUE(
      says(said,
           "Throughput is within 5 % of its limit (60000 samples/s, reached at batch 65536) from about batch 3000 on 4 devices; "
           "batch 256 has 76.7 % of it"));
  EXPECT_TRUE(says(said, "It is within 5 % of its limit (4000 samples/s, reached at batch 65536) from batch 32 on 1 device"));
  for (Json& row : rows) {
    row["limit_batch"] = 16;
  }
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q2", rows), "its limit (4000 samples/s, reached at batch 16)"));
}

TEST(BatchScaling, TheSimulatedLimitIsWhatLargerBatchesReach) {
  Settings settings{.machine = cluster::probe()};
  settings.cluster = "pcie-5";
  const auto rate = [&](std::int64_t batch) {
    const auto run = experiment_by_id("batch-scaling")
                         .open({{"model", "mlp:dim=1024,depth=2"}, {"devices", 4}, {"batch", batch}}, settings);
    run->round(Nanoseconds(1));
    return run->record().json();
  };
  const Json record = rate(64);
  ASSERT_TRUE(record.contains("limit_samples_per_s"));
  const double limit = record["limit_samples_per_s"];
  EXPECT_NEAR(rate(record["limit_batch"])["samples_per_s"].get<double>() / limit, 1, 1e-3);
  const std::int64_t batch = record["saturated_batch"];
  EXPECT_GE(rate(batch)["samples_per_s"].get<double>(), 0.949 * limit);
  EXPECT_LT(rate(batch / 8 * 7)["samples_per_s"].get<double>(), 0.95 * limit);
}

TEST(BatchScaling, LargerBatchesScaleBetterOnlyWhereEfficiencyRises) {
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q1", batches({8, 16, 32, 64}, {4, 5, 9, 17})), "Yes: from batch 32 to 256"));
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q1", batches({8, 16, 32, 64}, {4, 8, 16, 32})), "Hardly: from batch 32 to 256"));
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q1", batches({8, 16, 32, 64}, {4, 8, 16, 64})), "No: from batch 32 to 256"));
  EXPECT_TRUE(says(answer("batch-scaling", "hw1/5B/Q1", noisy(batches({8, 16, 32, 64}, {4, 5, 9, 17}), 4)),
                   "Not beyond the noise: from batch 32 to 256"));
}

TEST(BatchScaling, GustafsonsNumbersBelongTogether) {
  // Batch 64 on one against 256 on four: 64 / 4.41 ms and 256 / 11.18 ms are 1.58 times, and (4 - 1.58) / 3 is 80.7 %.
  const std::string said = answer("batch-scaling", "hw1/5B/Q1", batches({2.37, 4.41, 8.94, 17.6}, {8, 9, 10, 11.176}));
  EXPECT_TRUE(says(said, "4 devices at batch 256 process 1.58 times the samples of one at 64: S = n − s(n−1) gives s = 80.7 %"));
  EXPECT_TRUE(
      says(answer("batch-scaling", "hw1/5B/Q1", batches({8, 16, 32, 64}, {32, 40, 64, 128})), "so the model does not apply"));
}

TEST(BatchScaling, TheHeadlineIsMarkedWhereDevicesSharedCores) {
  const std::vector<Json> rows = batches({8, 16, 32, 64}, {4, 5, 9, 17});
  EXPECT_TRUE(says(headline("batch-scaling", on_cores(2, rows)), "samples/s (devices shared cores)."));
  EXPECT_TRUE(silent_on(headline("batch-scaling", rows), "shared"));
}

// imbalance

/// Two rows on as many devices as there are waits (shares of the uneven step): without and with a delay of 20 ms. Device 0 holds
/// the others up for so long, and each other device for a little.
std::vector<Json> uneven(double even_ms, double uneven_ms, const std::vector<double>& waits, double held_up_ms = 20) {
  const auto devices = static_cast<std::int64_t>(waits.size());
  Json list = Json::array();
  Json arrivals = Json::array();
  for (std::size_t d = 0; d < waits.size(); ++d) {
    list.push_back(test::device(0.1, waits[d]));
    arrivals.push_back({{"device", "cpu:" + std::to_string(d)},
                        {"last", 1.0 / static_cast<double>(devices)},  // after the first all-reduce all come together
                        {"held_up_ns", d == 0 ? held_up_ms * 1e6 : 1e4},
                        {"phase", "backward"},
                        {"excess_ns", d == 0 ? held_up_ms * 1e6 : 0}});
  }
  return {with(trained(even_ms, devices), {{"delay_ms", 0}}),
          with(trained(uneven_ms, devices), {{"delay_ms", 20}, {"device_list", list}, {"arrivals", arrivals}})};
}

TEST(Imbalance, DeviceZeroIsNamedOnAnyNumberOfDevicesHoweverOftenItComesLast) {
  for (const std::size_t devices : {2U, 4U, 5U}) {
    std::vector<double> waits(devices, 0.8);
    waits[0] = 0.001;
    for (const bool virtual_time : {false, true}) {
      const std::vector<Json> rows = virtual_time ? simulated(uneven(5, 25, waits)) : uneven(5, 25, waits);
      const std::string said = answer("imbalance", "hw1/5C/Q2", rows);
      EXPECT_TRUE(says(said, "All wait for device 0, for 20.0 ms per step (80.0 % of it).")) << devices;
      EXPECT_TRUE(says(said, "25.0 µs on device 0")) << devices;
      EXPECT_TRUE(silent_on(said, "still compute")) << "they wait as long as they are held up";
    }
  }
}

TEST(Imbalance, DeviceZeroIsNotNamedWhereItDoesNotHoldTheOthersUp) {
  EXPECT_TRUE(says(answer("imbalance", "hw1/5C/Q2", uneven(5, 10, {0.3, 0.4, 0.35}, 0.01)), "no device stands out"));
  std::vector<Json> rows = uneven(5, 25, {0.8, 0.0});
  std::swap(rows[1]["arrivals"][0]["held_up_ns"], rows[1]["arrivals"][1]["held_up_ns"]);
  EXPECT_TRUE(says(answer("imbalance", "hw1/5C/Q2", rows), "wait for cpu:1 and not for device 0"));
}

TEST(Imbalance, WhatTheOthersComputeWhileTheyAreHeldUpIsNoWaiting) {
  const std::string said = answer("imbalance", "hw1/5C/Q2", uneven(5, 50, {0, 0.32}, 30));  // 16 ms of 30
  EXPECT_TRUE(says(said,
                   "All wait for device 0, for 16.0 ms per step (32.0 % of it), less than the delay of 20 ms because they still "
                   "compute in part of it."));
  EXPECT_TRUE(says(said, "Waiting per step: 0 ns on device 0 and 16.0 ms on device 1."));
  EXPECT_TRUE(silent_on(said, "30.0 ms")) << "one lateness has one figure";
  EXPECT_TRUE(
      says(answer("imbalance", "hw1/5C/Q2", uneven(5, 25, {0, 0.8, 0.6, 0.7})), "for 15.0 ms to 20.0 ms per step (80.0 % of it)."));
}

TEST(Imbalance, FewStepsAreEnoughToSeeWhatWasPutOnDeviceZero) {
  for (const std::int64_t steps : {1, 2, 5, 100}) {
    for (const bool first : {true, false}) {
      std::vector<Json> rows = uneven(5, 25, {0.001, 0.8});
      for (Json& one : rows[1]["arrivals"]) {
        one["steps"] = steps;
        one["latest_in"] = (one["device"] == "cpu:0") == first ? steps : 0;
      }
      if (!first) {
        std::swap(rows[1]["arrivals"][0]["held_up_ns"], rows[1]["arrivals"][1]["held_up_ns"]);
      }
      const std::string said = answer("imbalance", "hw1/5C/Q2", rows);
      EXPECT_TRUE(says(said, first          ? "All wait for device 0, for 20.0 ms per step"
                             : steps == 100 ? "Here the others wait for cpu:1 and not for device 0."
                                            : "Here the others waited longest for cpu:1, but"));
      EXPECT_TRUE(silent_on(said, "no device stands out"));
    }
  }
}

TEST(Imbalance, TheStepGrowsByTheDelayOrByWhatTheTimesSay) {
  const auto said = [](double even, double slow) { return answer("imbalance", "hw1/5C/Q1", uneven(even, slow, {0, 0.8})); };
  EXPECT_TRUE(says(said(5, 25),
                   "It grows by the delay of the slowest device: on 2 devices from 5.00 ms to 25.0 ms, by 100.0 % of the 20 ms"));
  EXPECT_TRUE(says(said(5, 10), "It grows by less than the delay: "));
  EXPECT_TRUE(says(said(5, 30), "by the delay and more"));
  EXPECT_TRUE(says(said(100, 118.5), "It grows by the delay, within the noise"));
}

TEST(Imbalance, AStepThatTheNoiseHidesIsNotSaidToGrow) {
  const auto said = [](double even, double slow, double factor) {
    return answer("imbalance", "hw1/5C/Q1", noisy(uneven(even, slow, {0, 0.8}), factor));
  };
  EXPECT_TRUE(
      says(said(58.2, 54.5, 1.5),
           "It should grow by the delay of the slowest device, but the noise hides it: on 2 devices from 58.2 ms to 54.5 ms, by "
           "-18.5 % of the 20 ms"));
  std::mt19937_64 generator(59);
  std::uniform_real_distribution<double> time(20, 80);
  std::uniform_real_distribution<double> factor(1.001, 1.6);
  for (int tries = 0; tries < 200; ++tries) {
    const double even = time(generator);
    const double slow = time(generator);
    const std::string text = said(even, slow, factor(generator));
    EXPECT_FALSE(text.starts_with("It grows") && slow <= even) << text;
    EXPECT_FALSE(text.starts_with("It does not grow") && slow > even) << text;
  }
}

TEST(Imbalance, OneDeviceWaitsForNobody) {
  EXPECT_TRUE(says(answer("imbalance", "hw1/5C/Q2", uneven(5, 25, {0})), "one device waits for nobody"));
}

TEST(Imbalance, TheHeadlineIsOfSeveralDevices) {
  std::vector<Json> rows = uneven(5, 25, {0});
  for (const std::vector<double>& waits : {std::vector<double>{0, 0.8}, std::vector<double>{0, 0.8, 0.8, 0.8}}) {
    for (const Json& row : uneven(5, 25, waits)) {
      rows.push_back(row);
    }
  }
  EXPECT_TRUE(says(headline("imbalance", rows), "on 4 devices from"));
  EXPECT_TRUE(says(headline("imbalance", on_cores(2, rows)), "on 2 devices from"));
  EXPECT_TRUE(says(headline("imbalance", on_cores(1, rows)), "(devices shared cores)"));
}

TEST(Imbalance, TheTableHasWhatEachWaits) {
  const Json row = derived("imbalance", uneven(5, 20, {0.1, 0.5, 0.4}))[1];
  EXPECT_DOUBLE_EQ(row["waiting_device_0_ns"], 2e6);
  EXPECT_DOUBLE_EQ(row["waiting_others_ns"], 10e6);
  EXPECT_EQ(row["label"], "3 dev., 20 ms");
}

TEST(Imbalance, WithoutADelayThereIsNoAnswer) {
  std::vector<Json> rows = uneven(5, 6, {0.1, 0.1});
  rows[1]["delay_ms"] = 0;
  EXPECT_EQ(answer("imbalance", "hw1/5C/Q1", rows), "");
}

// accumulate

std::vector<Json> in_micro_batches(double ms_in_32, std::int64_t peak_in_32, const std::vector<double>& losses_in_32) {
  return {with(trained(4), {{"micro_batches", 1}, {"precision", "fp32"}, {"peak_bytes", 8 << 20}, {"losses", {1.0, 0.5}}}),
          with(trained(ms_in_32),
               {{"micro_batches", 32}, {"precision", "fp32"}, {"peak_bytes", peak_in_32}, {"losses", losses_in_32}})};
}

TEST(Accumulate, TimeAndMemoryAreThoseOfTheRows) {
  EXPECT_TRUE(says(findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.5})),
                   "into 32 micro-batches instead of 1 takes 6.00 ms instead of 4.00 ms per step (1.50 times) and needs "
                   "4.00 MiB instead of 8.00 MiB"));
}

TEST(Accumulate, StabilityIsReadOffTheLosses) {
  const auto stability = [](const std::vector<double>& losses) {
    return derived("accumulate", in_micro_batches(6, 4 << 20, losses))[1]["stability"].get<std::string>();
  };
  EXPECT_EQ(stability({1.0, 0.5}), "falls");
  EXPECT_EQ(stability({1.0, 0.5, 0.75}), "rises by up to 0.25");
  EXPECT_EQ(stability({1.0, std::numeric_limits<double>::infinity()}), "diverges");
  EXPECT_EQ(stability({1.0, std::nan("")}), "diverges");
}

TEST(Accumulate, LossesThatDriftApartAreNotSaidToAgree) {
  EXPECT_TRUE(says(findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.5000001})), "The losses agree to 2e-07"));
  EXPECT_TRUE(says(findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.9})), "The losses differ by 0.8 relative"));
  EXPECT_TRUE(silent_on(findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.9})), "not what is learnt"));
}

/// The fp32 rows above and two of mixed precision.
std::vector<Json> in_both_precisions(std::int64_t mixed_peak, bool emulated, double mixed_loss_in_32) {
  std::vector<Json> rows = in_micro_batches(6, 4 << 20, {1.0, 0.5});
  for (Json& row : rows) {
    row.update({{"buffer_bytes", 7 << 20}, {"emulated", false}});
  }
  for (std::size_t i = 0; i < 2; ++i) {
    rows.push_back(with(rows[i], {{"precision", "mixed"},
                                  {"peak_bytes", mixed_peak},
                                  {"buffer_bytes", 5 << 20},
                                  {"emulated", emulated},
                                  {"time_per_step_ns", 12e6},
                                  {"losses", {1.0, i == 0 ? 0.5 : mixed_loss_in_32}}}));
  }
  return rows;
}

TEST(Accumulate, EachPrecisionIsComparedWithItself) {
  const std::string all = findings("accumulate", in_both_precisions(5 << 20, true, 0.5002));
  EXPECT_TRUE(says(all, "Splitting the batch into 32 micro-batches instead of 1 takes 6.00 ms instead of 4.00 ms"));
  EXPECT_TRUE(
      says(all, "In mixed precision, splitting the batch into 32 micro-batches instead of 1 takes 12.0 ms instead of 12.0 ms"));
  EXPECT_TRUE(says(all, "The losses agree to 0 relative after ten steps: accumulation changes the order of sums, not"));
  EXPECT_TRUE(
      says(all, "The losses agree to 0.0004 relative after ten steps there: accumulation changes the order of sums and how often"));
  EXPECT_TRUE(says(findings("accumulate", in_both_precisions(5 << 20, true, 0.6)),
                   "The losses differ by 0.2 relative after ten steps there"));
}

TEST(Accumulate, MixedPrecisionIsHeldAgainstFp32TheWayItTurnedOut) {
  const std::string less = findings("accumulate", in_both_precisions(5 << 20, true, 0.5));
  EXPECT_TRUE(says(
      less, "Mixed precision, in 1 micro-batch: 5.00 MiB instead of 8.00 MiB at the peak, since activations have half the bytes"));
  EXPECT_TRUE(says(less, "It is emulated here, which takes 3.00 times as long"));
  EXPECT_TRUE(says(less, "its buffers by themselves take 5.00 MiB instead of 7.00 MiB"));
  const std::string more = findings("accumulate", in_both_precisions(9 << 20, false, 0.5));
  EXPECT_TRUE(says(more, "9.00 MiB instead of 8.00 MiB at the peak: activations have half the bytes, but there is a 16-bit copy"));
  EXPECT_TRUE(says(more, "A step takes 12.0 ms instead of 4.00 ms."));
  EXPECT_TRUE(silent_on(more, "emulated"));
}

TEST(Accumulate, LossesThatAreWrittenAlikeAreSaidToBeTheSame) {
  EXPECT_TRUE(says(findings("accumulate", in_both_precisions(5 << 20, true, 0.5)), "the loss after ten steps is 0.5 in both"));
  std::vector<Json> rows = in_both_precisions(5 << 20, true, 0.5);
  rows[2]["losses"] = {1.0, 0.6};
  EXPECT_TRUE(says(findings("accumulate", rows), "the loss after ten steps is 0.6 instead of 0.5"));
}

TEST(Accumulate, MoreMemoryIsNotExplainedAsASaving) {
  const std::string less = findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.5}));
  const std::string more = findings("accumulate", in_micro_batches(6, 16 << 20, {1.0, 0.5}));
  EXPECT_TRUE(says(less, "since activations live for one micro-batch only."));
  EXPECT_TRUE(says(more, "gradients must now be kept and added up, which costs more"));
  EXPECT_TRUE(silent_on(more, "since activations"));
}

TEST(CommVsCompute, TheLargestMessageOfARowHasItsSizeAndRate) {
  const Json messages{{{"bytes", 1000}, {"time_ns", 10}}, {{"bytes", 4000}, {"time_ns", 1000}}};
  const std::vector<Json> rows = test::derived("comm-vs-compute",
                                               {test::with(test::trained(4, 1), {{"case", "8x2"}}),
                                                test::with(test::trained(4, 2), {{"case", "8x2"}, {"messages", messages}})});
  EXPECT_FALSE(rows[0].contains("message_bytes")) << "one device sends nothing";
  EXPECT_EQ(rows[1]["message_bytes"], 4000);
  EXPECT_DOUBLE_EQ(rows[1]["message_gbytes"], 4);
}

}  // namespace
}  // namespace baton::lab
