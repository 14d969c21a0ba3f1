/// Part A: every claim is made from numbers that support it, and not from numbers that do not.

#include <cmath>
#include <limits>

#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::derived;
using test::findings;
using test::headline;
using test::on_cores;
using test::says;
using test::silent_on;
using test::trained;
using test::with;

// timing

std::vector<Json> three_runs(double first_step_ms, const std::vector<double>& same, const std::vector<double>& other) {
  std::vector<double> steps(30, 2e6);
  steps[0] = first_step_ms * 1e6;
  const Json row = with(trained(2), {{"first_step_times_ns", steps}, {"losses", {1.0, 0.5}}});
  return {with(row, {{"run", "first"}}), with(row, {{"run", "same seed"}, {"losses", same}}),
          with(row, {{"run", "other seed"}, {"losses", other}})};
}

TEST(Timing, ASlowFirstStepIsWhyOneWarmsUp) {
  const std::string all = findings("timing", three_runs(10, {1.0, 0.5}, {1.1, 0.6}));
  EXPECT_TRUE(says(all, "the very first step took 10.0 ms, 5.00 times the median of 2.00 ms"));
  EXPECT_TRUE(says(all, "caches cold"));
  EXPECT_TRUE(says(all, "+13.3 %"));  // (10 + 29 · 2) / 30 over 2
}

TEST(Timing, AFirstStepLikeTheOthersIsSaidToBeNoSlower) {
  const std::string all = findings("timing", three_runs(2, {1.0, 0.5}, {1.1, 0.6}));
  EXPECT_TRUE(says(all, "no slower"));
  EXPECT_TRUE(silent_on(all, "caches cold"));
  EXPECT_TRUE(says(all, "+0.0 %"));
}

TEST(Timing, SeedsAreJudgedByTheBitsOfTheLosses) {
  const std::string good = findings("timing", three_runs(2, {1.0, 0.5}, {1.1, 0.6}));
  EXPECT_TRUE(says(good, "two runs with seed 0 gave the same losses to the bit over 2 steps; seed 1 gave others"));
  EXPECT_TRUE(silent_on(good, "fault"));
  const double next = std::nextafter(0.5, 1.0);
  EXPECT_TRUE(says(findings("timing", three_runs(2, {1.0, next}, {1.1, 0.6})), "different losses, which is a fault"));
  EXPECT_TRUE(says(findings("timing", three_runs(2, {1.0, 0.5}, {1.0, 0.5})), "the same losses, which is a fault"));
}

TEST(Timing, TheTableHasTheLastLoss) { EXPECT_EQ(derived("timing", three_runs(2, {1.0, 0.5}, {1.1, 0.6}))[2]["loss_last"], 0.6); }

TEST(Timing, RunsOfOneSeedShowOneLossHoweverManyStepsEachHadTimeFor) {
  const std::vector<Json> rows = derived("timing", three_runs(2, {1.0, 0.5, 0.25}, {1.1, 0.6}));
  EXPECT_EQ(rows[0]["loss_last"], rows[1]["loss_last"]);
}

// strong-scaling

std::vector<Json> scaled(const std::vector<double>& ms, const std::vector<std::int64_t>& counts = {1, 2, 4}) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    rows.push_back(with(trained(ms[i], counts[i]), {{"model", "m"}, {"batch", 64}}));
  }
  return rows;
}

TEST(StrongScaling, SpeedupAndEfficiencyAreOverOneDevice) {
  const std::vector<Json> rows = derived("strong-scaling", scaled({8, 5, 4}));
  EXPECT_DOUBLE_EQ(rows[0]["speedup"], 1);
  EXPECT_DOUBLE_EQ(rows[1]["speedup"], 1.6);
  EXPECT_DOUBLE_EQ(rows[1]["efficiency"], 0.8);
  EXPECT_DOUBLE_EQ(rows[2]["speedup"], 2);
  EXPECT_DOUBLE_EQ(rows[2]["efficiency"], 0.5);
}

