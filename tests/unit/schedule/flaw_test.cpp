#include "baton/schedule/flaw.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "support/usage_sentence.h"

namespace baton::schedule {
namespace {

using test::says;
using test::usage_sentence;

TEST(Flaw, IsSaidOfEachGridThatCannotRun) {
  const std::map<std::string, std::string> cases{
      {",,\n,", "it has no action"},
      {"0F0,0B0\n,", "device 1 does nothing"},
      {"0F0,1B0\n1F0,0B0", "stage 0 is on device 0 with 0F0 and on device 1 with 0B0"},
      {"0F0,0F0,0B0", "0F0 is there twice"},
      {"0F0,0B0,0B0", "0B0 is there twice"},
      {"0F0,0B0,0F1,0F2,0B2", "0B1 is missing, or 0I1 and 0W1 in its place"},
      {"0F0,0B0,0F2,0B2", "0F1 is missing"},
      {"0B0,0W1", "0F0 is missing"},
      {"1F0,1B0", "0F0 is missing"},
      {"0F0,0B0\n2F0,2B0", "1F0 is missing"},
      {"0F0,0B0,0F1,0B1\n1F0,1B0", "1F1 is missing"},
      {"0F0,0I0", "0W0 is missing"},
      {"0F0,0W0", "0I0 is missing"},
      {"0F0,0B0,0W0", "0B0 is the whole backward, so 0W0 does part of it twice"},
      {"0F0,0I0,0B0", "0B0 is the whole backward, so 0I0 does part of it twice"},
      {"0F0,0W0,0I0", "0W0 stands before 0I0 on device 0"},
      {"0B0,0F0", "0B0 stands before 0F0 on device 0"},
      {"0I0,0F0,0W0", "0I0 stands before 0F0 on device 0"},
  };
  for (const auto& [csv, sentence] : cases) {
    EXPECT_EQ(flaw(parse_csv(csv)), sentence) << csv;
  }
}

TEST(Flaw, ADeadlockNamesTheDevicesThatWaitForEachOther) {
  // Device 2 waits too, but for others: it is not in the circle.
  EXPECT_EQ(flaw(parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n")),
            "it deadlocks: device 1 cannot run 1F1 before 0F1 of device 0, device 0 cannot run 0B0 before "
            "1B0 of device 1");
  EXPECT_EQ(flaw(parse_csv("1F0,0F0,1B0,0B0")), "it deadlocks: device 0 cannot run 1F0 before 0F0 of device 0");
}

TEST(Flaw, HalvedBackwardsOnOneStageMayMeetWholeOnesOnTheNext) {
  EXPECT_EQ(flaw(parse_csv("0F0,,,0I0,0W0\n,1F0,1B0")), std::nullopt);
  EXPECT_EQ(flaw(parse_csv("0F0,,,,0B0\n,1F0,1I0,1W0")), std::nullopt);
}

TEST(Flaw, NumbersBelowZeroAndBeyondAllBoundsAreSaidWithoutMakingRoomForThem) {
  Grid grid{.rows = {{Action{-1, Computation::forward, 0}}}};
  EXPECT_EQ(flaw(grid), "it has a stage -1, and stages are counted from 0");
  grid.rows = {{Action{0, Computation::forward, -7}}};
  EXPECT_EQ(flaw(grid), "it has a micro-batch -7, and micro-batches are counted from 0");
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  grid.rows = {{Action{most, Computation::forward, most}, Action{most, Computation::backward, most}}};
  EXPECT_EQ(flaw(grid), "0F0 is missing");
  EXPECT_EQ(stages(grid), std::int64_t{most} + 1);
  grid.rows = {{Action{0, Computation::forward, most}, Action{0, Computation::backward, most}}};
  EXPECT_EQ(flaw(grid), "0F0 is missing");
  EXPECT_EQ(micro_batches(grid), std::int64_t{most} + 1);
  EXPECT_TRUE(says(usage_sentence([&] { device_of_stage(grid); }), "0F0 is missing"));
}

TEST(Flaw, WhatNeedsAGridThatRunsIsRefusedWithIt) {
  const Grid grid = parse_csv("0B0,0F0");
  EXPECT_TRUE(says(usage_sentence([&] { sequence(grid); }), "this schedule cannot run: 0B0 stands before 0F0"));
  EXPECT_TRUE(says(usage_sentence([&] { replay(grid); }), "this schedule cannot run: 0B0 stands before 0F0"));
  EXPECT_TRUE(says(usage_sentence([&] { device_of_stage(grid); }), "this schedule cannot run: 0B0 stands before 0F0"));
  EXPECT_TRUE(says(usage_sentence([&] { aligned_sound(grid); }), "this schedule cannot run: 0B0 stands before 0F0"));
  EXPECT_EQ(flaw(Grid{}), "it has no action");
}

TEST(Flaw, AnyActionLeftOutOrDoubledIsFound) {
  for (const Schedule& schedule : schedules()) {
    const Grid whole = schedule.grid({.devices = 3, .chunks = schedule.default_chunks, .micro_batches = 4});
    for (std::size_t d = 0; d < whole.rows.size(); ++d) {
      for (std::size_t slot = 0; slot < whole.rows[d].size(); ++slot) {
        if (!whole.rows[d][slot]) {
          continue;
        }
        const std::string name = to_text(*whole.rows[d][slot]);
        Grid without = whole;
        without.rows[d][slot].reset();
        EXPECT_TRUE(says(flaw(without).value_or(""), name + " is missing")) << schedule.name;
        Grid twice = whole;
        twice.rows[d].push_back(whole.rows[d][slot]);
        EXPECT_EQ(flaw(twice), name + " is there twice") << schedule.name;
      }
    }
  }
}

TEST(AlignedSound, PutsEachActionOfAGridThatCanRunIntoItsSlot) {
  for (const Schedule& schedule : schedules()) {
    const Grid grid = schedule.grid({.devices = 2, .chunks = schedule.default_chunks, .micro_batches = 3});
    Grid close = grid;  // without the slots in which a device waits
    for (auto& row : close.rows) {
      std::erase(row, std::nullopt);
    }
    EXPECT_EQ(aligned_sound(close), grid) << schedule.name;
    EXPECT_EQ(aligned_sound(close), aligned(orders_of(close))) << schedule.name;
  }
  EXPECT_EQ(usage_sentence([] { aligned_sound(parse_csv("1F0,0F0,1B0,0B0")); }),
            "this schedule cannot run: it deadlocks: device 0 cannot run 1F0 before 0F0 of device 0");
}

}  // namespace
}  // namespace baton::schedule
