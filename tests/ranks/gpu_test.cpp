#include <algorithm>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/cuda/cuda.h"
#include "baton/cuda/routes.h"
#include "ranks/ranks.h"
#include "support/variable.h"

/// Ranks that run parts of one GPU against one process that runs all parts. Meetings of several ranks are staged through the hosts'
/// memory, or go by NCCL, which then takes each rank for a host. Skipped if there is no GPU.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Precision;

constexpr std::int64_t steps = 3;

/// Numbers of parts: one per rank, and several on some of them.
std::size_t one_each() { return static_cast<std::size_t>(world().size()); }
std::size_t more() { return one_each() + 1; }

/// The parameter is the value of BATON_CUDA_RANKS.
class GpuRanks : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!cuda::has_gpu()) {
      GTEST_SKIP() << "there is no GPU here";
    }
    if (GetParam() == "nccl" && !cuda::has_nccl()) {
      GTEST_SKIP() << "there is no NCCL here";
    }
  }

  /// NCCL joins members of one rank each.
  static std::size_t parts() { return GetParam() == "nccl" ? one_each() : more(); }

 private:
  Variable variable_{"BATON_CUDA_RANKS", GetParam().c_str()};
};

INSTANTIATE_TEST_SUITE_P(By, GpuRanks, testing::Values("staged", "nccl"), [](const auto& one) { return one.param; });

Case small(std::string strategy, std::size_t devices) {
  return {.model = "mlp:9-130-70-65-64-20-17-30-66-12-8",
          .strategy = std::move(strategy),
          .backend = "cuda",
          .devices = devices,
          .step = {.global_batch = 26, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1}}};
}

/// NCCL adds in an order of its own, which is no other one for two members; and it rounds sums of 16 bits before they are applied
/// or added to others, which sums in the order of the devices do not.
bool sums_in_another_way(const Training& training, const std::string& by) {
  const plan::Plan& plan = training.plan();
  const auto reach = by == "nccl" ? cuda::NcclReach::all_ranks : cuda::NcclReach::nothing;
  const std::vector<cuda::MeetingRoute> routes = cuda::choose_routes(plan, training.cluster(), reach);
  for (std::size_t m = 0; m < routes.size(); ++m) {
    const plan::Task& task = plan[plan.members(MeetingId(m))[0]];
    const auto* collective = std::get_if<plan::Collective>(&task.action);
    if (routes[m] == cuda::MeetingRoute::nccl && collective != nullptr && plan::rule_of(collective->kind).sums) {
      const bool narrow = is_narrow(plan[plan::payload(task)[0]].dtype);
      if (collective->size > 2 || (narrow && (collective->sgd_rate > 0 || collective->accumulate))) {
        return true;
      }
    }
  }
  return false;
}

/// As far as it reaches in a few steps when sums are rounded otherwise: by a last place of their type; in tf32 what such a place
/// makes of the next step's products, whose operands are rounded; and under Adam, which scales each gradient to one size, an
/// element whose parts nearly cancel may go the other way.
Tolerance tolerance(const Case& one) {
  const bool adam = std::holds_alternative<op::Adam>(one.step.optimizer);
  switch (one.step.precision) {
    case Precision::bf16:
    case Precision::fp16:
      return adam ? Tolerance{.loss = 0x1p-7, .typical = 0.3, .worst = 2.5} : Tolerance{.loss = 0x1p-8, .typical = 0.1, .worst = 1};
    case Precision::tf32:
      return {.loss = 1e-5, .typical = 2e-4, .worst = 5e-3};
    default:
      return adam ? Tolerance{.loss = 5e-6, .typical = 2e-4, .worst = 2e-2}
                  : Tolerance{.loss = 5e-7, .typical = 2e-6, .worst = 2e-5};
  }
}

Outcome outcome_of(Training& training) {
  Outcome outcome{{}, training.weights(), {}};
  outcome.losses = training.run(steps).losses;
  outcome.after = training.weights();
  return outcome;
}

/// Rank 0 alone runs the case in one process too, and compares what the ranks leave with that: to the bit, unless NCCL sums in
/// another way. False where it is refused.
bool agrees(Case one, exec::DataOptions data = {}) {
  const std::string by = std::getenv("BATON_CUDA_RANKS");
  one.world = shared_world();
  std::optional<Outcome> actual;
  bool exact = true;
  try {
    Training training(one, data);
    exact = !sums_in_another_way(training, by);
    actual = outcome_of(training);
  } catch (const Error& error) {  // on all ranks, since they ask for the same
    EXPECT_EQ(error.kind(), Error::Kind::usage) << error.what();
    return false;
  }
  const std::vector<ranks::Blob> losses = world().gather(std::as_bytes(std::span(actual->losses)));
  if (world().rank() == 0) {
    one.world = nullptr;
    const Outcome expected = train(one, steps, data);
    EXPECT_TRUE(exact ? same_bits(expected, *actual) : close(expected, *actual, tolerance(one)))
        << to_text(one) << " over " << world().size() << " ranks by " << by;
    for (const ranks::Blob& blob : losses) {
      EXPECT_TRUE(std::equal(blob.begin(), blob.end(), losses[0].begin(), losses[0].end())) << "ranks differ";
    }
  }
  world().barrier();
  return true;
}

