#include "baton/plan/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/usage_sentence.h"
#include "unit/plan/brute_force.h"
#include "unit/plan/mutate.h"
#include "unit/plan/sample_plans.h"

namespace baton::plan {
namespace {

using test::Judgement;
using test::Mutant;
using test::Mutation;
using test::sample_plans;

/// What each device's arena must hold, from where the buffers lie.
std::vector<Bytes> arena_ends(const Plan& plan, const Memory& memory) {
  std::vector<Bytes> ends(plan.devices().size());
  std::vector<bool> touched(plan.buffers().size(), false);
  for (const Task& task : plan.tasks()) {
    for (const auto* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        touched[id.index()] = true;
      }
    }
  }
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    if (touched[b] || buffer.persistent) {
      const std::int64_t size = (buffer.size().count + 63) / 64 * 64;
      Bytes& end = ends[buffer.device.index()];
      end = std::max(end, Bytes(memory.offset[b] + size));
    }
  }
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const Task& task = plan.tasks()[t];
    if (task.workspace.count > 0) {
      Bytes& end = ends[task.device.index()];
      end = std::max(end, Bytes(memory.workspace[t] + (task.workspace.count + 63) / 64 * 64));
    }
  }
  return ends;
}

/// Whether each task of a reported circle waits for the next one, or for one that must start with it.
::testing::AssertionResult is_circle(const Plan& plan, const std::vector<TaskId>& circle) {
  const std::vector<std::size_t> node = test::waiting_nodes(plan);
  for (std::size_t i = 0; i < circle.size(); ++i) {
    const std::size_t next = node[circle[(i + 1) % circle.size()].index()];
    const std::vector<std::size_t> waits = test::waits_for(plan, circle[i].index());
    if (std::none_of(waits.begin(), waits.end(), [&](std::size_t w) { return node[w] == next; })) {
      return ::testing::AssertionFailure() << plan.describe(circle[i]) << " does not wait for the next of the circle";
    }
  }
  return circle.empty() ? ::testing::AssertionFailure() << "an empty circle" : ::testing::AssertionSuccess();
}

