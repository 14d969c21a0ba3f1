#include <algorithm>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/cuda/cuda.h"
#include "ranks/ranks.h"

/// Ranks that run parts of one GPU, their meetings staged through the hosts' memory, against one process that runs all parts.
/// Skipped where there is no GPU.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Precision;

constexpr std::int64_t steps = 4;

class GpuRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::has_gpu()) {
      GTEST_SKIP() << "there is no GPU here";
    }
  }
};

/// The numbers of parts to try: one per rank, and several on some of them.
std::vector<std::size_t> part_counts() {
  const auto ranks = static_cast<std::size_t>(world().size());
  return {ranks, ranks + 1};
}

Case small(std::string strategy, std::size_t devices) {
  return {.model = "mlp:9-130-70-65-64-20-17-30-66-12-8",
          .strategy = std::move(strategy),
          .backend = "cuda",
          .devices = devices,
          .step = {.global_batch = 26, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1}}};
}

/// Rank 0 alone runs the case in one process too, and compares what the ranks leave with that. False where it is refused.
bool agrees(Case one, exec::DataOptions data = {}) {
  one.world = &world();
  std::optional<Outcome> actual;
  try {
    actual = train(one, steps, data);
  } catch (const Error& error) {  // on all ranks, since they ask for the same
    EXPECT_EQ(error.kind(), Error::Kind::usage) << error.what();
    return false;
  }
  const std::vector<ranks::Blob> losses = world().gather(std::as_bytes(std::span(actual->losses)));
  if (world().rank() == 0) {
    one.world = nullptr;
    EXPECT_TRUE(same_bits(train(one, steps, data), *actual)) << to_text(one) << " over " << world().size() << " ranks";
    for (const ranks::Blob& blob : losses) {
      EXPECT_TRUE(std::equal(blob.begin(), blob.end(), losses[0].begin(), losses[0].end())) << "ranks differ";
    }
  }
  world().barrier();
  return true;
}

TEST_F(GpuRanks, EveryStrategyLeavesTheBitsOfOneProcess) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    int compared = 0;
    for (const std::size_t parts : part_counts()) {
      compared += agrees(small(strategy.name, parts)) ? 1 : 0;
    }
    EXPECT_GE(compared, 1) << strategy.name;
  }
}

TEST_F(GpuRanks, OptimizersWithStateMicroBatchesAnd16BitSumsDoToo) {
  for (const std::string strategy : {"ddp", "dp", "zero-1", "zero-2", "zero-3", "1f1b", "tensor"}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      Case one = small(strategy, part_counts()[0]);
      one.step.optimizer = op::Adam{};
      one.step.precision = precision;
      one.layout.micro_batches = 2;
      if (precision == Precision::fp16) {
        one.step.loss_scale = strategy::LossScale{};
      }
      agrees(one);
    }
  }
}

TEST_F(GpuRanks, ManyMessagesAMeetingAndBucketsOfAnySizeDoToo) {
  for (const std::string strategy : {"ddp", "zero-2", "layers"}) {
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1} << 30}) {
      Case one = small(strategy, part_counts()[1]);
      one.model = "mlp:512-500-512-40-40-40";
      one.layout.bucket = one.layout.first_bucket = Bytes(bucket);
      EXPECT_TRUE(agrees(one)) << to_text(one);
    }
  }
}

TEST_F(GpuRanks, DataThatChangesEveryStepIsTheSameDataOnAnyNumberOfRanks) {
  for (const std::string strategy : {"ddp", "1f1b"}) {
    EXPECT_TRUE(agrees(small(strategy, part_counts()[1]), {.seed = 7, .samples = 60}));
  }
}

TEST_F(GpuRanks, EmulatedLinksSlowThemDownAndChangeNoBit) {
  Case one = small("ddp", part_counts()[0]);
  one.link = cluster::Link{.latency = Nanoseconds(3'000'000), .bandwidth = 1e9};
  EXPECT_TRUE(agrees(one));
  one.world = &world();
  EXPECT_GT(Training(one).run(2).step_times[1], Nanoseconds(3'000'000));
}

TEST_F(GpuRanks, TheTraceOfAllRanksIsOneTraceAtRankZeroAndReadingsComeTogether) {
  for (const std::string strategy : {"ddp", "1f1b"}) {
    Case one = small(strategy, part_counts()[1]);
    one.world = &world();
    Training training(one);
    const exec::RunResult result = training.executor().run({.steps = 6, .warmup = 4});
    ASSERT_EQ(result.losses.size(), 6U);
    ASSERT_EQ(result.trace.steps.size(), world().rank() == 0 ? 3U : 0U) << "the last of the warm-up";
    EXPECT_EQ(result.gpus.size(), world().rank() == 0 ? static_cast<std::size_t>(world().size()) : 1U) << "a GPU each";
    for (const trace::StepTrace& step : result.trace.steps) {
      expect_times_within(step, training.plan());
    }
  }
}

TEST_F(GpuRanks, WhoeverHasHadEnoughEndsTheRunOfAllAfterTheSameStep) {
  Case one = small("ddp", part_counts()[0]);
  one.world = &world();
  Training training(one);
  const exec::RunResult result = training.executor().run(
      {.steps = 100'000, .warmup = 0},
      [](std::int64_t done, const exec::RunResult&) { return world().rank() != world().size() - 1 || done < 3; });
  const std::size_t mine = result.losses.size();
  EXPECT_LT(mine, 100'000U);
  for (const ranks::Blob& blob : world().all_gather(std::as_bytes(std::span(&mine, 1)))) {
    EXPECT_EQ(*reinterpret_cast<const std::size_t*>(blob.data()), mine);
  }
}

}  // namespace
}  // namespace baton::test
