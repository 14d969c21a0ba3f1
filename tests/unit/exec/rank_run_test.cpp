#include "baton/exec/rank_run.h"

#include <gtest/gtest.h>

namespace baton::exec {
namespace {

/// A device that holds the losses of this many rows, and another that holds none.
plan::Plan losses_of(std::int64_t rows) {
  plan::Draft draft{.title = "", .devices = {"cpu:0", "cpu:1"}, .buffers = {}, .tasks = {}};
  draft.buffers.push_back({.device = DeviceId(1), .role = plan::Role::loss, .dtype = DType::f64, .shape = {rows}});
  return plan::finish(std::move(draft));
}

TEST(StepReport, HasRoomForTheLossesOfBatchesOfAnySize) {
  const std::size_t without = report_sizes(losses_of(1), {0, 1}, {}, 2)[0];
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{300'000'000}, std::int64_t{600'000'000}, std::int64_t{1} << 40}) {
    EXPECT_EQ(report_sizes(losses_of(rows), {0, 1}, {BufferId(0)}, 2),
              (std::vector<std::size_t>{without, without + static_cast<std::size_t>(rows) * sizeof(double)}));
  }
}

TEST(StepReport, SumsTheRowsAndTellsTheDuration) {
  StepReport report(ranks::make_world_of_one(), losses_of(3), {0, 0}, {BufferId(0)});
  const std::vector<double> rows{1, 2, 4};
  const StepReport::Summary summary = report.share({.duration = Nanoseconds(5), .stop_requested = true},
                                                   [&](BufferId) { return rows.data(); });
  EXPECT_EQ(summary.loss, 7.0);
  EXPECT_EQ(summary.duration.count, 5);
  EXPECT_TRUE(summary.stop_requested);
  EXPECT_FALSE(summary.given_up);
  EXPECT_FALSE(summary.changed);
}

plan::Plan two_devices() {
  plan::Draft draft{.title = "", .devices = {"cpu:0", "cpu:1"}, .buffers = {}, .tasks = {}};
  for (const std::size_t device : {0U, 1U, 1U, 0U}) {
    draft.tasks.push_back({.action = plan::Delay{Nanoseconds(1)}, .device = DeviceId(device)});
  }
  return plan::finish(std::move(draft));
}

TEST(MergedTrace, EventsOfAllRanksStandOnRankZerosClockFromWhenTheFirstBegan) {
  const auto at = [](std::int64_t start, std::int64_t end) { return trace::Event{Nanoseconds(start), Nanoseconds(end), {}, {}}; };
  ranks::ClockFit ahead;
  ahead.first.offset = Nanoseconds(1000);
  // Rank 1 begins at 5040 of its clock, which is 4040 of rank 0's: 40 behind rank 0, and ends 25 after it.
  const trace::Trace merged = merge(two_devices(), {0, 1},
                                    {{{Nanoseconds(4000), Nanoseconds(100), {at(1, 10), at(20, 100)}}},
                                     {{Nanoseconds(5040), Nanoseconds(85), {at(2, 30), at(31, 85)}}}},
                                    {ranks::ClockFit{}, ahead});
  ASSERT_EQ(merged.steps.size(), 1U);
  const trace::StepTrace& step = merged.steps[0];
  EXPECT_EQ(step.duration.count, 125);
  ASSERT_EQ(step.events.size(), 4U);
  EXPECT_EQ(step.events[0].start.count, 1);
  EXPECT_EQ(step.events[1].start.count, 42);
  EXPECT_EQ(step.events[1].end.count, 70);
  EXPECT_EQ(step.events[2].end.count, 125);
  EXPECT_EQ(step.events[3].start.count, 20);
  EXPECT_EQ(step.events[3].end.count, 100);
}

}  // namespace
}  // namespace baton::exec
