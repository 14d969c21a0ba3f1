/// The rest of parts B and C: every claim is made from numbers that support it, and not from numbers that do not.

#include <cmath>

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

// first-split

Json first_split_row(double overlap_us, double transfer_us, std::int64_t transfers) {
  return with(trained(1, transfers > 0 ? 2 : 1),
              {{"log", {"10 µs  linear of block 0 done on cpu:0", "20 µs  linear of block 1 done on cpu:1"}},
               {"forward_ns", 200e3},
               {"transfer_ns", transfer_us * 1e3},
               {"overlap_ns", overlap_us * 1e3},
               {"transfers_forward", transfers},
               {"first_device", "cpu:0"},
               {"last_device", transfers > 0 ? "cpu:1" : "cpu:0"},
               {"losses", {1.5, 1.25, 1.125, 1.0, 0.5, 0.25}}});
}

TEST(FirstSplit, TheCostOfTheMoveIsItsShareOfTheForward) {
  EXPECT_TRUE(
      says(findings("first-split", {first_split_row(0, 20, 1)}), "The transfer takes 20.0 µs of a forward of 200 µs (10.0 %)"));
  EXPECT_TRUE(
      says(findings("first-split", {first_split_row(0, 50, 1)}), "The transfer takes 50.0 µs of a forward of 200 µs (25.0 %)"));
}

TEST(FirstSplit, OverlapIsWhatTheTraceShows) {
  EXPECT_TRUE(says(findings("first-split", {first_split_row(0, 20, 1)}), "there is no overlap"));
  EXPECT_TRUE(says(findings("first-split", {first_split_row(30, 20, 1)}), "30.0 µs of the forward: there is some overlap"));
}

TEST(FirstSplit, TheLogAndTheFirstFiveLossesAreShown) {
  const std::string all = findings("first-split", {first_split_row(0, 20, 1)});
  EXPECT_TRUE(says(all, "\n20 µs  linear of block 1 done on cpu:1\n"));
  EXPECT_TRUE(says(all, "1.500000, 1.250000, 1.125000, 1.000000, 0.500000."));
  EXPECT_TRUE(silent_on(all, "0.250000"));
}

TEST(FirstSplit, StartEndAndMovesAreThoseOfThePlan) {
  EXPECT_TRUE(says(findings("first-split", {first_split_row(0, 20, 1)}),
                   "Computation starts on cpu:0, where the input lies; the data is transferred 1 time in the forward, "
                   "and the output ends on cpu:1"));
  EXPECT_TRUE(says(findings("first-split", {first_split_row(0, 0, 0)}),
                   "the data is transferred 0 times in the forward, and the output ends on cpu:0"));
}

TEST(FirstSplit, TheHeadlineIsASentenceAndNotTheLog) {
  EXPECT_TRUE(says(headline("first-split", {first_split_row(0, 20, 1)}), "Computation starts on cpu:0"));
  EXPECT_TRUE(says(headline("first-split", on_cores(1, {first_split_row(0, 20, 1)})), "(10.0 %) (devices shared cores)."));
}

TEST(FirstSplit, OnOneDeviceNoneWaitsForTheOther) {
  EXPECT_TRUE(silent_on(findings("first-split", {first_split_row(0, 0, 0)}), "one waits while the other works"));
}

// split

Json split_row(const std::vector<std::string>& placement, const std::vector<int>& each, std::int64_t bytes) {
  return with(trained(2, static_cast<std::int64_t>(each.size())),
              {{"depth", 6}, {"placement", placement}, {"blocks_each", each}, {"bytes_forward", bytes}});
}