/// Compares verify's verdict with that of the brute-force check: right or wrong, by which rules, and which tasks are to
/// blame.
::testing::AssertionResult agrees(const Plan& plan, const Limits& limits, const Verdict& verdict, Judgement truth,
                                  const std::vector<Bytes>& peak) {
  if (truth.right()) {
    for (std::size_t d = 0; d < limits.memory.size(); ++d) {
      if (peak[d] > limits.memory[d]) {
        truth.broken.insert(Rule::memory);
      }
    }
  }
  std::set<Rule> reported;
  for (const Violation& violation : verdict.violations) {
    reported.insert(violation.rule);
    bool blamed = truth.broken.contains(violation.rule);
    if (violation.rule == Rule::ordered) {
      blamed = violation.tasks.size() == 2 && truth.unordered.contains({violation.tasks[0].index(), violation.tasks[1].index()});
    } else if (violation.rule == Rule::waiting) {
      blamed = blamed && is_circle(plan, violation.tasks);
    } else {
      for (const TaskId id : violation.tasks) {
        blamed = blamed && truth.guilty.contains({violation.rule, id.index()});
      }
      // Where touches are not ordered, it depends on the order one happens to take whether a value is there
      // in time.
      blamed = blamed || ((violation.rule == Rule::written || violation.rule == Rule::read) && violation.tasks.size() == 1 &&
                          truth.unsure.contains(violation.tasks[0].index()));
    }
    if (!blamed) {
      return ::testing::AssertionFailure() << "verify says (" << to_text(violation.rule) << ") " << violation.text
                                           << ", but that is not so";
    }
    if (violation.tasks.empty() != (violation.rule == Rule::memory) || violation.text.empty()) {
      return ::testing::AssertionFailure() << "a violation of " << to_text(violation.rule) << " names nobody";
    }
  }
  if (verdict.holds() != truth.right()) {
    std::string rules;
    for (const Rule rule : truth.broken) {
      rules += fmt::format(" {}", to_text(rule));
    }
    return ::testing::AssertionFailure() << "verify says " << (verdict.holds() ? "right" : "wrong") << ", but broken are:" << rules;
  }
  if (verdict.violations.size() < Verdict::max_violations) {
    for (const Rule rule : truth.broken) {
      if (!reported.contains(rule)) {
        return ::testing::AssertionFailure() << "verify does not report " << to_text(rule);
      }
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Verify, AcceptsThePlansOfEveryStrategy) {
  for (const test::Sample& sample : sample_plans()) {
    const Verdict verdict = verify(sample.plan);
    EXPECT_TRUE(verdict.holds()) << sample.name << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
    EXPECT_TRUE(test::judge(sample.plan).right()) << sample.name;
    EXPECT_EQ(verdict.ordering.sequence.size(), sample.plan.tasks().size());
    EXPECT_NO_THROW(require(verdict));
  }
}

TEST(Verify, KnowsExactlyWhichTasksAreOrderedForCertain) {
  for (const test::Sample& sample : sample_plans()) {
    const Plan& plan = sample.plan;
    const test::Before before(plan);
    const Ordering ordering = order(plan);
    for (std::size_t a = 0; a < plan.tasks().size(); ++a) {
      for (std::size_t b = 0; b < plan.tasks().size(); ++b) {
        if (plan.tasks()[a].device == plan.tasks()[b].device) {
          ASSERT_EQ(ordering.ordered(plan, TaskId(a), TaskId(b)), before(a, b)) << sample.name << ", t" << a << " and t" << b;
        }
      }
    }
  }
}

/// The heart of the matter: whatever is spoilt, verify and the slow judge see the same.
TEST(Verify, AgreesWithBruteForceOnEveryMutant) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int rounds = 60;
#else
  constexpr int rounds = 1000;
#endif
  // How many of each kind must turn out wrong, and how many right (a change can be harmless), in percent.
  struct Share {
    int wrong;
    int right;
  };
  const std::map<Mutation, Share> least{
      {Mutation::drop_edge, {40, 2}},      {Mutation::reverse_edge, {60, 0}},       {Mutation::add_edge, {30, 20}},
      {Mutation::swap_meetings, {60, 0}},  {Mutation::redirect_read, {50, 0}},      {Mutation::redirect_write, {80, 0}},
      {Mutation::drop_transfer, {90, 0}},  {Mutation::drop_transfer_end, {100, 0}}, {Mutation::change_transfer, {60, 5}},
      {Mutation::drop_member, {100, 0}},   {Mutation::change_collective, {50, 5}},  {Mutation::move_task, {90, 0}},
      {Mutation::change_lane, {30, 5}},    {Mutation::delete_task, {70, 1}},        {Mutation::change_buffer, {50, 5}},
      {Mutation::change_scaling, {90, 1}}, {Mutation::lose_kernel, {70, 5}},        {Mutation::shrink_memory, {40, 20}}};
  ASSERT_EQ(least.size(), test::mutation_count);

  std::vector<std::vector<Bytes>> peaks;
  for (const test::Sample& sample : sample_plans()) {
    const Verdict verdict = verify(sample.plan);
    ASSERT_TRUE(verdict.holds()) << sample.name;
    peaks.push_back(arena_ends(sample.plan, verdict.memory));
  }
  std::set<Rule> rules_seen;
  int mutants = 0;
  for (const auto& [mutation, share] : least) {
    int wrong = 0;
    int right = 0;
    for (std::uint32_t seed = 0; wrong + right < rounds; ++seed) {
      ASSERT_LT(seed, 100U * rounds) << test::to_text(mutation) << " finds no place";
      std::mt19937 random(seed * 1000 + static_cast<std::uint32_t>(mutation));
      const std::size_t which = random() % sample_plans().size();
      const test::Sample& sample = sample_plans()[which];
      const std::optional<test::Mutant> mutant = test::mutate(sample.plan, peaks[which], mutation, random);
      if (!mutant) {
        continue;
      }
      const Verdict verdict = verify(mutant->plan, mutant->limits);
      const Judgement truth = test::judge(mutant->plan, mutant->limits);
      const ::testing::AssertionResult same = agrees(mutant->plan, mutant->limits, verdict, truth, peaks[which]);
      ASSERT_TRUE(same) << test::to_text(mutation) << ", seed " << seed << ", of " << sample.name;
      ++(verdict.holds() ? right : wrong);
      for (const Violation& violation : verdict.violations) {
        rules_seen.insert(violation.rule);
      }
    }
    fmt::print("{:>18}: {} wrong, {} right\n", test::to_text(mutation), wrong, right);
    EXPECT_GE(wrong, share.wrong * rounds / 100) << test::to_text(mutation);
    EXPECT_GE(right, share.right * rounds / 100) << test::to_text(mutation);
    mutants += wrong + right;
  }
  EXPECT_GE(mutants, static_cast<int>(test::mutation_count) * rounds);
  EXPECT_EQ(rules_seen.size(), 9U) << "some rule was never broken";
}

TEST(Verify, AgreesWithBruteForceOnWhatIsSpoiltTwice) {
  int wrong = 0;
  for (std::uint32_t seed = 0; wrong < 1000; ++seed) {
    std::mt19937 random(seed);
    const test::Sample& sample = sample_plans()[random() % sample_plans().size()];
    const std::vector<Bytes> plenty(sample.plan.devices().size(), Bytes(1 << 30));
    std::optional<test::Mutant> mutant = Mutant{sample.plan, {}};
    for (int i = 0; i < 2 && mutant; ++i) {
      // The last kind, of memory, asks how much a right plan needs, and this one is none.
      const auto mutation = static_cast<Mutation>(random() % (test::mutation_count - 1));
      mutant = test::mutate(mutant->plan, plenty, mutation, random);
    }
    if (!mutant) {
      continue;
    }
    const Verdict verdict = verify(mutant->plan, mutant->limits);
    const Judgement truth = test::judge(mutant->plan, mutant->limits);
    ASSERT_TRUE(agrees(mutant->plan, mutant->limits, verdict, truth, plenty)) << "seed " << seed << ", of " << sample.name;
    wrong += verdict.holds() ? 0 : 1;
  }
}

// ---- Each rule once by hand, for the reader.

/// x on device 0 → relu → sent → relu on device 1, which keeps the result.
struct Relay {
  Relay() {
    draft.devices = {"cpu:0", "cpu:1"};
    const auto add = [&](std::size_t device, bool persistent, std::string label) {
      return draft.add(
          {.device = DeviceId(device), .persistent = persistent, .shape = {4, 4}, .content = {}, .label = std::move(label)});
    };
    x = add(0, true, "x");
    y = add(0, false, "y");
    there = add(1, false, "there");
    z = add(1, true, "z");
    const MeetingId meeting = draft.new_meeting();
    task(0, Lane::compute, Compute{op::Relu{}}, {x}, {y});
    task(0, Lane::communication, Transfer{Transfer::End::send, meeting, DeviceId(1)}, {y}, {});
    task(1, Lane::communication, Transfer{Transfer::End::receive, meeting, DeviceId(0)}, {}, {there});
    task(1, Lane::compute, Compute{op::Relu{}}, {there}, {z});
  }
  void task(std::size_t device, Lane lane, Action action, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    draft.tasks.push_back({.action = std::move(action),
                           .device = DeviceId(device),
                           .lane = lane,
                           .labels = {},
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .after = {}});
  }
  /// The finished plan, changed.
  template <typename Change>
  Plan with(Change change) const {
    const Plan plan = finish(draft);
    std::vector<Buffer> buffers = plan.buffers();
    std::vector<Task> tasks = plan.tasks();
    change(buffers, tasks);
    return Plan(plan.title(), plan.devices(), buffers, tasks);
  }

  Draft draft;
  BufferId x, y, there, z;
};

using Buffers = std::vector<Buffer>;
using Tasks = std::vector<Task>;
using Ids = std::vector<TaskId>;

Violation only(const Verdict& verdict) {
  EXPECT_EQ(verdict.violations.size(), 1U);
  return verdict.violations.empty() ? Violation{Rule::memory, {}, "none"} : verdict.violations[0];
}

TEST(Verify, CatchesAReadThatLostItsOrderingEdge) {
  const Plan plan = Relay().with([](Buffers&, Tasks& tasks) { tasks[1].after.clear(); });
  const Verdict verdict = verify(plan);
  ASSERT_FALSE(verdict.holds());
  bool named = false;
  for (const Violation& violation : verdict.violations) {
    named = named || (violation.rule == Rule::ordered &&
                      std::set<TaskId>(violation.tasks.begin(), violation.tasks.end()) == std::set<TaskId>{TaskId(0), TaskId(1)});
  }
  EXPECT_TRUE(named);
}

TEST(Verify, CatchesATaskThatTouchesAnotherDevicesBuffer) {
  const Relay relay;
  const Violation violation = only(verify(relay.with([&](Buffers&, Tasks& tasks) { tasks[3].reads = {relay.y}; })));
  EXPECT_EQ(violation.rule, Rule::place);
  EXPECT_EQ(violation.tasks, Ids{TaskId(3)});
  EXPECT_EQ(violation.text, "t3 (relu in the forward, on cpu:1) touches buffer b1 (y) of cpu:0");
}

TEST(Verify, CatchesAnEdgeBetweenDevices) {
  const Violation violation = only(verify(Relay().with([](Buffers&, Tasks& tasks) { tasks[3].after.push_back(TaskId(0)); })));
  EXPECT_EQ(violation.rule, Rule::place);
  EXPECT_EQ(violation.tasks, (Ids{TaskId(3), TaskId(0)}));
}

TEST(Verify, CatchesOperandsThatDoNotSuitTheOp) {
  const Relay relay;
  const Violation violation = only(verify(relay.with([&](Buffers& buffers, Tasks&) { buffers[relay.x.index()].shape = {4, 5}; })));
  EXPECT_EQ(violation.rule, Rule::shape);
  EXPECT_EQ(violation.tasks, Ids{TaskId(0)});
  EXPECT_NE(violation.text.find("4x5"), std::string::npos) << violation.text;
}

TEST(Verify, CatchesAnAccumulationThatReadsAnotherBufferThanItWrites) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](Shape shape) {
    return draft.add({.device = DeviceId(0), .persistent = true, .shape = std::move(shape), .content = {}, .label = ""});
  };
  const BufferId x = add({5, 3}), dy = add({5, 4}), weight = add({4, 3}), bias = add({4}), other = add({4, 3});
  const auto plan_reading = [&](BufferId third) {
    Draft copy = draft;
    copy.tasks.push_back({.action = Compute{op::LinearBackwardWeight{.sgd_rate = 0.1}},
                          .device = DeviceId(0),
                          .labels = {},
                          .reads = {x, dy, third, bias},
                          .writes = {weight, bias},
                          .after = {}});
    return finish(copy);
  };
  EXPECT_TRUE(verify(plan_reading(weight)).holds());
  EXPECT_EQ(only(verify(plan_reading(other))).rule, Rule::shape);
}

