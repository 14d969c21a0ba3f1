#include "baton/cuda/row_norms.h"

#include <gtest/gtest.h>

#include <string>

#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

/// Which norms' gradients are computed in one pass: decided from the plan alone.
namespace baton::cuda {
namespace {

plan::Plan plan_of(const std::string& model, const std::string& strategy, std::size_t devices, std::int64_t micro_batches = 1) {
  const model::Model parsed = model::parse_model(model);
  const cluster::Cluster cluster(test::cpus(devices));
  strategy::Layout layout;
  layout.micro_batches = micro_batches;
  return strategy::compile(
      {.model = parsed,
       .cluster = cluster,
       .strategy = strategy,
       .step = {.global_batch = 8, .loss = strategy::Loss::cross_entropy, .precision = strategy::Precision::bf16},
       .layout = layout});
}

template <typename AnyOp>
bool is(const plan::Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute != nullptr && std::holds_alternative<AnyOp>(compute->op);
}

struct Count {
  std::size_t norms = 0;   // gradients of weights
  std::size_t in_one = 0;  // those that are made of sums which another task took
};

/// Follows the tasks as a GPU runs them: a task that uses sums must find those of its own x and dy.
Count expect_sound(const plan::Plan& plan) {
  const plan::Ordering ordering = plan::order(plan);
  const std::vector<RowNormShare> shares = row_norm_shares(plan, ordering);
  std::vector<std::int64_t> version(plan.buffers().size(), 0);  // how often each was written
  struct Sums {
    BufferId x, dy;
    std::int64_t x_version = -1, dy_version = -1;
  };
  std::vector<Sums> kept(plan.devices().size());
  Count count;
  for (const TaskId id : ordering.sequence) {
    const plan::Task& task = plan[id];
    const bool of_input = is<op::LayerNormBackwardInput>(task) || is<op::RmsNormBackwardInput>(task);
    const bool of_weights = is<op::LayerNormBackwardWeight>(task) || is<op::RmsNormBackwardWeight>(task);
    EXPECT_TRUE(shares[id.index()] != RowNormShare::takes_sums || of_input);
    EXPECT_TRUE(shares[id.index()] != RowNormShare::has_sums || of_weights);
    if (shares[id.index()] == RowNormShare::takes_sums) {
      kept[task.device.index()] = {task.reads[1], task.reads[0], version[task.reads[1].index()], version[task.reads[0].index()]};
    }
    if (shares[id.index()] == RowNormShare::has_sums) {
      const Sums& sums = kept[task.device.index()];
      EXPECT_EQ(sums.x, task.reads[0]);
      EXPECT_EQ(sums.dy, task.reads[1]);
      EXPECT_EQ(sums.x_version, version[task.reads[0].index()]);
      EXPECT_EQ(sums.dy_version, version[task.reads[1].index()]);
      ++count.in_one;
    }
    count.norms += of_weights ? 1 : 0;
    for (const BufferId written : task.writes) {
      ++version[written.index()];
    }
  }
  return count;
}

TEST(RowNorms, TakeTheSumsOfTheWeightsWithTheGradientOfX) {
  for (const char* model :
       {"gpt:depth=2,heads=2,dim=16,context=4,vocab=8", "llama:depth=2,heads=2,kv-heads=1,dim=16,hidden=16,context=4,vocab=8"}) {
    const Count count = expect_sound(plan_of(model, "single", 1));
    EXPECT_EQ(count.norms, 5U) << model;
    EXPECT_EQ(count.in_one, count.norms) << model;
  }
}

TEST(RowNorms, FindTheSumsOfTheirOwnOperandsUnderEveryStrategy) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    if (strategy.name() == "single" || strategy.name() == "product") {
      continue;
    }
    const std::string name(strategy.name());
    const bool pipelined = name.find("zb") != std::string::npos || name == "1f1b" || name == "gpipe" || name == "interleaved" ||
                           name == "looped-bfs";
    const Count count = expect_sound(plan_of("gpt:depth=4,heads=2,dim=16,context=4,vocab=8", name, 2, pipelined ? 4 : 1));
    EXPECT_GT(count.norms, 0U) << name;
    // Only zero-bubble schedules put other norms' gradients between the two.
    EXPECT_TRUE(count.in_one == count.norms || name.find("zb") != std::string::npos)
        << name << ": " << count.in_one << " of " << count.norms;
  }
}

TEST(RowNorms, OfRowsThatRegistersDoNotHoldAreSummedByThemselves) {
  EXPECT_EQ(expect_sound(plan_of("gpt:depth=1,heads=16,dim=2048,context=2,vocab=8", "single", 1)).in_one, 0U);
  EXPECT_EQ(expect_sound(plan_of("gpt:depth=1,heads=3,dim=12,context=2,vocab=8", "single", 1)).in_one, 0U) << "24 bytes";
  EXPECT_GT(expect_sound(plan_of("gpt:depth=1,heads=16,dim=1024,context=2,vocab=8", "single", 1)).in_one, 0U);
}

}  // namespace
}  // namespace baton::cuda