TEST(Split, TheMoveIsWhereThePlacementChanges) {
  EXPECT_TRUE(
      says(findings("split", {split_row({"0,1,2", "3,4,5"}, {3, 3}, 131072)}),
           "device 0: blocks 0,1,2; device 1: blocks 3,4,5. In the forward the data is transferred between "
           "block 2 and block 3 (from device 0 to 1), 128 KiB in all; 1 transfer brings the gradient back in the backward."));
  EXPECT_TRUE(says(findings("split", {split_row({"0,1", "2,3", "4,5"}, {2, 2, 2}, 262144)}),
                   "between block 1 and block 2 (from device 0 to 1), between block 3 and block 4 (from "
                   "device 1 to 2), 256 KiB in all"));
}

TEST(Split, OnOneDeviceNothingMoves) {
  EXPECT_TRUE(silent_on(findings("split", {split_row({"0,1,2,3,4,5"}, {6}, 0)}), "the data is transferred ,"));
}

TEST(Split, TheTableNamesThePlacement) {
  EXPECT_EQ(derived("split", {split_row({"0,1,2", "3,4,5"}, {3, 3}, 1)})[0]["where"],
            "device 0: blocks 0,1,2; device 1: blocks 3,4,5");
}

// depth

std::vector<Json> deeper(const std::vector<double>& ms) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    rows.push_back(with(trained(ms[i], 2), {{"depth", 6 << i}}));
  }
  return rows;
}

TEST(Depth, AStepThatGrowsWithDepthIsSaidToGrowByTheBlock) {
  const std::string all = findings("depth", deeper({6, 12, 24}));
  EXPECT_TRUE(says(all,
                   "Does adding layers improve speed? No: the step goes from 6.00 ms at DEPTH 6 to 24.0 ms at DEPTH 24, 1.00 ms a "
                   "block, a good fit "
                   "(R² 1.000). Each"));
  EXPECT_TRUE(says(all, "Each device computes for 80.0 % of the step on the mean and waits for another for 5.0 %"));
}

TEST(Depth, AStepThatShrinksWithDepthIsNotAnsweredWithNo) {
  EXPECT_TRUE(silent_on(findings("depth", deeper({24, 12, 6})), "No: "));
  EXPECT_TRUE(says(findings("depth", deeper({24, 12, 6})), "It was not slower here"));
}

TEST(Depth, DevicesThatSharedCoresAreMarked) {
  EXPECT_TRUE(says(headline("depth", on_cores(1, deeper({6, 12, 24}))), "for 5.0 % (devices shared cores)."));
}

// all-devices

Json spread_row(double ms, std::int64_t devices, double last_busy, std::int64_t peak) {
  Json row = with(trained(ms, devices),
                  {{"placement", std::vector<std::string>(static_cast<std::size_t>(devices), "0")}, {"peak_bytes", peak}});
  row["device_list"].back()["busy"] = last_busy;
  return row;
}

TEST(AllDevices, ADeviceThatNeverComputedIsNoticed) {
  EXPECT_TRUE(says(findings("all-devices", {spread_row(9, 1, 0.9, 100), spread_row(9, 5, 0.2, 50)}), "all of them computed"));
  const std::string all = findings("all-devices", {spread_row(9, 1, 0.9, 100), spread_row(9, 5, 0, 50)});
  EXPECT_TRUE(says(all, "not all of them computed, for 80.0 %, 80.0 %, 80.0 %, 80.0 %, 0.0 % of the step"));
}

TEST(AllDevices, AGainIsCalledOneOnlyWhereThereIsOne) {
  EXPECT_TRUE(
      says(findings("all-devices", {spread_row(9, 1, 0.9, 100), spread_row(9.1, 2, 0.4, 50)}), "0.99 times as fast: no gain"));
  EXPECT_TRUE(
      says(findings("all-devices", {spread_row(9, 1, 0.9, 100), spread_row(4.5, 2, 0.4, 50)}), "2.00 times as fast: a gain"));
}