TEST(Verify, CatchesAScalerThatWritesAnotherStateThanItReads) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](std::int64_t elements) {
    return draft.add({.device = DeviceId(0), .persistent = true, .shape = Shape{elements}, .content = {}, .label = ""});
  };
  const BufferId flag = add(1), state = add(4), other = add(4);
  const auto plan_writing = [&](BufferId written) {
    Draft copy = draft;
    copy.tasks.push_back({.action = Compute{op::AdjustScale{}},
                          .device = DeviceId(0),
                          .labels = {},
                          .reads = {flag, state},
                          .writes = {written},
                          .after = {}});
    return finish(copy);
  };
  EXPECT_TRUE(verify(plan_writing(state)).holds());
  EXPECT_EQ(only(verify(plan_writing(other))).rule, Rule::shape);
}

TEST(Verify, LetsAnUpdateReadNarrowGradientsForFloat32ParametersOnly) {
  const auto plan_of = [](DType gradient, DType parameter, DType state) {
    Draft draft;
    draft.devices = {"cpu:0"};
    const auto add = [&](DType type) {
      return draft.add({.device = DeviceId(0), .dtype = type, .persistent = true, .shape = {4, 3}, .content = {}, .label = ""});
    };
    const BufferId g = add(gradient), w = add(parameter), v = add(state);
    draft.tasks.push_back({.action = Update{op::Sgd{.momentum = 0.9}},
                           .device = DeviceId(0),
                           .labels = {},
                           .reads = {g, w, v},
                           .writes = {w, v},
                           .after = {}});
    return finish(draft);
  };
  constexpr DType f32 = DType::f32, f64 = DType::f64, f16 = DType::f16, bf16 = DType::bf16;
  for (const auto& [g, w, v] : {std::array{f32, f32, f32}, {f16, f32, f32}, {bf16, f32, f32}, {f64, f64, f64}}) {
    EXPECT_TRUE(verify(plan_of(g, w, v)).holds()) << to_text(g);
  }
  for (const auto& [g, w, v] : {std::array{f32, f16, f16}, {f16, f64, f64}, {f16, f32, f16}, {f64, f32, f32}, {f16, bf16, bf16}}) {
    EXPECT_EQ(only(verify(plan_of(g, w, v))).rule, Rule::shape) << to_text(g);
  }
}

