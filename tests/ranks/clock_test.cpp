#include <gtest/gtest.h>

#include "baton/ranks/clock_fit.h"
#include "ranks/ranks.h"

namespace baton::test {
namespace {

TEST(Clocks, OfOneMachineAreOneToWithinTheErrorThatIsSaid) {
  const std::vector<ranks::ClockReading> asked = ranks::read_clocks(world(), true);
  if (world().rank() == 0) {
    for (std::size_t r = 1; r < asked.size(); ++r) {
      EXPECT_GT(asked[r].error.count, 0);
      EXPECT_LT(asked[r].error.count, 100'000'000);
      EXPECT_LE(std::abs(asked[r].offset.count), asked[r].error.count) << "of rank " << r;
    }
  }
}

TEST(Clocks, OfOneMachineNeedNotBeAsked) {
  for (const ranks::ClockReading& reading : ranks::read_clocks(world())) {
    EXPECT_EQ(reading.offset.count, 0);
    EXPECT_EQ(reading.error.count, 0);
  }
}

}  // namespace
}  // namespace baton::test
