#include "baton/trace/analysis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "unit/trace/steps.h"

namespace baton::trace {
namespace {

using SpentOn = PathSegment::SpentOn;

/// Two devices compute, meet in an all-reduce and compute again:
///
///   ns       0         30   45 50 55      70 72        90 95 100
///   0 compute|----A----|---B---|             |----C------|
///   0 comm             |~wait~|===moving=====|
///   1 compute|------A------|delay|           |---C---|
///   1 comm                 |===moving========|
Written meeting_step() {
  Written written{.devices = 2};
  const TaskId a0 = written.compute(0, 0, 30);
  const TaskId r0 = written.all_reduce(0, 0, 30, 70, {a0});
  written.compute(0, 30, 50);
  written.compute(0, 72, 95, {r0});
  const TaskId a1 = written.compute(1, 0, 45);
  const TaskId r1 = written.all_reduce(1, 0, 45, 70, {a1});
  written.delay(1, 45, 55);
  written.compute(1, 72, 90, {r1});
  written.step.duration = Nanoseconds(100);
  return written;
}

TEST(MetAt, IsWhenTheLastMemberCame) {
  const Written written = meeting_step();
  EXPECT_EQ(met_at(written.plan(), written.step, TaskId(1)), Nanoseconds(45));
  EXPECT_EQ(met_at(written.plan(), written.step, TaskId(5)), Nanoseconds(45));
}

TEST(EndedAt, IsWhenTheLastMembersPartWasOver) {
  Written written{.devices = 2};
  written.send(0, 1, 0, 10, 20);
  written.receive(1, 0, 0, 12, 35);
  EXPECT_EQ(ended_at(written.plan(), written.step, TaskId(0)), Nanoseconds(35));
  EXPECT_EQ(ended_at(written.plan(), written.step, TaskId(1)), Nanoseconds(35));
}

TEST(DeviceTimes, OverlapIsWhatMovesWhileTheDeviceComputes) {
  const Written written = meeting_step();
  const DeviceTime time = device_times(written.plan(), written.step)[0];
  EXPECT_EQ(time.busy, Nanoseconds(30 + 20 + 23));
  EXPECT_EQ(time.idle, Nanoseconds(27));
  EXPECT_EQ(time.communication, Nanoseconds(70 - 45)) << "from when they met";
  EXPECT_EQ(time.overlapped, Nanoseconds(50 - 45));
  EXPECT_EQ(time.exposed, Nanoseconds(70 - 50));
  EXPECT_EQ(time.waiting, Nanoseconds(0)) << "it waited while it computed";
  EXPECT_EQ(time.delayed, Nanoseconds(0));
}

TEST(DeviceTimes, ADelayIsNeitherBusyNorExposed) {
  const Written written = meeting_step();
  const DeviceTime time = device_times(written.plan(), written.step)[1];
  EXPECT_EQ(time.busy, Nanoseconds(45 + 18));
  EXPECT_EQ(time.idle, Nanoseconds(37));
  EXPECT_EQ(time.delayed, Nanoseconds(10));
  EXPECT_EQ(time.communication, Nanoseconds(25));
  EXPECT_EQ(time.exposed, Nanoseconds(70 - 55)) << "what moves during the delay is the delay's";
  EXPECT_EQ(time.overlapped, Nanoseconds(0));
  EXPECT_EQ(time.waiting, Nanoseconds(0));
}

/// A receiver comes early and waits for the sender:
///
///   ns       0  5                     40        50     60
///   0 compute|-----------A------------|
///   0 comm                            |==send===|
///   1 comm      |~~~~~~~wait~~~~~~~~~~|=receive=|
///   1 compute                                   |--B---|
Written transfer_step() {
  Written written{.devices = 2};
  const TaskId a = written.compute(0, 0, 40);
  written.send(0, 1, 0, 40, 50, {a});
  const TaskId received = written.receive(1, 0, 0, 5, 50);
  written.compute(1, 50, 60, {received});
  written.step.duration = Nanoseconds(60);
  return written;
}

TEST(DeviceTimes, WaitingEndsWhenTheOtherEndComes) {
  const Written written = transfer_step();
  const std::vector<DeviceTime> times = device_times(written.plan(), written.step);
  EXPECT_EQ(times[0].busy, Nanoseconds(40));
  EXPECT_EQ(times[0].exposed, Nanoseconds(10));
  EXPECT_EQ(times[0].waiting, Nanoseconds(0));
  EXPECT_EQ(times[0].idle, Nanoseconds(20));
  EXPECT_EQ(times[1].busy, Nanoseconds(10));
  EXPECT_EQ(times[1].waiting, Nanoseconds(40 - 5));
  EXPECT_EQ(times[1].exposed, Nanoseconds(10));
  EXPECT_EQ(times[1].idle, Nanoseconds(50)) << "of which 5 are none of these";
}

TEST(DeviceTimes, TwoLanesThatComputeAtOnceAreBusyOnce) {
  Written written;
  written.compute(0, 0, 10);
  written.compute(0, 5, 15, {}, plan::Lane::host);
  written.compute(0, 20, 20);
  written.step.duration = Nanoseconds(25);
  const DeviceTime time = device_times(written.plan(), written.step)[0];
  EXPECT_EQ(time.busy, Nanoseconds(15));
  EXPECT_EQ(time.idle, Nanoseconds(10));
}

TEST(DeviceTimes, ADeviceWithoutTasksIsIdleThroughout) {
  Written written{.devices = 2};
  written.compute(0, 0, 10);
  written.step.duration = Nanoseconds(10);
  const DeviceTime time = device_times(written.plan(), written.step)[1];
  EXPECT_EQ(time.busy, Nanoseconds(0));
  EXPECT_EQ(time.idle, Nanoseconds(10));
}

TEST(DeviceTimes, AddUpFieldByField) {
  const Written written = meeting_step();
  const std::vector<DeviceTime> times = device_times(written.plan(), written.step);
  DeviceTime sum = times[0];
  sum += times[1];
  EXPECT_EQ(sum.busy, Nanoseconds(73 + 63));
  EXPECT_EQ(sum.idle, Nanoseconds(27 + 37));
  EXPECT_EQ(sum.delayed, Nanoseconds(10));
  EXPECT_EQ(sum.exposed, Nanoseconds(20 + 15));
  EXPECT_EQ(sum.communication, Nanoseconds(50));
  EXPECT_EQ(sum.overlapped, Nanoseconds(5));
}

struct Piece {
  SpentOn kind;
  std::uint32_t task;
  std::int64_t start;
  std::int64_t end;
  bool operator==(const Piece&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Piece& piece) {
  return out << "kind " << static_cast<int>(piece.kind) << ", task " << piece.task << ", " << piece.start << " to " << piece.end;
}

std::vector<Piece> path_of(const Written& written) {
  std::vector<Piece> pieces;
  for (const PathSegment& segment : critical_path(written.plan(), written.step)) {
    pieces.push_back({segment.kind, segment.task.value, segment.start.count, segment.end.count});
  }
  return pieces;
}

TEST(CriticalPath, GoesThroughATransferToTheSenderThatWasWaitedFor) {
  // Backwards: the step ends 5 after t4; t4 waited for the receive t3 (until 30) rather than for t2 (until 15); the
  // receive for its sender, which came at 10, when t0 was done; t0 began 2 into the step.
  Written written{.devices = 2};
  const TaskId t0 = written.compute(0, 2, 10);
  written.send(0, 1, 0, 10, 30, {t0});
  written.compute(1, 1, 15);
  const TaskId t3 = written.receive(1, 0, 0, 0, 30);
  written.compute(1, 32, 50, {t3});
  written.step.duration = Nanoseconds(55);
  EXPECT_EQ(path_of(written), (std::vector<Piece>{{SpentOn::overhead, 0, 0, 2},
                                                  {SpentOn::compute, 0, 2, 10},
                                                  {SpentOn::communication, 3, 10, 30},
                                                  {SpentOn::overhead, 4, 30, 32},  // then t4 was started
                                                  {SpentOn::compute, 4, 32, 50},
                                                  {SpentOn::overhead, 4, 50, 55}}));  // nothing was
}

TEST(CriticalPath, GoesThroughACollectiveToTheLastArriver) {
  // Three devices meet; device 1 comes last, at 40, held by a delay. The update of device 2 ends last.
  Written written{.devices = 3};
  const TaskId a0 = written.compute(0, 0, 10);
  const TaskId r0 = written.all_reduce(0, 0, 10, 60, {a0});
  written.compute(0, 60, 70, {r0});
  const TaskId a1 = written.compute(1, 0, 15);
  const TaskId d1 = written.delay(1, 15, 40);
  const TaskId r1 = written.all_reduce(1, 0, 40, 60, {d1});
  written.compute(1, 60, 75, {r1});
  const TaskId a2 = written.compute(2, 0, 30);
  const TaskId r2 = written.all_reduce(2, 0, 30, 60, {a2});
  const TaskId last = written.compute(2, 60, 80, {r2});
  written.step.duration = Nanoseconds(80);
  EXPECT_EQ(path_of(written), (std::vector<Piece>{{SpentOn::compute, a1.value, 0, 15},
                                                  {SpentOn::delay, d1.value, 15, 40},
                                                  {SpentOn::communication, r2.value, 40, 60},
                                                  {SpentOn::compute, last.value, 60, 80}}));
}

TEST(CriticalPath, FollowsTheLaneWhereNothingElseWasWaitedFor) {
  Written written;
  written.compute(0, 0, 10);
  written.compute(0, 10, 30);
  written.step.duration = Nanoseconds(30);
  EXPECT_EQ(path_of(written), (std::vector<Piece>{{SpentOn::compute, 0, 0, 10}, {SpentOn::compute, 1, 10, 30}}));
}

TEST(CriticalPath, OfAStepWithoutTasksIsEmpty) {
  Written written;
  written.step.duration = Nanoseconds(30);
  EXPECT_TRUE(path_of(written).empty());
}

/// A random plan run by hand: each task starts a random while after what it waits for.
Written random_step(unsigned seed) {
  std::mt19937 engine(seed);
  const auto upto = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(engine); };
  Written written{.devices = 3};
  std::vector<std::vector<TaskId>> of_device(3);
  std::vector<std::array<std::int64_t, plan::lane_count>> lane_free(3);
  std::size_t meetings = 0;
  const auto start_of = [&](std::size_t device, plan::Lane lane, const std::vector<TaskId>& after) {
    std::int64_t start = lane_free[device][static_cast<std::size_t>(lane)];
    for (const TaskId id : after) {
      start = std::max(start, written.step.events[id.index()].end.count);
    }
    return start + upto(3);
  };
  const auto some_before = [&](std::size_t device) {
    std::vector<TaskId> after;
    if (!of_device[device].empty() && upto(1) == 0) {
      after.push_back(of_device[device][static_cast<std::size_t>(upto(static_cast<std::int64_t>(of_device[device].size()) - 1))]);
    }
    return after;
  };
  const auto done = [&](std::size_t device, TaskId id) {
    of_device[device].push_back(id);
    lane_free[device][static_cast<std::size_t>(written.tasks[id.index()].lane)] = written.step.events[id.index()].end.count;
  };
  for (int i = 0; i < 40; ++i) {
    if (upto(4) > 0) {
      const auto device = static_cast<std::size_t>(upto(2));
      const std::vector<TaskId> after = some_before(device);
      const std::int64_t start = start_of(device, plan::Lane::compute, after);
      const std::int64_t end = start + upto(20);
      done(device, upto(5) == 0 ? written.delay(device, start, end, after) : written.compute(device, start, end, after));
      continue;
    }
    std::array<std::vector<TaskId>, 3> after;
    std::array<std::int64_t, 3> start{};
    for (std::size_t d = 0; d < 3; ++d) {
      after[d] = some_before(d);
      start[d] = start_of(d, plan::Lane::communication, after[d]);
    }
    const std::int64_t end = *std::max_element(start.begin(), start.end()) + upto(10);
    for (std::size_t d = 0; d < 3; ++d) {
      done(d, written.all_reduce(d, meetings, start[d], end, after[d]));
    }
    ++meetings;
  }
  std::int64_t last = 0;
  for (const Event& event : written.step.events) {
    last = std::max(last, event.end.count);
  }
  written.step.duration = Nanoseconds(last + upto(3));
  return written;
}

TEST(CriticalPath, CoversTheWholeStepWithoutAGapWhateverHappened) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Written written = random_step(seed);
    const std::vector<Piece> path = path_of(written);
    ASSERT_FALSE(path.empty());
    EXPECT_EQ(path.front().start, 0) << "seed " << seed;
    EXPECT_EQ(path.back().end, written.step.duration.count) << "seed " << seed;
    for (std::size_t i = 0; i < path.size(); ++i) {
      EXPECT_LT(path[i].start, path[i].end) << "seed " << seed;
      EXPECT_TRUE(i == 0 || path[i - 1].end == path[i].start) << "seed " << seed;
      const Event& event = written.step.events[path[i].task];
      if (path[i].kind != SpentOn::overhead) {
        EXPECT_GE(path[i].start, event.start.count) << "seed " << seed;
        EXPECT_EQ(path[i].end, event.end.count) << "seed " << seed;
      }
    }
  }
}