TEST(Verify, CatchesASendWithoutItsReceive) {
  const Relay relay;
  const Verdict verdict = verify(relay.with([&](Buffers& buffers, Tasks& tasks) {
    tasks.erase(tasks.begin() + 2);
    tasks[2].after.clear();
    buffers[relay.there.index()].persistent = true;
  }));
  EXPECT_EQ(only(verdict).rule, Rule::meet);
  EXPECT_EQ(only(verdict).tasks, Ids{TaskId(1)});
}

TEST(Verify, CatchesAReadOfWhatNothingWrote) {
  const Relay relay;
  const Violation violation = only(
      verify(relay.with([&](Buffers& buffers, Tasks&) { buffers[relay.x.index()].persistent = false; })));
  EXPECT_EQ(violation.rule, Rule::written);
  EXPECT_EQ(violation.tasks, Ids{TaskId(0)});
}

TEST(Verify, CatchesAWriteThatNothingReads) {
  const Relay relay;
  const Violation violation = only(
      verify(relay.with([&](Buffers& buffers, Tasks&) { buffers[relay.z.index()].persistent = false; })));
  EXPECT_EQ(violation.rule, Rule::read);
  EXPECT_EQ(violation.tasks, Ids{TaskId(3)});
}

TEST(Verify, CatchesTwoExchangesInOppositeOrders) {
  // Each device sends first and receives second, and a send waits for its receive: both wait for ever.
  Draft draft;
  draft.devices = {"cpu:0", "cpu:1"};
  const auto add = [&](std::size_t device, bool persistent) {
    return draft.add({.device = DeviceId(device), .persistent = persistent, .shape = {4}, .content = {}, .label = ""});
  };
  const BufferId mine = add(0, true), yours = add(1, true), in_mine = add(0, true), in_yours = add(1, true);
  const auto end = [&](std::size_t device, Transfer::End which, std::size_t meeting, BufferId buffer) {
    const bool sends = which == Transfer::End::send;
    draft.tasks.push_back({.action = Transfer{which, MeetingId(meeting), DeviceId(1 - device)},
                           .device = DeviceId(device),
                           .lane = Lane::communication,
                           .labels = {},
                           .reads = sends ? std::vector{buffer} : std::vector<BufferId>{},
                           .writes = sends ? std::vector<BufferId>{} : std::vector{buffer},
                           .after = {}});
  };
  end(0, Transfer::End::send, 0, mine);
  end(1, Transfer::End::send, 1, yours);
  end(0, Transfer::End::receive, 1, in_mine);
  end(1, Transfer::End::receive, 0, in_yours);
  const Plan plan = finish(draft);
  const Violation violation = only(verify(plan));
  EXPECT_EQ(violation.rule, Rule::waiting);
  EXPECT_EQ(violation.tasks.size(), 2U);
  EXPECT_TRUE(is_circle(plan, violation.tasks));
}