TEST(AllDevices, TheHeadlineIsWhatDevicesWithACoreEachGain) {
  const std::vector<Json> rows{spread_row(9, 1, 0.9, 100), spread_row(4.5, 2, 0.4, 50), spread_row(30, 5, 0.2, 25)};
  EXPECT_TRUE(says(headline("all-devices", rows), "Going from 1 to 5 devices makes the step 0.30 times as fast"));
  EXPECT_TRUE(says(headline("all-devices", on_cores(2, rows)), "Going from 1 to 2 devices makes the step 2.00 times as fast"));
  EXPECT_TRUE(says(headline("all-devices", on_cores(1, rows)), "one device works at a time (devices shared cores)."));
}

TEST(AllDevices, MemoryIsSaidToFallOnlyWhereItFalls) {
  EXPECT_TRUE(says(findings("all-devices", {spread_row(9, 1, 0.9, 100), spread_row(9, 2, 0.4, 50)}),
                   "What falls is memory a device, from 100 B to 50 B"));
  EXPECT_TRUE(silent_on(findings("all-devices", {spread_row(9, 1, 0.9, 50), spread_row(9, 2, 0.4, 100)}), "What falls is memory"));
}

TEST(AllDevices, TheTableHasTheMemoryOfEach) {
  Json row = spread_row(9, 2, 0.4, 0);
  row["device_list"][0]["peak_bytes"] = 2048;
  row["device_list"][1]["peak_bytes"] = 1024;
  EXPECT_EQ(derived("all-devices", {row})[0]["memory_each"], "2.00 KiB, 1.00 KiB");
}

// transfers

std::vector<Json> counted(const std::vector<int>& transfers) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    rows.push_back(with(trained(3, static_cast<std::int64_t>(i) + 2),
                        {{"transfers_forward", transfers[i]}, {"bytes_forward", transfers[i] * 1024}}));
  }
  return rows;
}

TEST(Transfers, GrowthIsTheSlopeOfTheCounts) {
  EXPECT_TRUE(says(findings("transfers", counted({1, 2, 3})),
                   "from 1 to 3: 1.00 more a device, one for each border between stages, a good fit (R²"));
  EXPECT_TRUE(says(findings("transfers", counted({2, 4, 6})), "from 2 to 6: 2.00 more a device"));
}

TEST(Transfers, OneForEachBorderOnlyWhereThatIsTheCount) {
  EXPECT_TRUE(says(findings("transfers", counted({1, 2, 3})), "one for each border"));
  EXPECT_TRUE(silent_on(findings("transfers", counted({2, 4, 6})), "one for each border"));
}

TEST(Transfers, OversubscribedRowsAreNamed) {
  EXPECT_TRUE(says(findings("transfers", on_cores(2, counted({1, 2, 3}))), "Rows with 3, 4 devices are oversubscribed"));
  EXPECT_TRUE(silent_on(findings("transfers", counted({1, 2, 3})), "oversubscribed"));
}

// four-way-split

std::vector<Json> split_losses(const std::vector<double>& on_four) {
  const auto row = [](std::int64_t devices, const std::vector<double>& losses) {
    return with(trained(3, devices),
                {{"placement", std::vector<std::string>(static_cast<std::size_t>(devices), "0")}, {"losses", losses}});
  };
  return {row(1, {1.0, 0.5, 0.25}), row(2, {1.0, 0.5, 0.25, 0.125}), row(4, on_four)};
}

TEST(FourWaySplit, TheSameLossesAreTheSameToTheBit) {
  const std::string all = findings("four-way-split", split_losses({1.0, 0.5, 0.25}));
  EXPECT_TRUE(says(all, "Over 3 steps the losses on 1, 2, 4 devices are the same to the bit"));
  EXPECT_TRUE(silent_on(all, "fault"));
}

TEST(FourWaySplit, ALossThatDiffersInItsLastBitIsAFault) {
  const std::string all = findings("four-way-split", split_losses({1.0, 0.5, std::nextafter(0.25, 1)}));
  EXPECT_TRUE(says(all, "different, which is a fault"));
  EXPECT_TRUE(silent_on(all, "to the bit"));
}

