#include "baton/schedule/text.h"

#include <gtest/gtest.h>

#include <map>

#include "baton/schedule/schedule.h"
#include "support/usage_sentence.h"

namespace baton::schedule {
namespace {

using test::says;
using test::usage_sentence;

TEST(ScheduleText, EveryScheduleSurvivesTheWayToTheFileAndBack) {
  for (const Schedule& schedule : schedules()) {
    for (const std::int64_t devices : {1, 2, 5}) {
      for (const std::int64_t micro_batches : {1, 3, 12}) {
        const Grid grid = schedule.grid({devices, schedule.default_chunks, micro_batches});
        EXPECT_EQ(parse_csv(to_csv(grid)), grid) << schedule.name;
      }
    }
  }
}

TEST(ScheduleText, AFileHasALineADeviceAndACellASlot) {
  EXPECT_EQ(to_csv(schedule_by_name("1f1b").grid({.devices = 2, .micro_batches = 2})),
            "0F0,0F1,,0B0,,0B1\n"
            ",1F0,1B0,1F1,1B1,\n");
}

TEST(ScheduleText, FilesOfPyTorchWithLinesOfUnequalLengthAreRead) {
  // Python's writer ends lines with \r\n and does not fill them up.
  const Grid grid = parse_csv("0F0,0F1,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(grid, schedule_by_name("1f1b").grid({.devices = 2, .micro_batches = 2}));
  EXPECT_EQ(parse_csv(" 0F0 ,\t0B0\n\n\n"), parse_csv("0F0,0B0"));
  EXPECT_EQ(parse_csv("0F0,0I0,0W0").rows.at(0).at(2), (Action{0, Computation::backward_weight, 0}));
}

TEST(ScheduleText, WhatIsNoActionIsRefusedWithItsLineAndCell) {
  for (const std::string cell : {"0F", "F0", "0", "0X0", "0f0", "0F0x", "-1F0", "0F-1", "0F 0", "+0F0", "0SEND_F0", "99999999999F0",
                                 "0F99999999999", "0F0;0B0", "\"0F0\""}) {
    const std::string sentence = usage_sentence([&] { parse_csv("0F0,0B0\n,1F0," + cell); });
    EXPECT_TRUE(says(sentence, "line 2, cell 3 of the schedule is '" + cell + "'"));
    EXPECT_TRUE(says(sentence, "as in 0F0"));
  }
}

TEST(ScheduleText, NumbersThatTheTableCannotHoldAreRefused) {
  EXPECT_TRUE(says(usage_sentence([] { parse_csv("2000000000F0,0B0"); }),
                   "line 1, cell 1 of the schedule is '2000000000F0', but a table of 2 cells cannot hold "
                   "that many stages"));
  EXPECT_TRUE(says(usage_sentence([] { parse_csv("0F0,0B2000000000"); }), "cannot hold that many micro-batches"));
  EXPECT_EQ(stages(parse_csv("1F0,")), 2);
}

TEST(ScheduleText, ATableThatWouldFillTheMemoryIsRefused) {
  std::string text(100000, ',');
  for (int line = 0; line < 100000; ++line) {
    text += "\n0F0";
  }
  EXPECT_TRUE(says(usage_sentence([&] { parse_csv(text); }), "100001 lines with up to 100001 cells is too large"));
}

TEST(ScheduleText, EmptyFilesAndLinesAreRefused) {
  for (const std::string text : {"", "\n", " \r\n\n"}) {
    EXPECT_TRUE(says(usage_sentence([&] { parse_csv(text); }), "the schedule is empty")) << text;
  }
  EXPECT_TRUE(says(usage_sentence([] { parse_csv("0F0,0B0\n\n1F0,1B0"); }), "line 2 of the schedule is empty"));
}

TEST(ScheduleText, TheTerminalShowsStagesWhereADeviceHasSeveralAndDotsForWaits) {
  EXPECT_EQ(to_text(parse_csv("0F0,,0B0\n,1F0,1B0")), "device 0  F0 .. B0\ndevice 1  .. F0 B0\n");
  EXPECT_EQ(to_text(parse_csv("0F0,1F0,1B0,0B0")), "device 0  0F0 1F0 1B0 0B0\n");
  std::string csv;
  for (int i = 0; i <= 10; ++i) {
    csv += "0F" + std::to_string(i) + ",";
  }
  EXPECT_EQ(to_text(parse_csv(csv)), "device 0  F0  F1  F2  F3  F4  F5  F6  F7  F8  F9  F10 ...\n");
  EXPECT_EQ(to_text(Grid{}), "");
}

TEST(ScheduleText, DevicesAreAlignedWhenThereAreTenOrMore) {
  const std::string text = to_text(schedule_by_name("gpipe").grid({.devices = 11}));
  EXPECT_TRUE(text.starts_with("device  0  F0"));
  EXPECT_TRUE(says(text, "\ndevice 10  .."));
}

}  // namespace
}  // namespace baton::schedule
