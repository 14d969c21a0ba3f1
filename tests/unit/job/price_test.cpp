#include "baton/job/price.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "baton/base/error.h"
#include "baton/job/fit.h"
#include "baton/job/reduced.h"
#include "baton/job/setup.h"
#include "baton/model/parse.h"

namespace baton::job {
namespace {

TEST(ReducedModel, HasEachRepeatedBlockOnce) {
  const model::Model model = model::parse_model("llama:depth=12,heads=4,kv-heads=2,dim=32,hidden=64,context=8,vocab=64");
  const Reduced small = reduced(model);
  ASSERT_EQ(small.block_of.size(), model.blocks().size());
  EXPECT_LE(small.model.blocks().size(), 4U);
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    const model::Block& like = small.model.blocks()[small.block_of[b]];
    EXPECT_EQ(like.output(), model.blocks()[b].output());
    ASSERT_EQ(like.parameters.size(), model.blocks()[b].parameters.size());
    for (std::size_t p = 0; p < like.parameters.size(); ++p) {
      EXPECT_EQ(like.parameters[p].shape, model.blocks()[b].parameters[p].shape);
    }
  }
  EXPECT_EQ(small.block_of.front(), 0U);
  EXPECT_EQ(small.block_of.back(), small.model.blocks().size() - 1);
}

JobSpec spec_on(const std::string& cluster, const std::string& model, std::int64_t devices) {
  JobSpec spec;
  spec.model = model;
  spec.cluster = cluster;
  spec.devices = devices;
  spec.batch = 16;
  return spec;
}

TEST(Price, IsTheSameWhenTheRequestIsGone) {
  const JobSpec shared = spec_on("dgx-a100", "gpt:depth=4,heads=4,dim=64,context=32,vocab=96", 4);
  const strategy::Request request = make_request(shared, make_model(shared), imagine(shared), imagined_target());
  Pricer kept(request, {}, {});
  Pricer of_temporaries(make_request(shared, make_model(shared), imagine(shared), imagined_target()), {}, {});
  const Choice choice{.dp = 2, .pp = 2, .micro_batches = 2};
  EXPECT_EQ(of_temporaries.price(choice).time, kept.price(choice).time);
  EXPECT_EQ(of_temporaries.price(choice).memory, kept.price(choice).memory);
}

/// Draws splits, and compares their prices with their simulated steps.
void for_random_splits(const JobSpec& shared, int seed, int count,
                       const std::function<void(const Choice&, const Price&, const Scenario&)>& compare) {
  const model::Model model = make_model(shared);
  const cluster::Cluster cluster = imagine(shared);
  const strategy::Request request = make_request(shared, model, cluster, imagined_target());
  Pricer pricer(request, {}, {});
  std::vector<Choice> choices;
  for (const Group& group : groups_of(model, request.step.global_batch, static_cast<std::int64_t>(cluster.size()))) {
    if (!pricer.refused(group.tp, group.sp)) {
      for_each_choice(group, model, request.step.global_batch, [&](const Choice& choice) { choices.push_back(choice); });
    }
  }
  std::mt19937 random(static_cast<unsigned>(seed));
  for (int i = 0; i < count; ++i) {
    const Choice& choice = choices[random() % choices.size()];
    JobSpec spec = spec_of(choice, shared);
    spec.memory = ample_memory;
    try {
      compare(choice, pricer.price(choice), Scenario(spec));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << " " << choice.dp << " " << choice.pp << " " << choice.tp;
    }
  }
}

TEST(Price, OfMemoryCountsWhatEveryScheduleKeepsAtOnceBeforeAnythingIsSimulated) {
  JobSpec shared = spec_on("dgx-h100", "gpt:depth=12,heads=4,dim=256,context=128,vocab=512", 4);
  shared.optimizer = "adam";
  shared.precision = strategy::Precision::bf16;
  shared.batch = 32;
  const model::Model model = make_model(shared);
  const cluster::Cluster cluster = imagine(shared);
  const strategy::Request request = make_request(shared, model, cluster, imagined_target());
  Pricer pricer(request, {}, {});
  int compared = 0;
  for_each_choice({.dp = 1, .pp = 4, .tp = 1, .sp = false}, model, 32, [&](const Choice& choice) {
    const bool whole = choice.recompute == strategy::Recompute::none || choice.recompute == strategy::Recompute::light ||
                       choice.recompute == strategy::Recompute::full;
    if (choice.micro_batches != 8 || !whole || (choice.chunks != 2 && choice.chunks != 1)) {
      return;
    }
    JobSpec spec = spec_of(choice, shared);
    spec.memory = ample_memory;
    const Fit laid = fit(spec);
    const double ratio = pricer.price(choice).memory / static_cast<double>(laid.fullest().peak.count);
    EXPECT_NEAR(ratio, 1, 0.2) << laid.name;
    ++compared;
  });
  EXPECT_EQ(compared, 27);
}

class Prices : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Prices, NeverBoundAStepOrItsMemoryFromAboveAndEstimateItWithinAFactorOfTwoMostly) {
  JobSpec shared = spec_on(GetParam().first, GetParam().second, 4);
  shared.optimizer = "adam";
  int near = 0;
  int all = 0;
  for_random_splits(shared, 7, 60, [&](const Choice& choice, const Price& price, const Scenario& scenario) {
    const auto step = static_cast<double>(scenario.step().duration.count);
    double most = 0;
    for (const Bytes peak : scenario.laid().peak) {
      most = std::max(most, static_cast<double>(peak.count));
    }
    EXPECT_LE(price.least_time, step) << strategy::describe(scenario.request());
    EXPECT_LE(price.least_memory, most) << strategy::describe(scenario.request());
    EXPECT_GT(price.time, 0) << choice.pp;
    ++all;
    near += std::abs(std::log2(price.time / step)) < 1;
  });
  EXPECT_GE(near, all * 8 / 10);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Prices,
                         testing::Values(std::pair("pcie-4", "mlp:dim=1024,depth=6"),
                                         std::pair("dgx-h100",
                                                   "llama:depth=4,heads=4,kv-heads=4,dim=256,hidden=512,context=64,vocab=512"),
                                         std::pair("dgx-a100", "mlp:dim=4096,depth=8")));

TEST(Prices, NeverBoundTheMemoryOfAStepInSixteenBitsFromAbove) {
  JobSpec shared = spec_on("dgx-h100", "llama:depth=4,heads=4,kv-heads=4,dim=256,hidden=512,context=64,vocab=512", 4);
  shared.optimizer = "adam";
  shared.precision = strategy::Precision::bf16;
  shared.batch = 8;
  for_random_splits(shared, 11, 60, [&](const Choice& /*choice*/, const Price& price, const Scenario& scenario) {
    double most = 0;
    for (const Bytes peak : scenario.laid().peak) {
      most = std::max(most, static_cast<double>(peak.count));
    }
    EXPECT_LE(price.least_memory, most) << strategy::describe(scenario.request());
  });
}

TEST(Prices, SayWhyTensorsCannotBeDivided) {
  const JobSpec shared = spec_on("dgx-h100", "gpt:depth=2,heads=3,dim=48,context=8,vocab=32", 8);
  const model::Model model = make_model(shared);
  const cluster::Cluster cluster = imagine(shared);
  const strategy::Request request = make_request(shared, model, cluster, imagined_target());
  Pricer pricer(request, {}, {});
  EXPECT_TRUE(pricer.refused(8, false));
  EXPECT_FALSE(pricer.refused(3, false)) << *pricer.refused(3, false);
}

}  // namespace
}  // namespace baton::job
