#include "baton/op/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>

namespace baton::op {
namespace {

TEST(LossScale, IsHalvedByEveryStepThatOverflows) {
  ScaleState state{.scale = 1024};
  state = adjusted(state, false, 100);
  state = adjusted(state, false, 100);
  EXPECT_EQ(state, (ScaleState{.scale = 256, .good_steps = 0, .skipped_steps = 2, .steps = 2}));
}

TEST(LossScale, IsDoubledAfterSoManyGoodStepsInARow) {
  ScaleState state{.scale = 8};
  for (int step = 0; step < 2; ++step) {
    state = adjusted(state, true, 3);
    EXPECT_EQ(state.scale, 8);
  }
  state = adjusted(state, true, 3);
  EXPECT_EQ(state, (ScaleState{.scale = 16, .good_steps = 0, .skipped_steps = 0, .steps = 3}));
  state = adjusted(adjusted(adjusted(state, true, 3), false, 3), true, 3);  // the row is broken
  EXPECT_EQ(state, (ScaleState{.scale = 8, .good_steps = 1, .skipped_steps = 1, .steps = 6}));
}

TEST(LossScale, WithoutAnIntervalStaysWhereItIsWhileStepsAreStillCounted) {
  ScaleState state{.scale = 100};
  state = adjusted(adjusted(state, false, 0), true, 0);
  EXPECT_EQ(state, (ScaleState{.scale = 100, .good_steps = 1, .skipped_steps = 1, .steps = 2}));
}

TEST(LossScale, DoesNotGrowPastWhatAFloatHolds) {
  ScaleState state{.scale = 0x1p127F};
  state = adjusted(state, true, 1);
  EXPECT_EQ(state.scale, 0x1p127F);
}

TEST(LossScale, CountsUpdatesWithoutTheStepsThatWereSkipped) {
  EXPECT_EQ((ScaleState{.steps = 0}).update_number(), 1);
  EXPECT_EQ((ScaleState{.skipped_steps = 2, .steps = 5}).update_number(), 4);
}

}  // namespace
}  // namespace baton::op
