#include <algorithm>
#include <cstring>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/exec/fingerprint.h"
#include "baton/schedule/schedule.h"
#include "ranks/ranks.h"

/// Whatever runs in one process leaves the same bits when its devices are ranks.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Precision;

constexpr std::int64_t steps = 4;

/// The numbers of devices to try: one per rank, and several on some of them.
std::vector<std::size_t> device_counts() {
  const auto ranks = static_cast<std::size_t>(world().size());
  return {ranks, ranks + 1, 2 * ranks};
}

Case small(std::string strategy, std::string backend, std::size_t devices) {
  return {.model = "mlp:9-130-70-65-64-20-17-30-66-12-8-12-16-17-12-14-9",  // sixteen blocks: two stages for
                                                                            // each of eight devices
          .strategy = std::move(strategy),
          .backend = std::move(backend),
          .devices = devices,
          .step = {.global_batch = 26, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1}}};
}

/// Rank 0 alone runs the case in one process too, and compares what the ranks leave with that. False where the
/// strategy refuses it, which it does on all ranks.
bool agrees(Case one, exec::DataOptions data = {}) {
  one.world = shared_world();
  const std::optional<Outcome> actual = train_unless_refused(one, steps, data);
  if (!actual) {
    return false;
  }
  const std::vector<ranks::Blob> losses = world().gather(std::as_bytes(std::span(actual->losses)));
  if (world().rank() != 0) {
    return true;
  }
  one.world = nullptr;
  const Outcome expected = train(one, steps, data);
  EXPECT_TRUE(same_bits(expected, *actual)) << to_text(one) << " over " << world().size() << " ranks";
  for (std::size_t r = 1; r < losses.size(); ++r) {
    EXPECT_EQ(losses[r], losses[0]) << "losses at rank " << r << ", " << to_text(one);
  }
  return true;
}

TEST(RanksAgree, EveryStrategyOnEveryBackendLeavesTheBitsOfOneProcess) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    int compared = 0;
    for (const std::size_t devices : device_counts()) {
      compared += agrees(small(strategy.name(), "cpu", devices)) ? 1 : 0;
    }
    compared += agrees(small(strategy.name(), "reference", device_counts()[0])) ? 1 : 0;
    EXPECT_GE(compared, 2) << strategy.name();
  }
}

TEST(RanksAgree, OptimizersWithStateAndMicroBatchesDoToo) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    Case one = small(strategy.name(), "cpu", static_cast<std::size_t>(world().size()));
    one.step.optimizer = op::Adam{};
    one.layout.micro_batches = 2;
    EXPECT_TRUE(agrees(one)) << to_text(one);
    one.layout.recompute = strategy::Recompute::all;
    one.step.loss = Loss::mean_squared_error;
    EXPECT_TRUE(agrees(one)) << to_text(one);
  }
}

TEST(RanksAgree, SumsOf16BitTypesDoToo) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      Case one = small(strategy.name(), "cpu", device_counts()[1]);
      one.step.precision = precision;
      if (precision == Precision::fp16) {
        one.step.loss_scale = strategy::LossScale{};
      }
      EXPECT_TRUE(agrees(one)) << to_text(one);
    }
  }
}

TEST(RanksAgree, ProductsOfReplicasStagesAndDividedTensorsDoToo) {
  for (const Product& product : {Product{2, 2, 1, 0, "1f1b", 4}, Product{2, 1, 2, 0, ""}, Product{1, 2, 2, 0, "gpipe", 4},
                                 Product{2, 2, 1, 1, "zb-h1", 4}, Product{4, 1, 1, 3, ""}, Product{2, 2, 2, 2, "1f1b", 4}}) {
    Case one = small("product", "cpu", product.devices());
    one.layout = layout_of(product);
    EXPECT_TRUE(agrees(one)) << to_text(one);
  }
}

TEST(RanksAgree, ManyMessagesAMeetingAndBucketsOfAnySizeDoToo) {
  for (const std::string strategy : {"ddp", "zero-2", "layers"}) {
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1} << 30}) {
      Case one = small(strategy, "cpu", static_cast<std::size_t>(world().size()));
      one.model = "mlp:512-500-512-40-40";  // 256 000 elements, in several messages also if four share them
      one.layout.bucket = one.layout.first_bucket = Bytes(bucket);
      EXPECT_TRUE(agrees(one)) << to_text(one);
    }
  }
}

TEST(RanksAgree, DataThatChangesEveryStepIsTheSameDataOnAnyNumberOfRanks) {
  for (const std::string strategy : {"ddp", "1f1b", "dp"}) {
    EXPECT_TRUE(agrees(small(strategy, "cpu", device_counts()[1]), {.seed = 7, .samples = 40}));
  }
}

TEST(RanksAgree, EmulatedLinksSlowRanksDownAndChangeNoBit) {
  for (const std::string strategy : {"ddp", "layers"}) {
    Case one = small(strategy, "cpu", device_counts()[1]);
    one.link = cluster::Link{.latency = Nanoseconds(3'000'000), .bandwidth = 1e9};
    EXPECT_TRUE(agrees(one));
    one.world = shared_world();
    const exec::RunResult result = Training(one).run(2);
    EXPECT_GT(result.step_times[1], Nanoseconds(6'000'000));
  }
}

