#include "baton/sim/simulate.h"

#include <gtest/gtest.h>

#include "baton/cost/uniform.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"
#include "unit/sim/by_hand.h"

namespace baton::sim {
namespace {

using plan::Move;
using Lane = plan::Lane;
using Times = ByHand::Times;

///   compute        |--0--|----2----|
///   communication        .  |-1-|       (after 0, but the lane is free at once)
///   host                           |3|  (after 1 and 2)
TEST(Walk, TasksOfALaneFollowOneAnotherAndComeAfterWhatTheyNameOnOthers) {
  ByHand hand;
  const TaskId first = hand.compute(0, 10);
  const TaskId beside = hand.compute(0, 5, {first}, Lane::communication);
  const TaskId second = hand.compute(0, 20);
  hand.compute(0, 3, {beside, second}, Lane::host);
  EXPECT_EQ(hand.walk(free_links(1)), (Times{{0, 10}, {10, 15}, {10, 30}, {30, 33}}));
}

TEST(Walk, WithoutLinksLanesThatAreApartCopyByThemselvesSideBySideWithComputation) {
  ByHand hand{.devices = 2};
  hand.collective(Move::all_reduce, 0, 0, 400, {}, 60);
  hand.compute(0, 100);
  hand.collective(Move::all_reduce, 1, 0, 400, {}, 60);
  std::vector<cluster::Device> list(2, {.name = "gpu", .cores = {}, .memory = Bytes(1 << 30), .shared_lanes = false});
  EXPECT_EQ(hand.walk(cluster::Cluster(list)), (Times{{0, 60}, {0, 100}, {0, 60}}));
}

TEST(Walk, GoesOnWhenPlanClusterAndTimesAreGone) {
  ByHand hand{.devices = 2};
  hand.compute(0, 100);
  hand.collective(Move::all_reduce, 0, 0, 400, {}, 60);
  hand.collective(Move::all_reduce, 1, 0, 400, {}, 60);
  hand.compute(1, 30);
  Simulator simulator(hand.plan(), shared(2), ByHand::Given(0, hand.times));
  trace::StepTrace step;
  for (int i = 0; i < 2; ++i) {
    simulator.run(step);
    Times times;
    for (const trace::Event& event : step.events) {
      times.emplace_back(event.start.count, event.end.count);
    }
    EXPECT_EQ(times, hand.walk(shared(2)));
  }
}

/// Two parts of a GPU: the sum and the computing of a part take as long as both one after the other, in either order.
///   0 compute        |----100----|
///   0 communication  |~~~~~~~~~~~|--sum 60--|
///   1 communication  |--sum 60--|
///   1 compute                   |-------150-------|
TEST(Walk, OnPartsOfAGpuCollectivesTakeTurnsWithComputingAndMessagesDoNot) {
  std::vector<cluster::Device> parts;
  for (int part = 0; part < 2; ++part) {
    parts.push_back(
        {.name = "part", .cores = {}, .memory = Bytes(1 << 30), .shared_lanes = false, .gpu = cluster::GpuPart{0, part, 2}});
  }
  const auto ends = [&](const ByHand& hand) {
    std::vector<std::int64_t> list;
    for (const auto& [start, end] : hand.walk(cluster::Cluster(parts))) {
      list.push_back(end);
    }
    return list;
  };
  ByHand sum{.devices = 2};
  sum.collective(Move::all_reduce, 0, 0, 400, {}, 60);
  sum.compute(0, 100);
  sum.collective(Move::all_reduce, 1, 0, 400, {}, 60);
  sum.compute(1, 150);
  EXPECT_EQ(ends(sum), (std::vector<std::int64_t>{160, 100, 210, 210}));
  ByHand waits{.devices = 2};
  waits.compute(0, 10);
  waits.collective(Move::all_reduce, 0, 0, 400, {TaskId(0)}, 60);
  waits.collective(Move::all_reduce, 1, 0, 400, {}, 60);
  waits.compute(1, 150);
  EXPECT_EQ(ends(waits), (std::vector<std::int64_t>{10, 210, 210, 150})) << "part 0 does nothing of part 1's share";
  ByHand message{.devices = 2};
  message.send(0, 1, 0, 100);
  message.compute(0, 100);
  message.receive(1, 0, 0, 100);
  message.compute(1, 150);
  EXPECT_EQ(ends(message), (std::vector<std::int64_t>{0, 100, 0, 150}));
  for (cluster::Device& part : parts) {
    part.gpu->of = 1;  // two GPUs
  }
  EXPECT_EQ(ends(sum), (std::vector<std::int64_t>{60, 100, 60, 150}));
}

TEST(Walk, ADelayHoldsItsLaneForAsLongAsItSays) {
  ByHand hand;
  hand.compute(0, 10);
  hand.delay(0, 100);
  hand.compute(0, 10);
  EXPECT_EQ(hand.walk(free_links(1)), (Times{{0, 10}, {10, 110}, {110, 120}}));
  EXPECT_EQ(hand.walk(shared(1)), (Times{{0, 10}, {10, 110}, {110, 120}}));
}

///   0 compute        |----40----|
///   0 communication             |=send 7+100=|
///   1 communication  |~~waits~~~|==receive===|
///   1 compute                                |--9--|
TEST(Walk, ATransferTakesLatencyAndBytesOverBandwidthOnceBothEndsHaveCome) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.compute(0, 40);
  hand.send(0, 1, 0, 100, {made});
  const TaskId received = hand.receive(1, 0, 0, 100);
  hand.compute(1, 9, {received});
  EXPECT_EQ(hand.walk(wired(2, {.port = slow(7)})), (Times{{0, 40}, {40, 147}, {0, 147}, {147, 156}}));
  EXPECT_EQ(hand.walk(free_links(2)), (Times{{0, 40}, {40, 40}, {0, 40}, {40, 49}}));
}

/// A message that has not come holds up the sums after it in the lane, unless streams are apart. What reads the message
/// waits for it in any case.
///   0 compute        |---100---|
///   0 communication            |send|
///   1 communication  |~~~~receive~~~|          2: a sum with 0, ready from the start
TEST(Walk, WhereStreamsAreApartAMessageHoldsUpOnlyWhatReadsIt) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.compute(0, 100);
  hand.send(0, 1, 0, 40, {made});
  hand.collective(Move::all_reduce, 0, 1, 40);
  hand.receive(1, 0, 0, 40);
  hand.collective(Move::all_reduce, 1, 1, 40);
  hand.collective(Move::all_reduce, 0, 2, 40);
  hand.collective(Move::all_reduce, 1, 2, 40);
  hand.tasks.back().reads = hand.tasks[3].writes;  // the last sum is of what was received
  struct Apart final : cost::CostModel {
    explicit Apart(const ByHand& hand) : given(0, hand.times) {}
    Nanoseconds duration(const plan::Plan& plan, TaskId task) const override { return given.duration(plan, task); }
    Nanoseconds copying(const plan::Plan& plan, TaskId task) const override { return given.copying(plan, task); }
    std::string origin() const override { return "by hand"; }
    bool streams_apart() const override { return true; }
    ByHand::Given given;
  };
  const plan::Plan plan = hand.plan();
  const cluster::Cluster cluster = free_links(2);
  const trace::StepTrace lane = simulate(plan, cluster, ByHand::Given(0, hand.times));
  EXPECT_EQ(lane.events[4].start.count, 100);
  const trace::StepTrace apart = simulate(plan, cluster, Apart(hand));
  EXPECT_EQ(apart.events[4].start.count, 0);
  EXPECT_EQ(apart.events[4].end.count, 0);
  EXPECT_EQ(apart.events[3].end.count, 100);
  EXPECT_EQ(apart.events[6].start.count, 100);
}