TEST_P(GpuRanks, EveryStrategyLeavesWhatOneProcessLeaves) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    int compared = agrees(small(strategy.name(), one_each())) ? 1 : 0;
    if (parts() == more() || compared == 0) {
      compared += agrees(small(strategy.name(), more())) ? 1 : 0;
    }
    EXPECT_GE(compared, 1) << strategy.name();
  }
}

TEST_P(GpuRanks, OptimizersWithStateMicroBatchesAnd16BitSumsDoToo) {
  int next = 0;
  for (const std::string strategy : {"ddp", "dp", "zero-1", "zero-2", "zero-3", "1f1b", "tensor"}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      if (next++ % 2 == 1 && GetParam() == "nccl") {
        continue;  // each takes a second
      }
      Case one = small(strategy, one_each());
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

TEST_P(GpuRanks, ProductsOfStrategiesAndDividedSequencesDoToo) {
  for (const Product& product : std::vector<Product>{{2, 1, 1, 0, "naive", 2},
                                                     {1, 1, 2, 0, "naive", 1, strategy::Recompute::none, true},
                                                     {1, 2, 1, 0, "zb-v", 4},
                                                     {2, 1, 2, 0, "naive", 1},
                                                     {2, 1, 2, 3, "naive", 2, strategy::Recompute::none, true},
                                                     {2, 2, 1, 0, "1f1b", 4},
                                                     {2, 2, 1, 1, "zb-v", 4},
                                                     {1, 2, 2, 0, "1f1b", 4},
                                                     {1, 1, 4, 0, "naive", 1, strategy::Recompute::none, true}}) {
    if (product.devices() == one_each()) {
      Case one = small("product", product.devices());
      one.model = "gpt:depth=4,heads=4,dim=16,context=8,vocab=24";
      one.step.global_batch = 16;
      one.layout = layout_of(product);
      EXPECT_TRUE(agrees(one)) << to_text(one);
    }
  }
}

TEST_P(GpuRanks, ProductsInTf32AndNormsOfAllGradientsDoToo) {
  for (const std::string strategy : {"ddp", "zero-3", "tensor"}) {
    Case one = small(strategy, one_each());
    one.step.precision = Precision::tf32;
    one.step.optimizer = op::Sgd{.rate = 0.1, .clip = 0.05};
    agrees(one);
  }
}

TEST_P(GpuRanks, TheSameBitsComeOutWheneverTheyRun) {
  Case one = small("ddp", one_each());
  one.world = shared_world();
  EXPECT_TRUE(same_bits(train(one, steps), train(one, steps)));
}

TEST_P(GpuRanks, SeveralPartsOnARankMeetItsOwnAndOthersInOnePlan) {
  for (const std::string strategy : {"ddp", "1f1b", "tensor"}) {
    EXPECT_TRUE(agrees(small(strategy, more()))) << strategy;
  }
}

TEST_P(GpuRanks, ManyMessagesAMeetingAndBucketsOfAnySizeDoToo) {
  for (const std::string strategy : {"ddp", "zero-2", "layers"}) {
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1} << 30}) {
      Case one = small(strategy, parts());
      one.model = "mlp:512-500-512-40-40-40";
      one.layout.bucket = one.layout.first_bucket = Bytes(bucket);
      EXPECT_TRUE(agrees(one)) << to_text(one);
    }
  }
}

TEST_P(GpuRanks, DataThatChangesEveryStepIsTheSameDataOnAnyNumberOfRanks) {
  for (const std::string strategy : {"ddp", "1f1b"}) {
    EXPECT_TRUE(agrees(small(strategy, parts()), {.seed = 7, .samples = 60}));
  }
}

TEST_P(GpuRanks, EmulatedLinksSlowThemDownAndChangeNoBit) {
  Case one = small("ddp", one_each());
  one.link = cluster::Link{.latency = Nanoseconds(3'000'000), .bandwidth = 1e9};
  EXPECT_TRUE(agrees(one));
  one.world = shared_world();
  EXPECT_GT(Training(one).run(2).step_times[1], Nanoseconds(3'000'000));
}

TEST_P(GpuRanks, TheTraceOfAllRanksIsOneTraceAtRankZeroAndReadingsComeTogether) {
  for (const std::string strategy : {"ddp", "1f1b"}) {
    Case one = small(strategy, parts());
    one.world = shared_world();
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

TEST_P(GpuRanks, WhoeverHasHadEnoughEndsTheRunOfAllAfterTheSameStep) {
  Case one = small("ddp", one_each());
  one.world = shared_world();
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
