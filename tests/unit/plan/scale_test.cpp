#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t scale = 20;
#else
constexpr std::size_t scale = 1;
#endif

/// A value that wanders over eight devices: eight ops on each, then it is sent to the next. `tasks` in all,
/// nearly.
Plan wandering(std::size_t tasks) {
  Draft draft;
  for (std::size_t d = 0; d < 8; ++d) {
    draft.devices.push_back(fmt::format("cpu:{}", d));
  }
  const auto add = [&](std::size_t device, bool persistent) {
    return draft.add({.device = DeviceId(device), .persistent = persistent, .shape = {16}, .content = {}, .label = ""});
  };
  draft.tasks.reserve(tasks);
  BufferId at = add(0, true);
  std::size_t device = 0;
  while (draft.tasks.size() + 11 <= tasks) {
    for (int i = 0; i < 8; ++i) {
      const BufferId next = add(device, false);
      draft.tasks.push_back(
          {.action = Compute{op::Relu{}}, .device = DeviceId(device), .labels = {}, .reads = {at}, .writes = {next}, .after = {}});
      at = next;
    }
    const std::size_t peer = (device + 1) % 8;
    const MeetingId meeting = draft.new_meeting();
    const BufferId there = add(peer, false);
    draft.tasks.push_back({.action = Transfer{Transfer::End::send, meeting, DeviceId(peer)},
                           .device = DeviceId(device),
                           .lane = Lane::communication,
                           .labels = {},
                           .reads = {at},
                           .writes = {},
                           .after = {}});
    draft.tasks.push_back({.action = Transfer{Transfer::End::receive, meeting, DeviceId(device)},
                           .device = DeviceId(peer),
                           .lane = Lane::communication,
                           .labels = {},
                           .reads = {},
                           .writes = {there},
                           .after = {}});
    at = there;
    device = peer;
  }
  draft.tasks.push_back({.action = Compute{op::Relu{}},
                         .device = DeviceId(device),
                         .labels = {},
                         .reads = {at},
                         .writes = {add(device, true)},
                         .after = {}});
  return finish(std::move(draft));
}

/// Many micro-batches one after the other, each of which leaves a loss that is read when all are over.
Plan lossy(std::size_t micro_batches) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const BufferId input = draft.add({.device = DeviceId(0), .persistent = true, .shape = {16}, .content = {}, .label = ""});
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const BufferId value = draft.add({.device = DeviceId(0), .shape = {16}, .content = {}, .label = ""});
    const BufferId loss = draft.add({.device = DeviceId(0), .role = Role::loss, .shape = {16}, .content = {}, .label = ""});
    for (const auto& [from, to] : {std::pair(input, value), std::pair(value, loss)}) {
      draft.tasks.push_back(
          {.action = Compute{op::Relu{}}, .device = DeviceId(0), .labels = {}, .reads = {from}, .writes = {to}, .after = {}});
    }
  }
  return finish(std::move(draft));
}

/// Forward and backward of a deep model: every value of the forward lives until its backward.
Plan deep(std::size_t depth) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](bool persistent) {
    return draft.add({.device = DeviceId(0), .persistent = persistent, .shape = {16}, .content = {}, .label = ""});
  };
  std::vector<BufferId> values{add(true)};
  for (std::size_t i = 0; i < depth; ++i) {
    values.push_back(add(false));
    draft.tasks.push_back({.action = Compute{op::Relu{}},
                           .device = DeviceId(0),
                           .labels = {},
                           .reads = {values[i]},
                           .writes = {values[i + 1]},
                           .after = {}});
  }
  BufferId gradient = values[depth];
  for (std::size_t i = depth; i-- > 0;) {
    const BufferId next = add(i == 0);
    draft.tasks.push_back({.action = Compute{op::ReluBackward{}},
                           .device = DeviceId(0),
                           .labels = {},
                           .reads = {gradient, values[i]},
                           .writes = {next},
                           .after = {}});
    gradient = next;
  }
  return finish(std::move(draft));
}

