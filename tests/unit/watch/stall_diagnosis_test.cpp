#include "baton/watch/stall_diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

namespace baton::watch {
namespace {

using plan::Lane;

constexpr Nanoseconds second(1'000'000'000);

/// Where there is a delay, the last device comes late to its backward.
plan::Plan compile(const char* strategy, std::size_t devices, std::int64_t width = 16, Nanoseconds delay = {}) {
  const cluster::Cluster cluster(test::cpus(devices, 1, Bytes(std::int64_t{1} << 40)));
  std::vector<strategy::DelayRequest> delays;
  if (delay.count > 0) {
    delays.push_back({.before = plan::Phase::backward, .device = static_cast<int>(devices) - 1, .duration = delay});
  }
  return strategy::compile({.model = model::mlp({width, width, width}),
                            .cluster = cluster,
                            .strategy = strategy,
                            .step = {.global_batch = 8},
                            .layout = {},
                            .target = {},
                            .delays = delays});
}

/// Ranks with one device each, and where they stand in a plan.
class Ranks {
 public:
  explicit Ranks(const plan::Plan& plan) : plan_(plan), snapshots_(plan.devices().size()) {
    for (std::size_t r = 0; r < snapshots_.size(); ++r) {
      snapshots_[r].activity = ranks::Activity::training;
      snapshots_[r].devices.resize(1);
      rank_of_.push_back(static_cast<int>(r));
      still_.push_back({false});
    }
  }
  StallDiagnosis diagnosis(std::int64_t steps_before = 0) const { return {plan_, rank_of_, steps_before, link}; }

  std::optional<cluster::Link> link;  // that is emulated

  /// The device has ended all tasks of the lane before this one of the given step, and started this one.
  void put(std::size_t rank, TaskId task, std::uint64_t step) {
    for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
      const std::span<const TaskId> tasks = plan_.lane(DeviceId(rank), static_cast<Lane>(lane));
      std::uint64_t done = 0;
      while (done < tasks.size() && tasks[done] < task) {
        ++done;
      }
      snapshots_[rank].devices[0].lanes[lane] = 2 * (step * tasks.size() + done) +
                                                (done < tasks.size() && tasks[done] == task ? 1 : 0);
    }
  }
  ranks::ProgressSnapshot& operator[](std::size_t rank) { return snapshots_[rank]; }
  void freeze(std::size_t rank) { still_[rank][0] = true; }
  const std::vector<ranks::ProgressSnapshot>& snapshots() const { return snapshots_; }
  std::optional<StallDiagnosis::Stall> stall(Nanoseconds patience = second * 5) const {
    return diagnosis().stall(snapshots_, still_, patience);
  }
  std::string describe(int rank, std::int64_t steps_before = 0) const { return diagnosis(steps_before).describe(snapshots_, rank); }

 private:
  const plan::Plan& plan_;
  std::vector<ranks::ProgressSnapshot> snapshots_;
  std::vector<int> rank_of_;
  std::vector<std::vector<bool>> still_;
};

TaskId first(const plan::Plan& plan, std::size_t device, const char* verb) {
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan.tasks()[t].device == DeviceId(device) && plan::verb(plan.tasks()[t]) == verb) {
      return TaskId(t);
    }
  }
  throw BugError("no such task");
}

TaskId collective(const plan::Plan& plan, std::size_t device) { return first(plan, device, "all_reduce"); }

TaskId computation(const plan::Plan& plan, std::size_t device) { return plan.lane(DeviceId(device), Lane::compute)[0]; }

TEST(StallDiagnosis, NamesTheMembersOfACollectiveThatHaveNotCome) {
  const plan::Plan plan = compile("ddp", 4);
  Ranks ranks(plan);
  for (const std::size_t r : {0U, 1U, 3U}) {
    ranks.put(r, collective(plan, r), 7);
  }
  ranks.put(2, computation(plan, 2), 7);
  EXPECT_EQ(ranks.describe(0), "waited in " + plan.describe(collective(plan, 0)) + " of step 8 for rank 2");
  EXPECT_EQ(ranks.describe(2), "was in " + plan.describe(computation(plan, 2)) + " of step 8");
  ranks.put(1, computation(plan, 1), 7);
  EXPECT_NE(ranks.describe(0).find("for ranks 1 and 2"), std::string::npos) << ranks.describe(0);
}

TEST(StallDiagnosis, CountsStepsBehindTheCheckpoint) {
  const plan::Plan plan = compile("ddp", 2);
  Ranks ranks(plan);
  ranks.put(0, computation(plan, 0), 3);
  EXPECT_NE(ranks.describe(0, 100).find("of step 104"), std::string::npos) << ranks.describe(0, 100);
}

TEST(StallDiagnosis, WhoHasGoneOnToTheNextStepHasCome) {
  const plan::Plan plan = compile("ddp", 2);
  Ranks ranks(plan);
  ranks.put(0, collective(plan, 0), 3);
  ranks.put(1, computation(plan, 1), 4);
  EXPECT_EQ(ranks.describe(0), "was moving bytes in " + plan.describe(collective(plan, 0)) + " of step 4");
}

TEST(StallDiagnosis, NamesWhoIsMissingBetweenSteps) {
  const plan::Plan plan = compile("ddp", 3);
  Ranks ranks(plan);
  for (const std::size_t r : {0U, 1U}) {
    ranks.put(r, TaskId(0), 5);
    ranks[r].devices[0].lanes = {};
    for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
      ranks[r].devices[0].lanes[lane] = 2 * 5 * plan.lane(DeviceId(r), static_cast<Lane>(lane)).size();
    }
    ranks[r].gatherings = 11;
  }
  ranks.put(2, computation(plan, 2), 4);
  ranks[2].gatherings = 10;
  EXPECT_EQ(ranks.describe(1), "had done step 5 and waited for rank 2");
  ranks.freeze(2);
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->ranks, std::vector<int>{2});
}