/// Two nodes of two devices, one network port each: 0→2 from the start, 1→3 from 400 on.
///   until 400    0→2 alone: 400 of 1000 bytes
///   until 1600   half the port each: 600 bytes of both
///   until 2000   1→3 alone: its last 400
TEST(Walk, TransfersOnOneLinkShareItEvenlyFromMomentToMoment) {
  ByHand hand{.devices = 4};
  hand.send(0, 2, 0, 1000);
  hand.receive(2, 0, 0, 1000);
  const TaskId late = hand.compute(1, 400);
  hand.send(1, 3, 1, 1000, {late});
  hand.receive(3, 1, 1, 1000);
  const cluster::Wiring wiring{.port = {}, .network = slow(0)};
  EXPECT_EQ(hand.walk(wired(4, wiring, 2)), (Times{{0, 1600}, {0, 1600}, {0, 400}, {400, 2000}, {0, 2000}}));
  EXPECT_EQ(hand.walk(wired(4, {.port = {}, .network = slow(0), .network_ports = 2}, 2)),
            (Times{{0, 1000}, {0, 1000}, {0, 400}, {400, 1400}, {0, 1400}}))
      << "a port for each device: nothing to share";
}

/// Messages are under way until 1200.
TEST(Walk, MessagesThatTakeAShareOfACoreDelayWhatComputesBesideThemByThatAndNothingElse) {
  ByHand hand{.devices = 2};
  hand.send(0, 1, 0, 1000);
  hand.compute(0, 900);
  hand.receive(1, 0, 0, 1000);
  hand.compute(1, 100);  // all while messages are under way
  cluster::Link link = slow(200);
  EXPECT_EQ(hand.walk(shared(2, link)), (Times{{0, 1200}, {0, 900}, {0, 1200}, {0, 100}}));
  link.core_share = 0.5;
  EXPECT_EQ(hand.walk(shared(2, link)), (Times{{0, 1500}, {0, 1500}, {0, 1200}, {0, 200}})) << "600 of the 900 by 1200";
  link.core_share = 0.25;
  EXPECT_EQ(hand.walk(shared(2, link)), (Times{{0, 1200}, {0, 1200}, {0, 1200}, {0, 133}}));
}

