#include "baton/base/stop.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Stop, IsAskedForByDegreesAndNeverTakenBack) {
  EXPECT_FALSE(asked_to_stop());
  throw_if_stop_requested();
  ask_to_stop(Stop::after_the_step);
  EXPECT_TRUE(asked_to_stop());
  EXPECT_FALSE(asked_to_stop_at_once());
  EXPECT_THROW(throw_if_stop_requested(), Stopped);
  ask_to_stop(Stop::at_once);
  ask_to_stop(Stop::after_the_step);
  EXPECT_TRUE(asked_to_stop_at_once());
  forget_stop();
  EXPECT_FALSE(asked_to_stop());
}

}  // namespace
}  // namespace baton