TEST(StallDiagnosis, BlamesTheDeviceThatDoesNotEvenLook) {
  const plan::Plan plan = compile("ddp", 3);
  Ranks ranks(plan);
  for (std::size_t r = 0; r < 3; ++r) {
    ranks.put(r, collective(plan, r), 2);  // all have come, and nothing moves
  }
  ranks.freeze(1);
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->ranks, std::vector<int>{1});
  EXPECT_EQ(ranks.stall()->allowed, second * 5);
}

TEST(StallDiagnosis, BlamesNobodyWhereAllLookAndIsThenMorePatient) {
  const plan::Plan plan = compile("ddp", 3);
  Ranks ranks(plan);
  for (std::size_t r = 0; r < 3; ++r) {
    ranks.put(r, collective(plan, r), 2);
  }
  ASSERT_TRUE(ranks.stall());
  EXPECT_TRUE(ranks.stall()->ranks.empty());
  EXPECT_GE(ranks.stall()->allowed, second * 10);
}

TEST(StallDiagnosis, AllowsALargeTaskTheTimeItTakesOnASlowCore) {
  const plan::Plan small = compile("ddp", 2);
  const plan::Plan large = compile("ddp", 2, 8192);
  for (const plan::Plan* plan : {&small, &large}) {
    Ranks ranks(*plan);
    ranks.put(0, collective(*plan, 0), 0);
    ranks.put(1, computation(*plan, 1), 0);
    ranks.freeze(1);
    ASSERT_TRUE(ranks.stall(second));
    EXPECT_EQ(ranks.stall(second)->ranks, std::vector<int>{1});
    if (plan == &small) {
      EXPECT_EQ(ranks.stall(second)->allowed, second);
    } else {
      EXPECT_GT(ranks.stall(second)->allowed, second * 4);
    }
  }
}

TEST(StallDiagnosis, AllowsAMeetingForWhichAllHaveComeTheTimeOfTheEmulatedLink) {
  const plan::Plan plan = compile("ddp", 2, 512);
  Ranks ranks(plan);
  ranks.put(0, collective(plan, 0), 2);
  ranks.put(1, collective(plan, 1), 2);
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->allowed, second * 10);
  ranks.link = cluster::Link{.latency = Nanoseconds(0), .bandwidth = 1e4};
  ASSERT_TRUE(ranks.stall());
  EXPECT_TRUE(ranks.stall()->ranks.empty());
  EXPECT_GE(ranks.stall()->allowed, second * 10 + cost::link_time(plan, plan::meeting_of(plan[collective(plan, 0)]), *ranks.link));
  EXPECT_GT(ranks.stall()->allowed, second * 100);
  ranks.freeze(1);
  EXPECT_EQ(ranks.stall()->ranks, std::vector<int>{1});
  EXPECT_EQ(ranks.stall()->allowed, second * 5) << "who does not even look is not waiting for a link";
}

TEST(StallDiagnosis, AllowsADelayItsTime) {
  const plan::Plan plan = compile("ddp", 2, 16, Nanoseconds(second * 30));
  Ranks ranks(plan);
  ranks.put(0, collective(plan, 0), 0);
  ranks.put(1, first(plan, 1, "delay"), 0);
  ASSERT_TRUE(ranks.stall());
  EXPECT_TRUE(ranks.stall()->ranks.empty());
  EXPECT_GE(ranks.stall()->allowed, second * 35);
}

TEST(StallDiagnosis, WhoStartsSavesOrEndsMayTakeAMinuteAndIsThenNamed) {
  const plan::Plan plan = compile("ddp", 2);
  for (const ranks::Activity activity : {ranks::Activity::starting, ranks::Activity::between, ranks::Activity::ending}) {
    Ranks ranks(plan);
    ranks.put(0, collective(plan, 0), 0);
    ranks[1].activity = activity;
    ranks.freeze(1);
    ASSERT_TRUE(ranks.stall());
    EXPECT_EQ(ranks.stall()->ranks, std::vector<int>{1});
    EXPECT_GE(ranks.stall()->allowed, second * 60);
  }
}

TEST(StallDiagnosis, WhereARankHasNoDevicesYetNobodyIsBlamed) {
  const plan::Plan plan = compile("ddp", 2);
  Ranks ranks(plan);
  ranks[1].activity = ranks::Activity::starting;
  ranks[1].devices.clear();
  EXPECT_FALSE(ranks.stall());
}

TEST(StallDiagnosis, WhoIsLateForTheSavingHasNoMoreTimeThanOtherwise) {
  const plan::Plan plan = compile("ddp", 2);
  Ranks ranks(plan);
  ranks[0].activity = ranks::Activity::between;
  ranks.put(1, computation(plan, 1), 0);
  ranks.freeze(1);
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->ranks, std::vector<int>{1});
  EXPECT_EQ(ranks.stall()->allowed, second * 5);
}

TEST(StallDiagnosis, WaitingAlongAPipelineNamesTheNeighbourWaitedFor) {
  const plan::Plan plan = compile("layers", 2);
  Ranks ranks(plan);
  ranks.put(1, first(plan, 1, "receive"), 9);
  ranks.put(0, computation(plan, 0), 9);
  EXPECT_NE(ranks.describe(1).find("of step 10 for rank 0"), std::string::npos) << ranks.describe(1);
}

}  // namespace
}  // namespace baton::watch