TEST(DeviceTimes, AddUpToTheStepWhateverHappened) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Written written = random_step(seed);
    for (const DeviceTime& time : device_times(written.plan(), written.step)) {
      EXPECT_EQ(time.busy + time.idle, written.step.duration);
      EXPECT_LE(time.delayed + time.exposed + time.waiting, time.idle) << "seed " << seed;
      EXPECT_LE(time.overlapped, std::min(time.busy, time.communication)) << "seed " << seed;
      EXPECT_GE(time.communication, time.exposed + time.overlapped) << "seed " << seed;
      EXPECT_LE(time.communication, time.exposed + time.overlapped + time.delayed) << "seed " << seed;
    }
  }
}

std::vector<std::int64_t> spread_of(std::vector<std::int64_t> counts) {
  std::vector<Nanoseconds> times;
  for (const std::int64_t count : counts) {
    times.emplace_back(count);
  }
  const Spread s = spread(times);
  return {s.median.count, s.mean.count, s.std.count, s.p5.count, s.p95.count, s.min.count, s.max.count};
}

TEST(Spread, LiesBetweenNeighboursInProportion) {
  // The p-th percentile of five times is at place 4 p: 0.2 and 3.8. Squares off 300: 40000, 10000, 0, twice; / 4.
  EXPECT_EQ(spread_of({500, 100, 300, 200, 400}), (std::vector<std::int64_t>{300, 300, 158, 120, 480, 100, 500}));
  // Percentiles of four times: places 1.5, 0.15 and 2.85. Squares off 400: 90000 + 40000 + 10000 + 360000 = 500000; / 3 = 408².
  EXPECT_EQ(spread_of({1000, 200, 300, 100}), (std::vector<std::int64_t>{250, 400, 408, 115, 895, 100, 1000}));
}