TEST(Verify, CatchesATaskThatWaitsForItself) {
  const Violation violation = only(verify(Relay().with([](Buffers&, Tasks& tasks) { tasks[0].after = {TaskId(0)}; })));
  EXPECT_EQ(violation.rule, Rule::waiting);
  EXPECT_EQ(violation.tasks, Ids{TaskId(0)});
}

TEST(Verify, CatchesATaskTheBackendCannotRun) {
  const Plan plan = finish(Relay().draft);
  const Verdict verdict = verify(plan, {.has_kernel = [](const Task& task) { return verb(task) != "receive"; }, .memory = {}});
  EXPECT_EQ(only(verdict).rule, Rule::kernel);
  EXPECT_EQ(only(verdict).tasks, Ids{TaskId(2)});
}

TEST(Verify, CatchesADeviceThatIsOneByteTooSmall) {
  const Plan plan = finish(Relay().draft);
  const std::vector<Bytes> peak = verify(plan).memory.peak;
  EXPECT_EQ(peak, (std::vector{Bytes(128), Bytes(128)}));
  EXPECT_TRUE(verify(plan, {.has_kernel = {}, .memory = peak}).holds());
  const Violation violation = only(verify(plan, {.has_kernel = {}, .memory = {Bytes(128), Bytes(127)}}));
  EXPECT_EQ(violation.rule, Rule::memory);
  EXPECT_TRUE(baton::test::says(violation.text, "cpu:1 needs 128 B but has 127 B"));
}

TEST(Verify, StopsCountingAtTwentyViolations) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const BufferId x = draft.add({.device = DeviceId(0), .persistent = true, .shape = {4}, .content = {}, .label = ""});
  for (int i = 0; i < 50; ++i) {
    draft.tasks.push_back(
        {.action = Compute{op::Relu{}}, .device = DeviceId(0), .labels = {}, .reads = {x, x}, .writes = {x}, .after = {}});
  }
  EXPECT_EQ(verify(finish(draft)).violations.size(), Verdict::max_violations);
}

TEST(Verify, RequireTellsTheUserTheFirstViolation) {
  const Verdict verdict = verify(Relay().with([](Buffers&, Tasks& tasks) { tasks[3].after.push_back(TaskId(0)); }));
  EXPECT_EQ(baton::test::usage_sentence([&] { require(verdict); }), verdict.violations[0].text);
}

TEST(Verify, AcceptsAPlanOfNothing) { EXPECT_TRUE(verify(Plan("", {"cpu:0"}, {}, {})).holds()); }

}  // namespace
}  // namespace baton::plan
