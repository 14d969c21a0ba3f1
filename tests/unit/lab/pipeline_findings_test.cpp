/// Schedules and memory, of part B: every claim is made from numbers that support it, and not from numbers that do not.

#include "baton/lab/rows.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::findings;
using test::says;
using test::silent_on;
using test::trained;
using test::usage_sentence;
using test::with;

// idle

Json idle_row(const std::string& schedule, double ms, double theory, std::int64_t peak, std::int64_t devices = 4) {
  return with(trained(ms, devices),
              {{"schedule", schedule}, {"theory", theory}, {"micro_batches", schedule == "naive" ? 1 : 8}, {"peak_bytes", peak}});
}

TEST(Idle, TheShareIsWhatTheStepDoesNotCompute) {
  EXPECT_TRUE(says(findings("idle", {idle_row("1f1b", 10, 0.2, 1 << 20)}),
                   "1f1b over 4 devices with 8 micro-batches: idle for 20.0 % of the step, 20.0 % in theory;"));
  EXPECT_TRUE(
      says(findings("idle", {with(idle_row("1f1b", 10, 0.2, 1 << 20), {{"compute_ns", 5e6}})}),
           "idle for 50.0 % of the step, 20.0 % in theory (of the step 5.0 % went into waiting for other devices and 10.0 % into "
           "exposed messages);"));
}

TEST(Idle, TakesNothingThatIsNoSchedule) {
  const Point point{{"schedule", "dp"}, {"model", "mlp:dim=8,depth=4"}, {"batch", 8}, {"micro_batches", 2}, {"devices", 2}};
  EXPECT_TRUE(says(usage_sentence([&] { experiment_by_id("idle").open(point, {}); }), "unknown schedule 'dp'"));
}

TEST(Idle, TheFastestScheduleIsNamedWithItsSpeedupOverTheNaiveSplit) {
  const Json naive = idle_row("naive", 40, 0.75, 1 << 20);
  EXPECT_TRUE(says(findings("idle", {naive, idle_row("gpipe", 20, 0.27, 4 << 20), idle_row("zb-v", 16, 0.06, 2 << 20)}),
                   "On 4 devices zb-v wins most back: 2.50 times as fast as the naive split"));
  EXPECT_TRUE(says(findings("idle", {naive, idle_row("gpipe", 16, 0.27, 4 << 20), idle_row("zb-v", 20, 0.06, 2 << 20)}),
                   "On 4 devices gpipe wins most back: 2.50 times"));
  const std::string slower = findings("idle", {naive, idle_row("gpipe", 50, 0.27, 4 << 20)});
  EXPECT_TRUE(says(slower, "On 4 devices none: the fastest, gpipe, is slower, 0.80 times as fast as the naive split"));
  EXPECT_TRUE(silent_on(slower, "wins most back"));
}

TEST(Idle, ADifferenceWithinTheNoiseIsNeitherFasterNorSlower) {
  for (const double ms : {24.2, 66.0}) {  // 1.65 and 0.61 times as fast, with intervals that overlap
    std::vector<Json> rows{idle_row("naive", 40, 0.75, 1 << 20), idle_row("mine.csv", ms, 0.1, 1 << 20)};
    for (Json& row : rows) {
      row["time_low_ns"] = 0.5 * row["time_per_step_ns"].get<double>();
      row["time_high_ns"] = 1.5 * row["time_per_step_ns"].get<double>();
    }
    const std::string all = findings("idle", rows);
    EXPECT_TRUE(says(all, "no schedule differs from the naive split beyond the noise; the fastest, mine.csv, is"));
    EXPECT_TRUE(says(all, "times as fast as the naive split (0."));
    EXPECT_TRUE(says(all, " with 99 % confidence), idle"));
    EXPECT_TRUE(silent_on(all, "is slower"));
    EXPECT_TRUE(silent_on(all, "wins most back"));
  }
}

