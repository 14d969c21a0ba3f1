#include "baton/exec/transport/ranks/meeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "unit/ranks/lonely_world.h"

namespace baton::exec {
namespace {

/// Adds one to a number, as the operation of a meeting.
struct Tick {
  float one = 1;
  float total = 0;

  Operation operation() {
    return {Operation::Function::add, DType::f32, 1, {reinterpret_cast<std::byte*>(&one)}, {reinterpret_cast<std::byte*>(&total)}};
  }
};

TEST(RankMeeting, BeginsWhenAllMembersHaveComeAndRunsEachPartAfterThoseItWaitsFor) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  threads::Doorbell bell;
  RankMeeting meeting(world, {&bell, &bell});
  Tick tick;
  const std::size_t came = meeting.add(ranks::Message{ranks::Message::End::receive, 1, 0, nullptr, 0});
  const std::size_t ticked = meeting.add(tick.operation(), {came});
  meeting.add(ranks::Message{ranks::Message::End::send, 1, 1, nullptr, 0}, {ticked});
  meeting.begin_step();
  meeting.arrive();
  EXPECT_FALSE(meeting.met());
  EXPECT_TRUE(world->posted.empty());
  meeting.arrive();
  EXPECT_TRUE(meeting.met());
  ASSERT_EQ(world->posted.size(), 1U) << "the receive, but not yet the send";
  meeting.work();
  EXPECT_EQ(tick.total, 0.0F);
  meeting.over(came);
  EXPECT_EQ(meeting.ready(), 1U);
  meeting.work();
  EXPECT_EQ(tick.total, 1.0F);
  ASSERT_EQ(world->posted.size(), 2U);
  EXPECT_FALSE(meeting.finished());
  meeting.over(world->posted[1].second);
  EXPECT_TRUE(meeting.finished());
}

TEST(RankMeeting, AStepThatWasGivenUpLeavesNothingForTheNext) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  threads::Doorbell bell;
  RankMeeting meeting(world, {&bell});
  std::array<Tick, 3> ticks;
  const std::size_t came = meeting.add(ranks::Message{ranks::Message::End::receive, 1, 0, nullptr, 0});
  meeting.add(ticks[0].operation(), {came});
  meeting.add(ticks[1].operation());
  meeting.add(ticks[2].operation());
  for (const bool given_up : {true, false, true, false}) {
    meeting.begin_step();
    EXPECT_EQ(meeting.ready(), 0U);
    meeting.arrive();
    EXPECT_EQ(meeting.ready(), 2U);
    if (!given_up) {
      meeting.over(came);
      meeting.work();
      EXPECT_TRUE(meeting.finished());
    }
  }
  for (const Tick& tick : ticks) {
    EXPECT_EQ(tick.total, 2.0F);
  }
}

/// The order in which operations can be run changes from step to step, and a thread that looked in one may continue in another.
TEST(RankMeeting, EveryOperationRunsOnceAStepWhoeverRunsIt) {
  constexpr int steps = 20'000;
  constexpr std::size_t parts = 3;
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  threads::Doorbell bell;
  RankMeeting meeting(world, {&bell});
  std::array<Tick, parts> ticks;
  std::array<std::size_t, parts> came{};
  for (std::size_t i = 0; i < parts; ++i) {
    came[i] = meeting.add(ranks::Message{ranks::Message::End::receive, 1, static_cast<int>(i), nullptr, 0});
    meeting.add(ticks[i].operation(), {came[i]});
  }
  meeting.begin_step();
  std::atomic<bool> over{false};
  std::thread helper([&] {
    while (!over.load(std::memory_order_relaxed)) {
      meeting.work();
    }
  });
  int wrong = 0;
  for (int step = 0; step < steps; ++step) {
    meeting.begin_step();
    world->posted.clear();
    meeting.arrive();
    for (std::size_t i = 0; i < parts; ++i) {
      meeting.over(came[(i + static_cast<std::size_t>(step)) % parts]);
    }
    while (!meeting.finished()) {
      meeting.work();
    }
    const auto once = [&](const Tick& tick) { return tick.total == static_cast<float>(step + 1); };
    wrong += std::all_of(ticks.begin(), ticks.end(), once) ? 0 : 1;
  }
  over = true;
  helper.join();
  EXPECT_EQ(wrong, 0) << "steps behind which one had run twice and another not at all";
}

}  // namespace
}  // namespace baton::exec