TEST(Walk, WhatMessagesTakeOfACoreIsOfNoConcernToLanesThatAreApart) {
  ByHand hand{.devices = 2};
  hand.send(0, 1, 0, 1000);
  hand.compute(0, 900);
  hand.receive(1, 0, 0, 1000);
  cluster::Link link = slow(0);
  link.core_share = 0.5;
  EXPECT_EQ(hand.walk(wired(2, {.port = link})), (Times{{0, 1000}, {0, 900}, {0, 1000}}));
}

/// Two messages at once between two nodes: together they use the network, which takes a half of the cores whichever they are.
TEST(Walk, SeveralMessagesAtOnceTakeNoMoreOfACoreThanOne) {
  ByHand hand{.devices = 2};
  hand.send(0, 1, 0, 1000);
  hand.send(0, 1, 1, 1000, {}, Lane::host);
  hand.compute(0, 500);
  hand.receive(1, 0, 0, 1000);
  hand.receive(1, 0, 1, 1000, 0, Lane::host);
  cluster::Link network = slow(0);
  network.core_share = 0.5;
  std::vector<cluster::Device> list;
  for (int d = 0; d < 2; ++d) {
    list.push_back({.name = fmt::format("d{}", d), .cores = {d}, .memory = Bytes(1 << 30), .node = d});
  }
  const cluster::Wiring wiring{.port = {}, .network = network};
  const Times times = hand.walk(cluster::Cluster(list, std::nullopt, wiring));
  EXPECT_EQ(times[2], (std::pair<std::int64_t, std::int64_t>{0, 1000}));
}

TEST(Walk, BothDirectionsOfAPortAreApartButABusIsOne) {
  ByHand hand{.devices = 2};
  hand.send(0, 1, 0, 1000);
  hand.receive(1, 0, 0, 1000);
  hand.send(1, 0, 1, 1000, {}, Lane::host);
  hand.receive(0, 1, 1, 1000, 0, Lane::host);
  EXPECT_EQ(hand.walk(wired(2, {.port = slow(0)})), (Times{{0, 1000}, {0, 1000}, {0, 1000}, {0, 1000}}));
  EXPECT_EQ(hand.walk(wired(2, {.port = slow(0), .bus = 1e9})), (Times{{0, 2000}, {0, 2000}, {0, 2000}, {0, 2000}}));
}