TEST(Idle, TheFastestOfManySchedulesHasToStandOutMoreThanOneAlone) {
  const Json naive = idle_row("naive", 40, 0.75, 1 << 20);
  double ms = 40;  // the longest step that one schedule is told from the naive split with
  while (!differs(idle_row("gpipe", ms, 0.27, 1 << 20), naive)) {
    ms *= 0.9999;
  }
  std::vector<Json> rows{naive, idle_row("gpipe", ms, 0.27, 1 << 20)};
  EXPECT_TRUE(says(findings("idle", rows), "gpipe wins most back"));
  for (const std::string schedule : {"1f1b", "interleaved", "zb-h1", "zb-v"}) {
    rows.push_back(idle_row(schedule, 40, 0.2, 1 << 20));
  }
  EXPECT_TRUE(says(findings("idle", rows), "no schedule differs from the naive split beyond the noise; the fastest, gpipe, is"));
}

TEST(Idle, DeviceCountsAreHeldApart) {
  const std::string all = findings("idle", {idle_row("naive", 20, 0.5, 1 << 20, 2), idle_row("1f1b", 10, 0.1, 1 << 20, 2),
                                            idle_row("naive", 40, 0.75, 1 << 20, 4), idle_row("1f1b", 10, 0.27, 1 << 20, 4)});
  EXPECT_TRUE(says(all, "On 2 devices 1f1b wins most back: 2.00 times"));
  EXPECT_TRUE(says(all, "On 4 devices 1f1b wins most back: 4.00 times"));
}

TEST(Idle, TheHeadlineIsTheFastestOnTheMostDevicesWithACoreEach) {
  const std::vector<Json> rows{idle_row("naive", 20, 0.5, 1 << 20, 2), idle_row("1f1b", 10, 0.1, 1 << 20, 2),
                               idle_row("naive", 40, 0.75, 1 << 20, 4), idle_row("1f1b", 10, 0.27, 1 << 20, 4)};
  EXPECT_TRUE(says(test::headline("idle", rows), "On 4 devices 1f1b wins most back: 4.00 times"));
  EXPECT_TRUE(says(test::headline("idle", test::on_cores(2, rows)), "On 2 devices 1f1b wins most back: 2.00 times"));
  EXPECT_TRUE(says(test::headline("idle", test::on_cores(1, rows)), "as the naive split (devices shared cores)"));
}

TEST(Idle, WhyGpipeNeedsMoreMemoryIsSaidWhereItDoes) {
  EXPECT_TRUE(says(findings("idle", {idle_row("gpipe", 20, 0.27, 3 << 20), idle_row("1f1b", 20, 0.27, 2 << 20)}),
                   "gpipe needs 3.00 MiB and 1f1b 2.00 MiB, 1.50 times: gpipe keeps the activations of all micro-batches"));
  EXPECT_TRUE(says(findings("idle", {idle_row("gpipe", 20, 0.27, 2 << 20), idle_row("1f1b", 20, 0.27, 2 << 20)}),
                   "1.00 times: parameters and gradients outweigh"));
}

// memory

Json memory_row(const std::string& name, std::int64_t peak) { return with(trained(10, 4), {{"case", name}, {"peak_bytes", peak}}); }

TEST(MemoryFindings, ASavingIsExplainedAndItsAbsenceSaid) {
  EXPECT_TRUE(
      says(findings("memory", {memory_row("ddp", 4 << 20), memory_row("zero-3", 1 << 20)}),
           "zero-3 needs 0.25 times the memory of ddp on its fullest device: states, gradients and parameters are divided"));
  const std::string none = findings("memory", {memory_row("ddp", 4 << 20), memory_row("zero-1", 4 << 20)});
  EXPECT_TRUE(says(none, "zero-1 needs 1.00 times the memory of ddp on its fullest device, so here it saves nothing."));
  EXPECT_TRUE(silent_on(none, "divided over"));
}

TEST(MemoryFindings, WhatAPlanHoldsIsNotMarkedByCores) {
  const std::vector<Json> rows{memory_row("ddp", 4 << 20), memory_row("zero-3", 1 << 20)};
  EXPECT_TRUE(says(test::headline("memory", test::on_cores(2, rows)),
                   "holds 4.00 MiB on its fullest device; relative to it the others need: "
                   "zero-3 0.25."));
  EXPECT_TRUE(silent_on(findings("memory", test::on_cores(2, rows)), "shared"));
  EXPECT_FALSE(test::derived("memory", test::on_cores(2, rows))[0]["oversubscribed"]);
}

}  // namespace
}  // namespace baton::lab
