#include "baton/exec/ranks/rank_run.h"

#include <gtest/gtest.h>

namespace baton::exec {
namespace {

/// A device that holds the losses of so many rows, and another that holds none.
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
  const std::unique_ptr<World> world = make_world_of_one();
  StepReport report(*world, losses_of(3), {0, 0}, {BufferId(0)});
  const std::vector<double> rows{1, 2, 4};
  const StepReport::Summary summary = report.share({.duration = Nanoseconds(5), .enough = true},
                                                   [&](BufferId) { return rows.data(); });
  EXPECT_EQ(summary.loss, 7.0);
  EXPECT_EQ(summary.duration.count, 5);
  EXPECT_TRUE(summary.enough);
  EXPECT_FALSE(summary.given_up);
  EXPECT_FALSE(summary.changed);
}

}  // namespace
}  // namespace baton::exec