TEST(Walk, ACollectiveIsSlowedByATransferOnOneOfItsLinks) {
  // A ring all-reduce of 4000 bytes over four takes 6 rounds of 1000 bytes, all at the pace of its slowest link. From
  // 0 to 4000 device 0's way out is shared with a transfer of 2000 bytes, so 2000 of 6000 bytes pass; then 4000 more.
  ByHand hand{.devices = 4};
  for (std::size_t d = 0; d < 4; ++d) {
    hand.collective(Move::all_reduce, d, 0, 4000);
  }
  hand.send(0, 2, 1, 2000, {}, Lane::host);
  hand.receive(2, 0, 1, 2000, 0, Lane::host);
  const Times times = hand.walk(wired(4, {.port = slow(0)}));
  EXPECT_EQ(times[0], (std::pair<std::int64_t, std::int64_t>{0, 8000}));
  EXPECT_EQ(times[3], times[0]);
  EXPECT_EQ(times[4], (std::pair<std::int64_t, std::int64_t>{0, 4000}));
}

/// One thread for all lanes: the kernel of 100 keeps device 0 from coming to the transfer until it is over; the receiver
/// then copies for 50 while the sender, with nothing else to do, helps it, so that it takes 25.
TEST(SharedLanes, ADeviceComesToAMeetingBetweenItsKernelsAndIdleMembersHelp) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.compute(0, 100);
  hand.send(0, 1, 0, 400, {made});
  const TaskId received = hand.receive(1, 0, 0, 400, 50);
  hand.compute(1, 10, {received});
  EXPECT_EQ(hand.walk(shared(2)), (Times{{0, 100}, {100, 125}, {0, 125}, {125, 135}}));
}

/// Both bring 60 of copying. Device 0 comes at 0, finds nobody and begins a kernel.
///   0   |come|--------kernel 200---------|over
///   1   |--late 30--|its own 60|the other 60|
TEST(SharedLanes, AKernelUnderWayKeepsItsDeviceFromItsPartAndTheOtherDoesBoth) {
  ByHand hand{.devices = 2};
  hand.collective(Move::all_reduce, 0, 0, 400, {}, 60);
  hand.compute(0, 200);
  const TaskId late = hand.compute(1, 30);
  hand.collective(Move::all_reduce, 1, 0, 400, {late}, 60);
  EXPECT_EQ(hand.walk(shared(2)), (Times{{0, 200}, {0, 200}, {0, 30}, {30, 150}}));
}

/// Device 0 comes first, finds nobody and begins a kernel; device 1 comes last and goes to work at once, leaves when its
/// own part is done, since it has a kernel too, and comes back with nothing else to do. At 100 half of device 0's part is
/// left, and both work at it.
///   0   |come|-----kernel 100------|15|
///   1   |come, its own 60|10| helps 30|15|
TEST(SharedLanes, AMemberWithOtherWorkLeavesAfterItsPart) {
  ByHand hand{.devices = 2};
  hand.collective(Move::all_reduce, 0, 0, 400, {}, 60);
  hand.compute(0, 100);
  hand.collective(Move::all_reduce, 1, 0, 400, {}, 60);
  hand.compute(1, 10);
  EXPECT_EQ(hand.walk(shared(2)), (Times{{0, 115}, {0, 100}, {0, 115}, {60, 70}}));
}

TEST(SharedLanes, AnEmulatedLinkHoldsTheMessageBackWhileTheDeviceComputes) {
  ByHand hand{.devices = 2};
  hand.send(0, 1, 0, 1000);
  hand.compute(0, 300);
  hand.receive(1, 0, 0, 1000, 0);
  EXPECT_EQ(hand.walk(shared(2, slow(200))), (Times{{0, 1200}, {0, 300}, {0, 1200}}));
}

