#include "baton/sim/memory_contention.h"

#include <gtest/gtest.h>

#include "unit/sim/by_hand.h"

namespace baton::sim {
namespace {

/// Every task takes the time that is written down, times a factor.
struct Times final : cost::CostModel {
  Times(std::vector<std::int64_t> list, std::int64_t times) : base(std::move(list)), factor(times) {}
  Nanoseconds duration(const plan::Plan&, TaskId task) const override { return Nanoseconds(base[task.index()] * factor); }
  Nanoseconds copying(const plan::Plan&, TaskId) const override { return Nanoseconds(0); }
  std::string origin() const override { return ""; }
  std::vector<std::int64_t> base;
  std::int64_t factor;
};

/// Tasks take twice as long while the other device works.
trace::StepTrace walk(const ByHand& hand) {
  const plan::Plan plan = hand.plan();
  return simulate(plan, shared(hand.devices), Times(hand.times, 1), Times(hand.times, 2));
}

TEST(Crowded, ADeviceThatWorksAloneIsNotSlowed) {
  ByHand hand{.devices = 2};
  hand.compute(0, 1000);
  EXPECT_EQ(walk(hand).duration, Nanoseconds(1000));
}

TEST(Crowded, DevicesThatWorkAtTheSameTimeSlowEachOther) {
  ByHand hand{.devices = 2};
  hand.compute(0, 1000);
  hand.compute(1, 1000);
  EXPECT_EQ(walk(hand).duration, Nanoseconds(2000));
}

TEST(Crowded, DevicesThatTakeTurnsDoNot) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.compute(0, 1000);
  hand.send(0, 1, 0, 4, {made});
  const TaskId received = hand.receive(1, 0, 0, 4);
  hand.compute(1, 1000, {received});
  EXPECT_EQ(walk(hand).duration, Nanoseconds(2000));
}

TEST(Crowded, ATaskIsSlowedForAsLongAsTheOtherWorks) {
  // Device 1 works for 1000 at first, all of it while device 0 works: 2000. Device 0 works 4000 if left alone; slowed for as
  // long as device 1 is at it, it takes 5000: 2000 for what would take 1000, and 3000.
  ByHand hand{.devices = 2};
  hand.compute(0, 4000);
  hand.compute(1, 1000);
  const trace::StepTrace step = walk(hand);
  EXPECT_EQ(step.events[1].end, Nanoseconds(2000));
  EXPECT_NEAR(static_cast<double>(step.events[0].end.count), 5000, 10);
}

trace::StepTrace walk_waking(const ByHand& hand, const WakingUp& waking_up) {
  const plan::Plan plan = hand.plan();
  return simulate(plan, shared(hand.devices), Times(hand.times, 1), Times(hand.times, 1), waking_up);
}

TEST(WakingUp, TheFirstProductAfterARestTakesLongerAndTheNextDoesNot) {
  ByHand hand;
  hand.product(0, 100);
  hand.delay(0, 1000);
  hand.compute(0, 50);
  hand.product(0, 100);
  hand.product(0, 100);
  const trace::StepTrace step = walk_waking(hand, {.rest = Nanoseconds(1050), .costs = Nanoseconds(30)});
  EXPECT_EQ(step.events[0].end, Nanoseconds(100)) << "the step before ended with a product";
  EXPECT_EQ(step.events[2].end, Nanoseconds(1150)) << "no product";
  EXPECT_EQ(step.events[3].end, Nanoseconds(1280));
  EXPECT_EQ(step.events[4].end, Nanoseconds(1380));
  EXPECT_EQ(walk_waking(hand, {.rest = Nanoseconds(1051), .costs = Nanoseconds(30)}).duration, Nanoseconds(1350));
}

TEST(WakingUp, ARestMayBeginInTheStepBefore) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.product(0, 1000);
  hand.send(0, 1, 0, 4, {made});
  const TaskId received = hand.receive(1, 0, 0, 4);
  hand.product(1, 1000, {received});
  const trace::StepTrace step = walk_waking(hand, {.rest = Nanoseconds(900), .costs = Nanoseconds(7)});
  EXPECT_EQ(step.duration, Nanoseconds(2014)) << "each rests while the other works";
}

}  // namespace
}  // namespace baton::sim
