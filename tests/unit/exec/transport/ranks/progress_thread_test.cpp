#include "baton/exec/transport/ranks/progress_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "baton/base/clock.h"
#include "unit/ranks/lonely_world.h"

namespace baton::exec {
namespace {

using namespace std::chrono_literals;

/// How long it takes to look so often, at best of some tries: others may have the core meanwhile.
Nanoseconds quickest(const ranks::test::LonelyWorld& world, int looks) {
  Nanoseconds best(1'000'000'000);
  for (int attempt = 0; attempt < 50; ++attempt) {
    const Nanoseconds start = now();
    for (const int before = world.polls; world.polls < before + looks;) {
      std::this_thread::sleep_for(20us);
    }
    best = std::min(best, now() - start);
  }
  return best;
}

TEST(ProgressThread, WithoutACoreOfItsOwnLooksAfterMessagesLessOftenUntilADeviceSleeps) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  world->busy = true;
  ProgressThread progress(world, true);
  progress.start();
  EXPECT_GE(quickest(*world, 10), Nanoseconds(9 * 500'000));
  progress.device_sleeps();
  EXPECT_LT(quickest(*world, 10), Nanoseconds(9 * 500'000));
  progress.device_wakes();
  EXPECT_GE(quickest(*world, 10), Nanoseconds(8 * 500'000)) << "one nap may have been a short one";
}

TEST(ProgressThread, WithACoreOfItsOwnLooksOften) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  world->busy = true;
  ProgressThread progress(world, false);
  progress.start();
  EXPECT_LT(quickest(*world, 10), Nanoseconds(9 * 500'000));
}

TEST(ProgressThread, SleepsWhileNothingIsUnderWay) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  ProgressThread progress(world, true);
  progress.start();
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(world->polls, 0);
}

}  // namespace
}  // namespace baton::exec