TEST(StrongScaling, NearlyLinearTimesAreSaidToBe) {
  const std::string all = findings("strong-scaling", scaled({8, 4, 2}));
  EXPECT_TRUE(says(all, "Is it linear? Nearly: 4 devices are 4.00 times as fast as 1 where 4 times would be linear"));
  EXPECT_TRUE(silent_on(all, "Efficiency drops"));
  EXPECT_TRUE(says(all, "so no limit shows"));
}

TEST(StrongScaling, TimesThatStopFallingAreNotLinear) {
  const std::string all = findings("strong-scaling", scaled({8, 4.1, 4}));
  EXPECT_TRUE(says(all, "Is it linear? No: 4 devices are 2.00 times as fast"));
  EXPECT_TRUE(says(all, "Efficiency drops from 97.6 % to 50.0 % between 2 and 4 devices."));
  EXPECT_TRUE(silent_on(all, "between 1 and 2 devices"));
}

TEST(StrongScaling, TheAmdahlFitIsTheOneTheTimesWereMadeWith) {
  const std::string all = findings("strong-scaling", scaled({10, 5.5, 3.25}));  // s = 0.1
  EXPECT_TRUE(says(all,
                   "through 3 points gives a serial fraction of 10.0 %, so that no number of devices would "
                   "exceed 10.0 times"));
  EXPECT_TRUE(says(all, "a good fit"));
  EXPECT_TRUE(says(findings("strong-scaling", scaled({10, 2, 12})), "a bad fit"));
}

TEST(StrongScaling, OversubscribedRowsAreLeftOutOfTheFitAndNamed) {
  std::vector<Json> rows = scaled({10, 5.5, 9});
  rows[2]["oversubscribed"] = true;
  const std::string all = findings("strong-scaling", rows);
  EXPECT_TRUE(says(all, "through 2 points (those with a core a device) gives a serial fraction of 10.0 %"));
  EXPECT_TRUE(says(all, "with two points the law always fits"));
  EXPECT_TRUE(says(all, "Rows with 4 devices are oversubscribed"));
  EXPECT_TRUE(silent_on(findings("strong-scaling", scaled({10, 5.5, 9})), "fewer cores"));
}

TEST(StrongScaling, TheAttributionFollowsTheRow) {
  std::vector<Json> rows = scaled({10, 6});
  rows[1]["exposed_ns"] = 3e6;
  EXPECT_TRUE(says(findings("strong-scaling", rows), "50.0 % into communication that nothing hid"));
  rows[1]["exposed_ns"] = 0.6e6;
  EXPECT_TRUE(says(findings("strong-scaling", rows), "10.0 % into communication that nothing hid"));
}

TEST(StrongScaling, ASerialFractionOfMoreThanAllIsNotGivenAsALimit) {
  EXPECT_TRUE(silent_on(findings("strong-scaling", scaled({8, 12, 16})), "would exceed 0.")) << "two devices are slower than one";
}

TEST(StrongScaling, ASerialFractionOfMoreThanAllSaysThatTheLawDoesNotApply) {
  EXPECT_TRUE(says(findings("strong-scaling", scaled({8, 12, 16})), "so the law does not apply; no fit is claimed"));
}

TEST(StrongScaling, WithoutAPointOfOneDeviceNothingIsSaidOfOne) {
  const std::string all = findings("strong-scaling", scaled({8, 4}, {2, 4}));
  EXPECT_TRUE(says(all, "4 devices are 2.00 times as fast as 2 where 2 times would be linear"));
  EXPECT_TRUE(silent_on(all, "as fast as 1 "));
}

TEST(StrongScaling, TheHeadlineIsOfDevicesWithACoreEach) {
  EXPECT_TRUE(says(headline("strong-scaling", on_cores(2, scaled({8, 5, 9}))), "2 devices are 1.60 times as fast as 1"));
  EXPECT_TRUE(says(headline("strong-scaling", on_cores(1, scaled({8, 5, 9}))),
                   "4 devices are 0.89 times as fast as 1 where 4 times would be linear, an efficiency of 22.2 % (devices shared"));
  EXPECT_TRUE(says(headline("strong-scaling", on_cores(2, scaled({8, 9}, {2, 4}))), "4 devices are 0.89 times as fast as 2"));
}