TEST(SharedLanes, DevicesOnOneCoreTakeTurns) {
  ByHand hand{.devices = 2};
  hand.compute(0, 100);
  hand.compute(1, 100);
  const Times times = hand.walk(shared(2, std::nullopt, true));
  EXPECT_EQ(times[0].second + times[1].second, 300);
  EXPECT_EQ(std::max(times[0].second, times[1].second), 200);
}

TEST(Trace, CarriesTheBytesOfEachTaskAndAnalysisReadsIt) {
  ByHand hand{.devices = 2};
  const TaskId made = hand.compute(0, 40);
  hand.send(0, 1, 0, 100, {made});
  const TaskId received = hand.receive(1, 0, 0, 100);
  hand.compute(1, 9, {received});
  const plan::Plan plan = hand.plan();
  const trace::StepTrace step = simulate(plan, wired(2, {.port = slow(7)}), ByHand::Given(0, hand.times));
  EXPECT_EQ(step.duration, Nanoseconds(156));
  EXPECT_EQ(step.events[1].sent, Bytes(100));
  EXPECT_EQ(step.events[2].received, Bytes(100));
  const std::vector<trace::DeviceTime> times = trace::device_times(plan, step);
  EXPECT_EQ(times[0].busy, Nanoseconds(40));
  EXPECT_EQ(times[0].exposed, Nanoseconds(107));
  EXPECT_EQ(times[1].waiting, Nanoseconds(40));
  EXPECT_EQ(times[1].busy, Nanoseconds(9));
  const std::vector<trace::PathSegment> path = trace::critical_path(plan, step);
  ASSERT_EQ(path.size(), 3U);
  EXPECT_EQ(path[1].kind, trace::PathSegment::SpentOn::communication);
  EXPECT_EQ(path[1].end - path[1].start, Nanoseconds(107));
}

plan::Plan compiled(const std::string& strategy, const cluster::Cluster& cluster) {
  const model::Model model = model::mlp(std::vector<std::int64_t>(9, 16));
  return strategy::compile({.model = model,
                            .cluster = cluster,
                            .strategy = strategy,
                            .step = {.global_batch = 64},
                            .layout = {.bucket = Bytes(1), .first_bucket = Bytes(1)}});
}

TEST(Walk, EveryStrategyRunsInOrderOnEveryKindOfClusterAndTwiceTheSame) {
  const cost::Uniform cost({{"linear", Nanoseconds(1000)},
                            {"linear_backward_weight", Nanoseconds(1500)},
                            {"linear_backward_input", Nanoseconds(900)},
                            {"sgd", Nanoseconds(70)},
                            {"relu", Nanoseconds(3)}});
  const std::vector<cluster::Cluster> clusters{
      free_links(4), wired(4, {.port = slow(30)}), wired(4, {.port = slow(3), .network = slow(50)}, 2),
      shared(4),     shared(4, slow(10)),          shared(4, std::nullopt, true)};
  for (const cluster::Cluster& cluster : clusters) {
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      const plan::Plan plan = compiled(strategy.name(), cluster);
      Simulator simulator(plan, cluster, cost);
      trace::StepTrace step;
      simulator.run(step);
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        ASSERT_LE(step.events[t].start, step.events[t].end);
        for (const TaskId before : plan.tasks()[t].after) {
          ASSERT_LE(step.events[before.index()].end, step.events[t].start) << strategy.name() << plan.describe(TaskId(t));
        }
      }
      for (const trace::DeviceTime& time : trace::device_times(plan, step)) {
        EXPECT_EQ(time.busy + time.idle, step.duration);
      }
      Nanoseconds covered;
      for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
        covered += segment.end - segment.start;
      }
      EXPECT_EQ(covered, step.duration);
      trace::StepTrace again;
      simulator.run(again);
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        ASSERT_EQ(step.events[t].start, again.events[t].start);
        ASSERT_EQ(step.events[t].end, again.events[t].end);
      }
    }
  }
}

}  // namespace
}  // namespace baton::sim
