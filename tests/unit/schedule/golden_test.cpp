#include <gtest/gtest.h>

#include "baton/schedule/schedule.h"

namespace baton::schedule {
namespace {

std::string drawn(std::string_view name, const Pipeline& pipeline) {
  return "\n" + to_text(schedule_by_name(name).grid(pipeline));
}

TEST(GoldenGrid, NaivePassesOneBatonForthAndBack) {
  EXPECT_EQ(drawn("naive", {.devices = 3, .micro_batches = 2}), R"(
device 0  F0 .. .. .. .. B0 F1 .. .. .. .. B1
device 1  .. F0 .. .. B0 .. .. F1 .. .. B1 ..
device 2  .. .. F0 B0 .. .. .. .. F1 B1 .. ..
)");
}

TEST(GoldenGrid, GpipeRunsAllForwardsAndThenAllBackwards) {
  EXPECT_EQ(drawn("gpipe", {.devices = 4, .micro_batches = 8}), R"(
device 0  F0 F1 F2 F3 F4 F5 F6 F7 .. .. .. .. .. .. B0 B1 B2 B3 B4 B5 B6 B7
device 1  .. F0 F1 F2 F3 F4 F5 F6 F7 .. .. .. .. B0 B1 B2 B3 B4 B5 B6 B7 ..
device 2  .. .. F0 F1 F2 F3 F4 F5 F6 F7 .. .. B0 B1 B2 B3 B4 B5 B6 B7 .. ..
device 3  .. .. .. F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7 .. .. ..
)");
}

TEST(GoldenGrid, OneForwardOneBackwardAlternatesOnceTheFirstBackwardIsBack) {
  EXPECT_EQ(drawn("1f1b", {.devices = 4, .micro_batches = 8}), R"(
device 0  F0 F1 F2 F3 .. .. .. B0 F4 B1 F5 B2 F6 B3 F7 B4 .. B5 .. B6 .. B7
device 1  .. F0 F1 F2 .. .. B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 .. B6 .. B7 ..
device 2  .. .. F0 F1 .. B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 .. B7 .. ..
device 3  .. .. .. F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 .. .. ..
)");
}

}  // namespace
}  // namespace baton::schedule