// comm-vs-compute

std::vector<Json> cases(double small_on_2, double large_on_2, double small_bytes = 1e6) {
  return {with(trained(8, 1), {{"case", "256x2"}}), with(trained(small_on_2, 2), {{"case", "256x2"}, {"sent_bytes", small_bytes}}),
          with(trained(80, 1), {{"case", "2048x4"}}), with(trained(large_on_2, 2), {{"case", "2048x4"}})};
}

TEST(CommVsCompute, TheCaseThatScalesBetterIsNamed) {
  EXPECT_TRUE(
      says(findings("comm-vs-compute", cases(7, 42)), "DDP is most efficient for 2048x4 (95.2 %) and least for 256x2 (57.1 %)"));
  EXPECT_TRUE(
      says(findings("comm-vs-compute", cases(4.2, 70)), "DDP is most efficient for 256x2 (95.2 %) and least for 2048x4 (57.1 %)"));
}

TEST(CommVsCompute, EqualRatiosOfBytesToFlopsAreSaidToBeEqual) {
  EXPECT_TRUE(says(findings("comm-vs-compute", cases(7, 42)), "the same 0.0100 bytes a flop"));
  EXPECT_TRUE(silent_on(findings("comm-vs-compute", cases(7, 42, 5e6)), "the same 0"));
}

TEST(CommVsCompute, TheBottleneckIsWhereBothWouldTakeAsLong) {
  // 0.5e6 bytes in 0.7 ms and 50 Mflop in 5.6 ms a device: 0.714 GB/s and 8.93 GFLOP/s.
  EXPECT_TRUE(says(findings("comm-vs-compute", cases(7, 42)), "at 0.080 bytes a flop, 8.0 times the ratio here"));
}

TEST(CommVsCompute, WhatAMessageCostsIsFittedToItsSizes) {
  std::vector<Json> rows = cases(7, 42);
  rows[1]["messages"] = {{{"bytes", 1000}, {"time_ns", 5250}}, {{"bytes", 1000000}, {"time_ns", 255000}}};
  EXPECT_TRUE(silent_on(findings("comm-vs-compute", rows), "An all-reduce of S bytes")) << "two sizes fit any line";
  rows[3]["messages"] = {{{"bytes", 4000000}, {"time_ns", 1005000}}};
  EXPECT_TRUE(says(findings("comm-vs-compute", rows),
                   "took 5.0 µs + S / 4.00 GB/s over 3 message sizes, a good fit (R² 1.000); the worst of "
                   "them is off by 0.0 %"));
  rows[3]["messages"][0]["time_ns"] = 5000;
  EXPECT_TRUE(says(findings("comm-vs-compute", rows), "a bad fit"));
}

TEST(CommVsCompute, WithThreeCasesEachIsWeighed) {
  std::vector<Json> rows = cases(7, 60);
  rows.insert(rows.begin() + 2, {with(trained(20, 1), {{"case", "1024x2"}}), with(trained(10.5, 2), {{"case", "1024x2"}})});
  const std::string all = findings("comm-vs-compute", rows);
  EXPECT_TRUE(says(all, "DDP is most efficient for 1024x2 (95.2 %) and least for 256x2 (57.1 %)"));
}

TEST(CommVsCompute, ADifferenceWithinTheNoiseMakesNoCaseTheMostEfficient) {
  EXPECT_TRUE(silent_on(findings("comm-vs-compute", cases(4.2, 42.001)), "most efficient for"));
}

TEST(CommVsCompute, TheHeadlineIsTheComparison) {
  EXPECT_TRUE(says(headline("comm-vs-compute", cases(7, 42)), "DDP is most efficient for 2048x4 (95.2 %) and least"));
  EXPECT_TRUE(says(headline("comm-vs-compute", on_cores(1, cases(7, 42))), "least for 256x2 (57.1 %) (devices shared cores)."));
}