TEST(FourWaySplit, TheTableHasTheLossAfterFiveStepsOrTheLast) {
  EXPECT_EQ(derived("four-way-split", split_losses({1.0, 0.5, 0.25}))[2]["loss_at_5"], 0.25);
  EXPECT_EQ(derived("four-way-split", split_losses({6, 5, 4, 3, 2, 1, 0}))[2]["loss_at_5"], 1);
}

// matrix-power

std::vector<Json> powers(double one_ms, double two_ms, std::int64_t size_on_two = 512, std::int64_t devices = 2) {
  const auto row = [](double ms, std::int64_t count, std::int64_t size) {
    return with(trained(ms, count), {{"size", size}, {"power", 10}, {"products", 4}, {"tflops", 1 / ms}});
  };
  return {row(one_ms, 1, 512), row(two_ms, devices, size_on_two)};
}

TEST(MatrixPower, TheSpeedupIsThatOfTheTimes) {
  EXPECT_TRUE(says(findings("matrix-power", powers(8, 4)), "Two devices need 4.00 ms where one needs 8.00 ms: a speedup of 2.00"));
  EXPECT_TRUE(says(findings("matrix-power", powers(8, 10)), "a speedup of 0.80"));
  EXPECT_TRUE(says(findings("matrix-power", powers(8, 4)),
                   "takes 4 products a matrix for n = 10, where multiplying one after the other would take 9"));
}

TEST(MatrixPower, TheHeadlineIsTheSpeedup) {
  EXPECT_TRUE(says(headline("matrix-power", powers(8, 4)), "a speedup of 2.00"));
  EXPECT_TRUE(says(headline("matrix-power", on_cores(1, powers(8, 4))), "their sum needs both (devices shared cores)."));
}

TEST(MatrixPower, MatricesOfDifferentSizesAreNotComparedWithEachOther) {
  EXPECT_TRUE(silent_on(findings("matrix-power", powers(8, 400, 2048)), "where one needs 8.00 ms"));
}

// precision

Json plain_row() {
  return with(trained(2), {{"precision", "fp32"},
                           {"emulated", false},
                           {"buffer_bytes", 8 << 20},
                           {"losses", {1.0, 0.9}},
                           {"skipped_steps", 0},
                           {"final_scale", nullptr},
                           {"overflows", 0},
                           {"gradients_left", Json::array()}});
}

Json narrow_row(const std::string& precision, std::vector<double> gradients_left, const Json& values = Json::object()) {
  return with(with(plain_row(), {{"precision", precision},
                                 {"emulated", true},
                                 {"buffer_bytes", 6 << 20},
                                 {"gradients_left", gradients_left},
                                 {"time_per_step_ns", 5e6}}),
              values);
}

/// fp16 keeps so many gradients of its two blocks, and so many once scaled; bf16 keeps all hundred and hundred.
std::vector<Json> formats(std::vector<double> bare, std::vector<double> scaled) {
  return {plain_row(), narrow_row("bf16", {100, 100}), narrow_row("fp16", std::move(bare)),
          narrow_row("fp16 scaled", std::move(scaled), {{"final_scale", 65536}})};
}

TEST(Precision, WhatVanishesIsTheShareMissingFromTheRowThatKeepsMost) {
  const std::vector<Json> rows = derived("precision", formats({0, 50}, {100, 98}));
  EXPECT_FALSE(rows[0].contains("gradients_lost")) << "nothing is rounded in fp32";
  EXPECT_NEAR(rows[1]["gradients_lost"].get<double>(), 0, 1e-12);
  EXPECT_NEAR(rows[2]["gradients_lost"].get<double>(), 0.75, 1e-12);
  EXPECT_NEAR(rows[3]["gradients_lost"].get<double>(), 0.01, 1e-12);
}