TEST(Spread, OfOneTimeIsThatTimeAndOfNoneIsZero) {
  EXPECT_EQ(spread_of({70}), (std::vector<std::int64_t>{70, 70, 0, 70, 70, 70, 70}));
  EXPECT_EQ(spread_of({}), (std::vector<std::int64_t>(7, 0)));
}

// The interval of the median

std::vector<Nanoseconds> counting_up(std::int64_t n) {
  std::vector<Nanoseconds> times;
  for (std::int64_t i = n; i > 0; --i) {  // the order must not matter
    times.emplace_back(i);
  }
  return times;
}

TEST(MedianInterval, CoversTheTrueMedianNineteenTimesInTwenty) {
  for (std::int64_t n = 6; n <= 200; ++n) {
    const auto [low, high, level] = median_interval(counting_up(n));
    // The true median lies between the low-th and the high-th of n times if at least `low` and fewer than
    // `high` of them fall below it, each with a chance of a half.
    double covered = 0;
    for (std::int64_t below = low.count; below < high.count; ++below) {
      const auto k = static_cast<double>(below);
      const auto m = static_cast<double>(n);
      covered += std::exp(std::lgamma(m + 1) - std::lgamma(k + 1) - std::lgamma(m - k + 1) - m * std::log(2.0));
    }
    EXPECT_GE(covered, 0.95) << n;
    EXPECT_LE(covered, 0.995) << n << ": wider than it need be";
    EXPECT_NEAR(covered, level, 1e-9) << n;
  }
}

TEST(MedianInterval, OfFewTimesIsAllOfThemAndSaysTheLevelThatHolds) {
  EXPECT_EQ(median_interval({}).high, Nanoseconds(0));
  EXPECT_EQ(median_interval(counting_up(1)).low, Nanoseconds(1));
  EXPECT_EQ(median_interval(counting_up(1)).level, 0) << "one time says nothing of the others";
  EXPECT_EQ(median_interval(counting_up(5)).low, Nanoseconds(1));
  EXPECT_EQ(median_interval(counting_up(5)).high, Nanoseconds(5));
  EXPECT_NEAR(median_interval(counting_up(5)).level, 0.9375, 1e-12) << "1 - 2 / 32";
}

}  // namespace
}  // namespace baton::trace