// dp-vs-ddp

std::vector<Json> two_strategies(double dp_ms, double ddp_ms, std::int64_t through_0 = 90, std::int64_t devices = 2) {
  std::vector<Json> rows{with(trained(dp_ms, devices), {{"strategy", "dp"}}),
                         with(trained(ddp_ms, devices), {{"strategy", "ddp"}})};
  for (Json& row : rows) {
    row["device_list"][0] = test::device(0.9, 0, 30 << 20, through_0 / 2, through_0 / 2);
    for (std::size_t d = 1; d < row["device_list"].size(); ++d) {
      row["device_list"][d] = test::device(0.5, 0, 10 << 20, 15, 15);
    }
  }
  return rows;
}

TEST(DpVsDdp, TimesThatDifferGiveAFactor) {
  EXPECT_TRUE(says(findings("dp-vs-ddp", two_strategies(6, 4)),
                   "a step of DP takes 6.00 ms and one of DDP 4.00 ms: DDP is 1.50 times as fast"));
  EXPECT_TRUE(says(findings("dp-vs-ddp", two_strategies(3, 4)), "DDP is 0.75 times as fast"));
}

TEST(DpVsDdp, IntervalsThatOverlapGiveNoDifference) {
  const std::string all = findings("dp-vs-ddp", two_strategies(4.02, 4));
  EXPECT_TRUE(says(all, "no difference beyond the noise"));
  EXPECT_TRUE(silent_on(all, "times as fast"));
}