TEST(Precision, TheScalerIsSaidToBringBackOnlyWhatItBroughtBack) {
  const std::string back = findings("precision", formats({0, 50}, {100, 98}));
  EXPECT_TRUE(says(back, "75.0 % of the gradients became zero"));
  EXPECT_TRUE(says(back, "one of the 2 blocks gets none at all and learns nothing"));
  EXPECT_TRUE(says(back, "With the loss multiplied by 65536 they lie within its range, 1.0 % are lost"));
  const std::string gone = findings("precision", formats({0, 50}, {0, 60}));
  EXPECT_TRUE(says(gone, "did not bring them back: 70.0 % are lost"));
  EXPECT_TRUE(silent_on(gone, "within its range"));
  const std::string whole = findings("precision", formats({100, 100}, {100, 100}));
  EXPECT_TRUE(says(whole, "0.0 % of the gradients became zero: this model's are large enough"));
  EXPECT_TRUE(silent_on(whole, "learns nothing"));
  EXPECT_TRUE(says(findings("precision", formats({10, 50}, {100, 98})), "each of the 2 blocks still gets some"));
  EXPECT_TRUE(says(findings("precision", formats({0, 0}, {100, 98})), "2 of the 2 blocks get none at all and learn nothing"));
}

TEST(Precision, SkippedStepsAreToldFromTheCount) {
  const auto growing = [](std::int64_t skipped, std::int64_t overflows) {
    return findings("precision",
                    {plain_row(), narrow_row("fp16 scaled, growing", {9, 9},
                                             {{"skipped_steps", skipped}, {"overflows", overflows}, {"final_scale", 4096}})});
  };
  EXPECT_TRUE(says(growing(1, 77), "1 of 2 steps were, 77 values overflowed, and the scale ended at 4096"));
  EXPECT_TRUE(says(growing(0, 0), "the scale reached 4096 in 2 steps without an overflow"));
  EXPECT_TRUE(silent_on(growing(0, 0), "skipped and the scale halved"));
}

TEST(Precision, MemoryIsExplainedTheWayItTurnedOut) {
  const auto memory = [](std::int64_t bytes) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"buffer_bytes", bytes}})});
  };
  EXPECT_TRUE(says(memory(6 << 20), "Buffers take 6.00 MiB instead of 8.00 MiB: activations have half the bytes, which outweighs"));
  EXPECT_TRUE(
      says(memory(9 << 20), "Buffers take 9.00 MiB instead of 8.00 MiB: activations have half the bytes, but the 16-bit copy"));
}

TEST(Precision, TheLossIsComparedByHowFarItFell) {
  const auto losses = [](double last, std::int64_t skipped = 0) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"losses", {1.0, last}}, {"skipped_steps", skipped}})});
  };
  EXPECT_TRUE(says(losses(0.9), "falls by 0.1 in fp32, and by this many times as much in the others: 1 in bf16. So early"));
  EXPECT_TRUE(says(losses(0.95), "0.5 in bf16. The format shows in what is learnt."));
  EXPECT_TRUE(says(losses(0.95, 1), "0.5 in bf16, which skipped some. So early"));
  EXPECT_TRUE(says(losses(std::nan("")), "The format shows in what is learnt."));
}

TEST(Precision, EmulatedTimesAreSaidToBeNoTimesOfHardware) {
  const auto times = [](bool emulated) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"emulated", emulated}})});
  };
  EXPECT_TRUE(says(times(true), "(2.50 in bf16 times fp32's) are those of that extra work and say nothing about hardware"));
  EXPECT_TRUE(says(times(false), "A step takes, in times of fp32's 2.00 ms: 2.50 in bf16."));
  EXPECT_TRUE(silent_on(times(false), "emulated"));
  EXPECT_EQ(derived("precision", {narrow_row("bf16", {9})})[0]["computed"], "emulated");
  EXPECT_EQ(derived("precision", {plain_row()})[0]["computed"], "native");
}

TEST(Precision, RecordsOfFp32AloneAreEnoughForARow) {
  EXPECT_TRUE(findings("precision", {with(trained(3), {{"precision", "fp32"}})}).empty());
}

// profile

