#include "baton/trace/arrivals.h"

#include <gtest/gtest.h>

#include "unit/trace/steps.h"

namespace baton::trace {
namespace {

/// Three devices meet twice; device 1 computes longer before the first, device 2 before the second.
///
///   ns        0      10        40  50      60
///   0         |--A---|~~~~~~~~~|===|--B--|~|
///   1         |--A------------------|===|-B|
///   2         |--A---|~~~~~~~~~|===|--B----|
Written two_meetings() {
  Written written{.devices = 3};
  const std::int64_t first[] = {10, 40, 12};
  const std::int64_t second[] = {55, 54, 70};
  for (std::size_t d = 0; d < 3; ++d) {
    written.compute(d, 0, first[d]);
    written.all_reduce(d, 0, first[d], 50);
    const TaskId later = written.compute(d, 50, second[d]);
    written.tasks[later.index()].labels.phase = plan::Phase::backward;
    written.all_reduce(d, 1, second[d], 80);
  }
  written.step.duration = Nanoseconds(80);
  return written;
}

TEST(Arrivals, TheLastToComeHoldsUpTheOthersFromWhenTheSecondLastCame) {
  const Written written = two_meetings();
  const std::vector<Arrivals> all = arrivals(written.plan(), written.step);
  EXPECT_EQ(all[0].collectives, 2);
  EXPECT_EQ(all[0].last, 0);
  EXPECT_EQ(all[0].held_up, Nanoseconds(0));
  EXPECT_EQ(all[1].last, 1);
  EXPECT_EQ(all[1].held_up, Nanoseconds(40 - 12));
  EXPECT_EQ(all[2].last, 1);
  EXPECT_EQ(all[2].held_up, Nanoseconds(70 - 55));
}

TEST(Arrivals, TheExcessIsInThePhaseThatTookLongerThanTheOthers) {
  const Written written = two_meetings();
  const plan::Plan plan = written.plan();
  const std::vector<Arrivals> all = arrivals(plan, written.step);
  EXPECT_EQ(excess(plan, all, DeviceId(1)).phase, plan::Phase::forward);
  EXPECT_EQ(excess(plan, all, DeviceId(1)).time, Nanoseconds(40 - 11)) << "the median of 10 and 12";
  EXPECT_EQ(excess(plan, all, DeviceId(2)).phase, plan::Phase::backward);
  EXPECT_EQ(excess(plan, all, DeviceId(2)).time, Nanoseconds(20 - 5));
}

TEST(Arrivals, ADelayIsTimeOfItsPhase) {
  Written written{.devices = 2};
  const TaskId slept = written.delay(1, 0, 30);
  written.tasks[slept.index()].labels.phase = plan::Phase::update;
  written.all_reduce(0, 0, 0, 40);
  written.all_reduce(1, 0, 30, 40);
  written.step.duration = Nanoseconds(40);
  const plan::Plan plan = written.plan();
  const std::vector<Arrivals> all = arrivals(plan, written.step);
  EXPECT_EQ(excess(plan, all, DeviceId(1)).phase, plan::Phase::update);
  EXPECT_EQ(excess(plan, all, DeviceId(1)).time, Nanoseconds(30));
}

TEST(Arrivals, TransfersAreNoCollectives) {
  Written written{.devices = 2};
  written.send(0, 1, 0, 40, 50);
  written.receive(1, 0, 0, 5, 50);
  written.step.duration = Nanoseconds(50);
  const plan::Plan plan = written.plan();
  const std::vector<Arrivals> all = arrivals(plan, written.step);
  EXPECT_EQ(all[0].collectives, 0);
  EXPECT_EQ(all[0].last, 0);
  EXPECT_EQ(excess(plan, all, DeviceId(0)).time, Nanoseconds(0));
}

}  // namespace
}  // namespace baton::trace