TEST(DpVsDdp, TheHeadlineIsOfTheMostDevicesWithACoreEach) {
  std::vector<Json> rows = two_strategies(6, 4);
  for (const Json& row : two_strategies(9, 3, 180, 4)) {
    rows.push_back(row);
  }
  EXPECT_TRUE(says(headline("dp-vs-ddp", rows), "On 4 devices a step of DP takes 9.00 ms and one of DDP 3.00 ms"));
  EXPECT_TRUE(says(headline("dp-vs-ddp", on_cores(2, rows)), "On 2 devices a step of DP takes 6.00 ms"));
  EXPECT_TRUE(says(findings("dp-vs-ddp", on_cores(2, rows)), "DDP is 3.00 times as fast (devices shared cores)."));
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

TEST(DpVsDdp, TheTrafficIsThatOfTheRows) {
  EXPECT_TRUE(says(findings("dp-vs-ddp", two_strategies(6, 4, 90, 4)),
                   "Under DP 90 B pass through device 0 every step against 30 B through any other (3.0 times"));
  EXPECT_TRUE(says(findings("dp-vs-ddp", two_strategies(6, 4, 60, 4)),
                   "60 B pass through device 0 every step against 30 B through any other (2.0 times"));
}

TEST(DpVsDdp, AllTrafficIsSaidToPassDeviceZeroOnlyWhereItCarriesMore) {
  EXPECT_TRUE(says(findings("dp-vs-ddp", two_strategies(6, 4, 90, 4)), "since all traffic begins or ends there"));
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", two_strategies(4, 4, 30, 4)), "since all traffic begins or ends there"));
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", two_strategies(6, 4, 90, 2)), "what the one sends the other receives"))
      << "it is three times as much";
}

TEST(DpVsDdp, AcceptableIsWhereItIsNotMuchSlower) {
  const auto on_two_and_four = [](double dp_ms) {
    std::vector<Json> rows = two_strategies(dp_ms, 4, 90, 2);
    for (const Json& row : two_strategies(9, 3, 180, 4)) {
      rows.push_back(row);
    }
    return findings("dp-vs-ddp", rows);
  };
  EXPECT_TRUE(says(on_two_and_four(4.1), "From 2 to 4 devices the traffic through device 0 grows 2.00 times under DP"));
  EXPECT_TRUE(says(on_two_and_four(4.1), "within a tenth of DDP, or of the noise, on 2 devices: there it is acceptable"));
  EXPECT_TRUE(says(on_two_and_four(12), "slower than DDP by more than a tenth on every number of devices here"));
  EXPECT_TRUE(silent_on(on_two_and_four(12), "acceptable"));
}

TEST(DpVsDdp, AcceptableIsNotSaidOfDevicesThatSharedCores) {
  const auto shared = [](std::vector<Json> rows) {
    for (Json& row : rows) {
      row["oversubscribed"] = true;
    }
    return rows;
  };
  std::vector<Json> rows = two_strategies(12, 4, 90, 2);
  for (const Json& row : shared(two_strategies(3, 3, 180, 4))) {
    rows.push_back(row);
  }
  const std::string own = findings("dp-vs-ddp", rows);
  EXPECT_TRUE(silent_on(own, "acceptable"));
  EXPECT_TRUE(says(own, "slower than DDP by more than a tenth on every number of devices here that had a core each"));
  const std::string none = findings("dp-vs-ddp", shared(rows));
  EXPECT_TRUE(says(none, "Where DP is acceptable cannot be said here"));
  EXPECT_TRUE(silent_on(none, "there it is acceptable"));
}

TEST(DpVsDdp, ShrinkingPartsAreSaidOnlyWhereTheTrafficOfDdpGrowsLess) {
  std::vector<Json> rows = two_strategies(4, 4, 90, 2);
  for (const Json& row : two_strategies(9, 3, 180, 4)) {  // DDP's grows as much as DP's
    rows.push_back(row);
  }
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", rows), "part of the sum shrinks"));
}

TEST(DpVsDdp, GrowthFromOneDeviceIsNotInfinite) {
  std::vector<Json> rows = two_strategies(6, 6, 0, 1);
  for (const Json& row : two_strategies(6, 4)) {
    rows.push_back(row);
  }
  EXPECT_TRUE(silent_on(findings("dp-vs-ddp", rows), "inf"));
}

// delay

std::vector<Json> delayed(const std::vector<double>& on_one, const std::vector<double>& on_two) {
  const std::vector<int> delays{0, 5, 10, 20};
  std::vector<Json> rows;
  for (std::size_t i = 0; i < delays.size(); ++i) {
    rows.push_back(with(trained(on_one[i], 1), {{"model", "m"}, {"delay_ms", delays[i]}}));
    rows.push_back(with(trained(on_two[i], 2), {{"model", "m"}, {"delay_ms", delays[i]}}));
  }
  return rows;
}

TEST(Delay, AStepThatGrowsByTheDelayIsLinearAndTheDelayIsTheSerialPart) {
  const std::string all = findings("delay", delayed({20, 25, 30, 40}, {10, 15, 20, 30}));
  EXPECT_TRUE(says(all, "On 1 device, step time = 20.00 ms + 1.00 × delay, a good fit (R² 1.000): the degradation is linear"));
  EXPECT_TRUE(says(all, "On 2 devices, step time = 10.00 ms + 1.00 × delay"));
  EXPECT_TRUE(says(all,
                   "With 20 ms the fitted serial fraction is 50.0 %; the delay is 50.0 % of the step of the "
                   "fewest devices. 2 devices are 1.33 times as fast as 1"));
  EXPECT_TRUE(says(all, "With 0 ms the fitted serial fraction is 0.0 %"));
}

TEST(Delay, TheHeadlineIsOfDevicesWithACoreEach) {
  const std::vector<Json> rows = delayed({20, 25, 30, 40}, {10, 15, 20, 30});
  EXPECT_TRUE(says(headline("delay", rows), "On 2 devices, step time"));
  EXPECT_TRUE(says(headline("delay", on_cores(1, rows)), "the degradation is linear (devices shared cores)."));
}

TEST(Delay, AStepThatDoesNotFollowTheDelayIsNotLinear) {
  const std::string all = findings("delay", delayed({20, 45, 20, 40}, {10, 30, 10, 20}));
  EXPECT_TRUE(says(all, "the degradation is not linear"));
  EXPECT_TRUE(silent_on(all, "the degradation is linear"));
}

TEST(Delay, ADelayThatMoreDevicesDoShareIsNotCalledSerial) {
  // Two devices halve the delayed part too: there is no serial part at all.
  EXPECT_TRUE(silent_on(findings("delay", delayed({20, 25, 30, 40}, {10, 12.5, 15, 20})), "takes over the step"));
  EXPECT_TRUE(says(findings("delay", delayed({20, 25, 30, 40}, {10, 15, 20, 30})),
                   "the speedup of 2 devices goes from 2.00 to 1.33: it nears 1"));
}

TEST(Delay, ASerialFractionOfMoreThanAllSaysThatTheLawDoesNotApply) {
  EXPECT_TRUE(
      says(findings("delay", delayed({20, 25, 30, 40}, {30, 15, 20, 30})),
           "With 0 ms the fitted serial fraction is 200.0 %, more than all of the step: more devices make it slower, so the "
           "law does not apply; "));
  EXPECT_TRUE(silent_on(findings("delay", delayed({20, 25, 30, 40}, {10, 15, 20, 30})), "does not apply"));
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

TEST(BatchScaling, ThroughputThatStopsGrowingSaturates) {
  const std::string all = findings("batch-scaling", batches({8, 16, 32, 64}, {4, 5, 9.5, 19}));
  EXPECT_TRUE(says(all, "saturates at about batch 64: going on to 128 changes it by 5.3 %"));
  EXPECT_TRUE(silent_on(all, "has not saturated"));
}

TEST(BatchScaling, ThroughputThatGoesOnGrowingDoesNot) {
  const std::string all = findings("batch-scaling", batches({8, 16, 32, 64}, {4, 5, 7, 10}));
  EXPECT_TRUE(says(all, "has not saturated at batch 256: the last step up still gave 40.0 % more"));
  EXPECT_TRUE(silent_on(all, "saturates at"));
}

TEST(BatchScaling, LargerBatchesScaleBetterOnlyWhereEfficiencyRises) {
  EXPECT_TRUE(says(findings("batch-scaling", batches({8, 16, 32, 64}, {4, 5, 9, 17})), "scale better? Yes: from batch 32 to 256"));
  EXPECT_TRUE(says(findings("batch-scaling", batches({8, 16, 32, 64}, {4, 8, 16, 32})), "scale better? Not here"));
}

TEST(BatchScaling, TheHeadlineIsMarkedWhereDevicesSharedCores) {
  const std::vector<Json> rows = batches({8, 16, 32, 64}, {4, 5, 9, 17});
  EXPECT_TRUE(says(headline("batch-scaling", on_cores(2, rows)), "samples/s (devices shared cores)."));
  EXPECT_TRUE(silent_on(headline("batch-scaling", rows), "shared"));
}

TEST(BatchScaling, TheFixedPartOfAStepIsTheIntercept) {
  EXPECT_TRUE(says(findings("batch-scaling", batches({8, 16, 32, 64}, {3.32, 3.64, 4.28, 5.56})),
                   "Step time = 3.00 ms + 10.0 µs a sample, a good fit"));
}

TEST(BatchScaling, NothingIsSpreadThinnerWhereThereIsNoFixedPart) {
  EXPECT_TRUE(silent_on(findings("batch-scaling", batches({8, 16, 32, 64}, {2, 4, 8, 16})), "spreads it thinner"));
}

TEST(BatchScaling, GustafsonComparesADeviceWithItsShareToAllWithTheWhole) {
  // One device does 32 in 8 ms; four do 128 in 8 ms: four times the samples.
  EXPECT_TRUE(says(findings("batch-scaling", batches({8, 16, 32, 64}, {4, 5, 8, 16})),
                   "4 devices process 4.00 times the samples of one with its share, a serial fraction of 0.0 %"));
  EXPECT_TRUE(says(findings("batch-scaling", batches({8, 16, 32, 64}, {4, 5, 16, 32})),
                   "4 devices process 2.00 times the samples of one with its share, a serial fraction of 66.7 %"));
}

TEST(BatchScaling, ASerialFractionOfMoreThanAllSaysThatTheLawDoesNotApply) {
  std::vector<Json> rows = batches({8, 16, 32, 64}, {32, 40, 64, 128});
  EXPECT_TRUE(
      says(findings("batch-scaling", rows), "the samples of one with its share, a serial fraction of 116.7 %, more than all"));
  for (Json& row : rows) {
    row["oversubscribed"] = row["devices"] == 4;
  }
  EXPECT_TRUE(says(findings("batch-scaling", rows), "of one with its share (devices shared cores), a serial fraction"));
}

// imbalance

/// Two rows on as many devices as there are waits (shares of the uneven step): without and with a delay of 20
/// ms.
std::vector<Json> uneven(double even_ms, double uneven_ms, const std::vector<double>& waits) {
  const auto devices = static_cast<std::int64_t>(waits.size());
  Json list = Json::array();
  for (const double wait : waits) {
    list.push_back(test::device(0.1, wait));
  }
  return {with(trained(even_ms, devices), {{"delay_ms", 0}}),
          with(trained(uneven_ms, devices), {{"delay_ms", 20}, {"device_list", list}})};
}

TEST(Imbalance, RankZeroIsNamedWhereTheOthersWaitForIt) {
  const std::string all = findings("imbalance", uneven(5, 25, {0.01, 0.8, 0.78}));
  EXPECT_TRUE(says(all,
                   "On 3 devices the step grows from 5.00 ms to 25.0 ms when device 0 alone is delayed by 20 ms "
                   "instead of 0: 100.0 % of the delay"));
  EXPECT_TRUE(says(all, "device 0 250 µs, device 1 20.0 ms, device 2 19.5 ms. Every other device waits for device 0"));
}

TEST(Imbalance, TheHeadlineIsOfSeveralDevices) {
  std::vector<Json> rows = uneven(5, 25, {0});
  for (const std::vector<double>& waits : {std::vector<double>{0, 0.8}, std::vector<double>{0, 0.8, 0.8, 0.8}}) {
    for (const Json& row : uneven(5, 25, waits)) {
      rows.push_back(row);
    }
  }
  EXPECT_TRUE(says(headline("imbalance", rows), "On 4 devices the step grows"));
  EXPECT_TRUE(says(headline("imbalance", on_cores(2, rows)), "On 2 devices the step grows"));
  EXPECT_TRUE(says(headline("imbalance", on_cores(1, rows)), "shows in the step of all (devices shared cores)."));
}

TEST(Imbalance, RankZeroIsNotNamedWhereAllWaitAlike) {
  const std::string all = findings("imbalance", uneven(5, 10, {0.3, 0.4, 0.35}));
  EXPECT_TRUE(says(all, "No device stands out"));
  EXPECT_TRUE(says(all, "25.0 % of the delay"));
  EXPECT_TRUE(silent_on(all, "waits for device 0"));
}

TEST(Imbalance, OneRankThatWaitsIsNotEveryOtherRank) {
  EXPECT_TRUE(silent_on(findings("imbalance", uneven(5, 25, {0.01, 0.8, 0.0})), "Every other device waits for device 0"));
}

TEST(Imbalance, TheArrivalsNameTheRankAndItsPhase) {
  std::vector<Json> rows = uneven(5, 25, {0.01, 0.8});
  EXPECT_TRUE(silent_on(findings("imbalance", rows), "of the collectives")) << "older records do not have them";
  rows[1]["arrivals"] = {{{"device", "cpu:0"}, {"last", 1.0}, {"held_up_ns", 20e6}, {"phase", "backward"}, {"excess_ns", 20e6}},
                         {{"device", "cpu:1"}, {"last", 0.0}, {"held_up_ns", 0}, {"phase", "forward"}, {"excess_ns", 0}}};
  EXPECT_TRUE(says(findings("imbalance", rows), "\ncpu:0 is slow: it comes last to 100.0 % of the collectives"));
  EXPECT_TRUE(says(findings("imbalance", rows), "Its backward takes 20.0 ms longer"));
}

TEST(Imbalance, TheOthersAreSaidToWaitForDeviceZeroOnlyWhereTheArrivalsSayIt) {
  std::vector<Json> rows = uneven(5, 25, {0.01, 0.8});
  const auto arrivals = [&](double last_of_zero) {
    rows[1]["arrivals"] = {
        {{"device", "cpu:0"}, {"last", last_of_zero}, {"held_up_ns", 20e6}, {"phase", "backward"}, {"excess_ns", 20e6}},
        {{"device", "cpu:1"}, {"last", 1 - last_of_zero}, {"held_up_ns", 0}, {"phase", "forward"}, {"excess_ns", 0}}};
    return findings("imbalance", rows);
  };
  EXPECT_TRUE(says(arrivals(1), "Every other device waits for device 0"));
  EXPECT_TRUE(silent_on(arrivals(0.5), "Every other device waits for device 0"));
  EXPECT_TRUE(says(arrivals(0.5), "No device stands out as the one waited for"));
}

TEST(Imbalance, MoreThanTheWholeDelayIsPutDownToNoise) {
  EXPECT_TRUE(silent_on(findings("imbalance", uneven(5, 25, {0.01, 0.8})), "noise"));
  EXPECT_TRUE(says(findings("imbalance", uneven(50, 70.6, {0.01, 0.8})),
                   "103.0 % of the delay shows in the step of all, which is all of it within the noise"));
  EXPECT_TRUE(
      says(findings("imbalance", uneven(5, 30, {0.01, 0.8})), "125.0 % of the delay shows in the step of all; what goes beyond"));
}

TEST(Imbalance, TheTableHasWhatEachWaits) {
  const Json row = derived("imbalance", uneven(5, 20, {0.1, 0.5, 0.4}))[1];
  EXPECT_DOUBLE_EQ(row["waiting_device_0_ns"], 2e6);
  EXPECT_DOUBLE_EQ(row["waiting_others_ns"], 10e6);
  EXPECT_EQ(row["label"], "3 dev., 20 ms");
}

TEST(Imbalance, WithoutASleepNoShareOfItIsGiven) {
  std::vector<Json> rows = uneven(5, 6, {0.1, 0.1});
  rows[1]["delay_ms"] = 0;
  const std::string all = findings("imbalance", rows);
  EXPECT_TRUE(silent_on(all, "inf"));
  EXPECT_TRUE(silent_on(all, "nan"));
}

// accumulate

std::vector<Json> in_micro_batches(double ms_in_32, std::int64_t peak_in_32, const std::vector<double>& losses_in_32) {
  return {with(trained(4), {{"micro_batches", 1}, {"precision", "fp32"}, {"peak_bytes", 8 << 20}, {"losses", {1.0, 0.5}}}),
          with(trained(ms_in_32),
               {{"micro_batches", 32}, {"precision", "fp32"}, {"peak_bytes", peak_in_32}, {"losses", losses_in_32}})};
}

TEST(Accumulate, TimeAndMemoryAreThoseOfTheRows) {
  EXPECT_TRUE(says(findings("accumulate", in_micro_batches(6, 4 << 20, {1.0, 0.5})),
                   "in 32 micro-batches instead of 1 takes 6.00 ms instead of 4.00 ms a step (1.50 times) and needs "
                   "4.00 MiB instead of 8.00 MiB"));
}

TEST(Accumulate, StabilityIsReadOffTheLosses) {
  const auto stability = [](const std::vector<double>& losses) {
    return derived("accumulate", in_micro_batches(6, 4 << 20, losses))[1]["stability"].get<std::string>();
  };
  EXPECT_EQ(stability({1.0, 0.5}), "falls at every step");
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
  EXPECT_TRUE(says(all, "Working the batch off in 32 micro-batches instead of 1 takes 6.00 ms instead of 4.00 ms"));
  EXPECT_TRUE(
      says(all, "In mixed precision, working the batch off in 32 micro-batches instead of 1 takes 12.0 ms instead of 12.0 ms"));
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