/// Spent by this program: other programs on the machine hardly show in it.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Stages of a pipeline that does all forwards before all backwards: the activations of all micro-batches are there at once, and
/// are freed from the lowest address on while gradients come and go there.
Plan forwards_then_backwards(std::size_t micro_batches) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](std::int64_t extent) {
    return draft.add({.device = DeviceId(0), .shape = {extent}, .content = {}, .label = ""});
  };
  const BufferId input = draft.add({.device = DeviceId(0), .persistent = true, .shape = {16}, .content = {}, .label = ""});
  const BufferId end = draft.add({.device = DeviceId(0), .persistent = true, .shape = {16}, .content = {}, .label = ""});
  const auto put = [&](op::Op op, std::vector<BufferId> reads, BufferId write) {
    draft.tasks.push_back(
        {.action = Compute{op}, .device = DeviceId(0), .labels = {}, .reads = std::move(reads), .writes = {write}, .after = {}});
  };
  std::vector<std::pair<BufferId, BufferId>> kept;
  for (std::size_t m = 0; m < micro_batches; ++m) {
    kept.emplace_back(add(16), add(16));
    put(op::Relu{}, {input}, kept[m].first);
    put(op::Relu{}, {kept[m].first}, kept[m].second);
  }
  BufferId sum = input;
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const BufferId gradient = add(16);
    const BufferId first = add(16);
    const BufferId next = m + 1 == micro_batches ? end : add(16);
    put(op::ReluBackward{}, {kept[m].second, kept[m].second}, gradient);
    put(op::ReluBackward{}, {gradient, kept[m].first}, first);
    put(op::Add{}, {sum, first}, next);
    sum = next;
  }
  return finish(std::move(draft));
}

double seconds_to_verify(const Plan& plan) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = processor_seconds();
    const Verdict verdict = verify(plan);
    const double took = processor_seconds() - begin;
    EXPECT_TRUE(verdict.holds()) << (verdict.holds() ? "" : verdict.violations[0].text);
    best = std::min(best, took);
  }
  return best;
}

TEST(VerifyScale, AMillionTasksTakeSeconds) {
  const Plan plan = wandering(1000000 / scale);
  ASSERT_GT(plan.tasks().size(), 999000 / scale);
  const double seconds = seconds_to_verify(plan);
  fmt::print("{} tasks in {:.2f} s\n", plan.tasks().size(), seconds);
  EXPECT_LT(seconds, 10);
}

TEST(VerifyScale, TenTimesTheTasksTakeAboutTenTimesAsLong) {
  const double few = seconds_to_verify(wandering(50000 / scale));
  const double many = seconds_to_verify(wandering(500000 / scale));
  fmt::print("50k: {:.4f} s, 500k: {:.4f} s\n", few, many);
  EXPECT_LT(many, 60 * few) << "ten times as many outgrow the caches, which costs a few times more; quadratic would be 100";
}

TEST(VerifyScale, SoTheyDoWhenEverythingLivesToTheBackward) {
  const double few = seconds_to_verify(deep(5000 / scale));
  const double many = seconds_to_verify(deep(50000 / scale));
  fmt::print("depth 5k: {:.4f} s, 50k: {:.4f} s\n", few, many);
  EXPECT_LT(many, 60 * few) << "ten times as many outgrow the caches, which costs a few times more; quadratic would be 100";
}

TEST(VerifyScale, SoTheyDoWhenEachMicroBatchLeavesALoss) {
  const double few = seconds_to_verify(lossy(5000 / scale));
  const double many = seconds_to_verify(lossy(50000 / scale));
  fmt::print("5k micro-batches: {:.4f} s, 50k: {:.4f} s\n", few, many);
  EXPECT_LT(many, 60 * few) << "ten times as many outgrow the caches, which costs a few times more; quadratic would be 100";
}

TEST(VerifyScale, SoTheyDoWhenAllForwardsComeBeforeAllBackwards) {
  const double few = seconds_to_verify(forwards_then_backwards(5000 / scale));
  const double many = seconds_to_verify(forwards_then_backwards(50000 / scale));
  fmt::print("5k micro-batches: {:.4f} s, 50k: {:.4f} s\n", few, many);
  EXPECT_LT(many, 60 * few) << "ten times as many outgrow the caches, which costs a few times more; quadratic would be 100";
}

}  // namespace
}  // namespace baton::plan