Json profiled(double linear_share, double reduce_share) {
  const auto kind = [](const char* name, double share) {
    return Json{{"device", "cpu:0"},      {"kind", name},     {"tasks", 2},      {"share", share},
                {"time_ns", share * 1e6}, {"flops", 1000000}, {"bytes", 500000}, {"cores", 1}};
  };
  return with(trained(1), {{"pulse_gflops", 10.0}, {"kinds", {kind("linear", linear_share), kind("all_reduce", reduce_share)}}});
}

TEST(Profile, TheBottleneckIsTheKindThatTakesMost) {
  EXPECT_TRUE(says(findings("profile", {profiled(0.5, 0.2)}),
                   "The bottleneck is linear: 50.0 % of the step on the mean over devices. All matrix "
                   "products together take 50.0 %."));
  EXPECT_TRUE(says(findings("profile", {profiled(0.1, 0.8)}), "The bottleneck is all_reduce: 80.0 %"));
}

TEST(Profile, DevicesThatSharedCoresAreMarked) {
  Json row = profiled(0.5, 0.2);
  row["oversubscribed"] = true;
  EXPECT_TRUE(says(headline("profile", {row}), "take 50.0 % (devices shared cores)."));
}

TEST(Profile, RowsAreSortedAndRatesAreOverTheirTime) {
  const std::vector<Json> rows = derived("profile", {profiled(0.1, 0.8)});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["kind"], "all_reduce");
  EXPECT_DOUBLE_EQ(rows[1]["gflops"], 10);  // a million in 0.1 ms
  EXPECT_DOUBLE_EQ(rows[1]["gbytes"], 5);
  EXPECT_DOUBLE_EQ(rows[1]["of_peak"], 1);  // as fast as the pulse
}

TEST(Profile, SaysNothingOfAPeakThatIsNotKnown) {
  Json row = profiled(0.5, 0.2);
  for (Json& kind : row["kinds"]) {
    kind["cores"] = 0;  // as on a GPU
  }
  EXPECT_FALSE(derived("profile", {row})[0].contains("of_peak"));
  EXPECT_TRUE(says(findings("profile", {row}), "GFLOP/s and touches"));
}

// All of them.

/// Two sets of rows for each experiment that agree in no number that a claim could be made from.
std::vector<std::pair<std::string, std::pair<std::vector<Json>, std::vector<Json>>>> opposites() {
  const auto four = [](double a, double b, int key, const char* axis) {
    std::vector<Json> rows;
    for (const int value : {0, 5, 10, key}) {
      rows.push_back(with(trained(a + value * b, 1), {{"model", "m"}, {axis, value}}));
      rows.push_back(with(trained(a * (b == 1 ? 2 : 0.7) + value / b, 2), {{"model", "m"}, {axis, value}}));
    }
    return rows;
  };
  return {
      {"delay", {four(20, 1, 20, "delay_ms"), four(31, 0.1, 40, "delay_ms")}},
      {"depth", {deeper({6, 12, 24}), deeper({21, 14, 7})}},
      {"first-split",
       {{first_split_row(0, 20, 1)},
        {with(first_split_row(30, 50, 0), {{"log", {"9 µs  linear of block 0 done on cpu:0"}}, {"losses", {3.0, 2.0}}})}}},
      {"split", {{split_row({"0,1,2", "3,4,5"}, {3, 3}, 131072)}, {split_row({"0,1,2,3,4,5"}, {6}, 0)}}},
      {"profile", {{profiled(0.5, 0.2)}, {profiled(0.1, 0.8)}}},
  };
}

TEST(Findings, NoSentenceIsTheSameWhateverTheNumbers) {
  for (const auto& [id, sets] : opposites()) {
    const std::vector<std::string> one = test::sentences(id, sets.first);
    const std::string other = findings(id, sets.second);
    for (const std::string& sentence : one) {
      EXPECT_TRUE(silent_on(other, sentence)) << id;
    }
  }
}

}  // namespace
}  // namespace baton::lab