TEST(Ranks, ADelayOnOneOfThemIsSeenByAllAndChangesNoBit) {
  Case one = small("ddp", "cpu", static_cast<std::size_t>(world().size()));
  one.delays = {{.before = plan::Phase::backward, .device = world().size() - 1, .duration = Nanoseconds(20'000'000)}};
  EXPECT_TRUE(agrees(one));
  one.world = shared_world();
  for (const Nanoseconds time : Training(one).run(2).step_times) {
    EXPECT_GE(time, Nanoseconds(20'000'000));
  }
}

/// Tasks that meet, and whatever runs before and after, in an order that one clock could have shown.
TEST(Ranks, TheTraceOfAllRanksIsOneTraceAtRankZero) {
  for (const std::string strategy : {"ddp", "1f1b"}) {
    Case one = small(strategy, "cpu", device_counts()[2]);
    one.world = shared_world();
    Training training(one);
    const exec::RunResult result = training.run(6);
    ASSERT_EQ(result.losses.size(), 6U);
    ASSERT_EQ(result.trace.steps.size(), world().rank() == 0 ? 6U : 0U);
    for (const trace::StepTrace& step : result.trace.steps) {
      expect_times_within(step, training.plan());
      for (std::size_t m = 0; m < training.plan().meeting_count(); ++m) {
        Nanoseconds last_start;
        Nanoseconds first_end = step.duration;
        for (const TaskId member : training.plan().members(MeetingId(m))) {
          const auto* transfer = std::get_if<plan::Transfer>(&training.plan()[member].action);
          if (transfer == nullptr || transfer->end == plan::Transfer::End::send) {
            last_start = std::max(last_start, step.events[member.index()].start);
          }
          if (transfer == nullptr || transfer->end == plan::Transfer::End::receive) {
            first_end = std::min(first_end, step.events[member.index()].end);
          }
        }
        EXPECT_LE(last_start, first_end) << "nobody leaves an all-reduce before all have come, nor receives what is not sent";
      }
    }
  }
}

TEST(Ranks, RoundingsOfAllRanksComeTogetherAtRankZero) {
  Case one = small("ddp", "cpu", device_counts()[0]);
  one.step.precision = Precision::bf16;
  Case alone = one;
  one.world = shared_world();
  const exec::Rounding ranks = exec::total_rounding(Training(one).run(2).roundings);
  if (world().rank() == 0) {
    EXPECT_EQ(ranks, exec::total_rounding(Training(alone).run(2).roundings));
    EXPECT_GT(ranks.values, 0);
  }
}

TEST(Ranks, WhoeverHasHadEnoughEndsTheRunOfAllAfterTheSameStep) {
  Case one = small("ddp", "cpu", static_cast<std::size_t>(world().size()));
  one.world = shared_world();
  Training training(one);
  const exec::RunResult result = training.executor().run(
      {.steps = 1'000'000, .warmup = 0},
      [](std::int64_t done, const exec::RunResult&) { return world().rank() != world().size() - 1 || done < 3; });
  EXPECT_LT(result.losses.size(), 1'000'000U);
  const std::size_t mine = result.losses.size();
  for (const ranks::Blob& blob : world().all_gather(std::as_bytes(std::span(&mine, 1)))) {
    EXPECT_EQ(*reinterpret_cast<const std::size_t*>(blob.data()), mine);
  }
}

TEST(Ranks, ThoseWithAnotherPlanAreNamed) {
  const int last = world().size() - 1;
  Case one = small("ddp", "cpu", static_cast<std::size_t>(world().size()));
  one.step.global_batch = world().rank() == last ? 27 : 26;
  one.world = shared_world();
  try {
    Training training(one);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "rank " + std::to_string(last) + " has another plan than rank 0: start all ranks with the same command");
    EXPECT_EQ(error.kind(), Error::Kind::usage);
  }
}

TEST(Ranks, ThoseThatAreAnotherProgramAreNamedBeforeWhatFollowsFromIt) {
  exec::Fingerprint mine{.plan = 1, .data = 2, .version = "1", .program = 3};
  exec::require_agreement(world(), mine);
  if (world().rank() > 0) {
    mine.program = 4;
    mine.plan = 5;
  }
  try {
    exec::require_agreement(world(), mine);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("another build of baton than rank 0: copy one program to all hosts"),
              std::string::npos);
    EXPECT_EQ(std::string(error.what()).find("rank"), 0U) << error.what();
  }
}

TEST(Ranks, ThoseWithOtherDataAreNamed) {
  Case one = small("ddp", "cpu", static_cast<std::size_t>(world().size()));
  one.world = shared_world();
  try {
    Training training(one, {.seed = world().rank() == 1 ? 1U : 0U});
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "rank 1 has other data than rank 0: start all ranks with the same --seed, --samples and --data");
  }
}

}  // namespace
}  // namespace baton::test
