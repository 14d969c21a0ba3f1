#include <gtest/gtest.h>

#include "baton/model/zoo.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

const plan::Target applies{.all_reduce_with_sgd = true};

plan::Plan ddp(Step step, Layout layout = {}, std::vector<DelayRequest> delays = {}) {
  static const model::Model model = model::mlp({8, 12, 6, 4});
  const cluster::Cluster cluster = devices(3);
  return compile({.model = model,
                  .cluster = cluster,
                  .strategy = "ddp",
                  .step = std::move(step),
                  .layout = std::move(layout),
                  .target = applies,
                  .delays = std::move(delays)});
}

TEST(AppliedSum, TakesThePlaceOfPlainSgdBehindAnAllReduce) {
  const plan::Plan plan = ddp({.global_batch = 6});
  EXPECT_TRUE(places(plan.tasks(), "sgd").empty());
  const std::vector<std::size_t> sums = places(plan.tasks(), "all_reduce");
  ASSERT_EQ(sums.size(), 3U);
  for (const std::size_t at : sums) {
    const plan::Task& task = plan.tasks()[at];
    EXPECT_EQ(std::get<plan::Collective>(task.action).sgd_rate, 0.01);
    EXPECT_EQ(plan::payload(task).size(), 6U) << "three weights and three biases";
    ASSERT_EQ(task.writes.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) {
      const plan::Buffer& gradient = plan[plan::payload(task)[i]];
      const plan::Buffer& parameter = plan[task.writes[i]];
      EXPECT_EQ(gradient.role, plan::Role::gradient);
      EXPECT_EQ(parameter.role, plan::Role::parameter);
      EXPECT_EQ(std::get<plan::ParameterPart>(gradient.content).name, std::get<plan::ParameterPart>(parameter.content).name);
    }
  }
  EXPECT_TRUE(plan::verify(plan).holds());
  EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan);
}

TEST(AppliedSum, MovesTheSameBytes) {
  const plan::Plan plan = ddp({.global_batch = 6});
  const std::int64_t elements = 8 * 12 + 12 + 12 * 6 + 6 + 6 * 4 + 4;
  Bytes sent;
  for (const plan::Totals& totals : plan::totals_by_device(plan)) {
    sent += totals.work.sent;
  }
  EXPECT_EQ(sent, Bytes(2 * 2 * elements * 4)) << "2 (n-1)/n of the gradients from each of three";
}

TEST(AppliedSum, LeavesOtherOptimizersAlone) {
  for (const op::Optimizer& optimizer : {op::Optimizer(op::Sgd{.momentum = 0.9}), op::Optimizer(op::Sgd{.weight_decay = 0.1}),
                                         op::Optimizer(op::Sgd{.schedule = {.cosine_until = 9}}), op::Optimizer(op::Adam{})}) {
    const plan::Plan plan = ddp({.global_batch = 6, .optimizer = optimizer});
    EXPECT_FALSE(places(plan.tasks(), op::name(optimizer)).empty());
    EXPECT_TRUE(plan::verify(plan).holds());
  }
}

TEST(AppliedSum, LeavesAnUpdateAloneThatWaitsForTwoSums) {
  // A bucket for each parameter: the update of a block would need the sums of two.
  const plan::Plan plan = ddp({.global_batch = 6}, {.bucket = Bytes(1), .first_bucket = Bytes(1)});
  EXPECT_EQ(places(plan.tasks(), "sgd").size(), 9U);
  EXPECT_TRUE(plan::verify(plan).holds());
}

TEST(AppliedSum, LeavesAnUpdateToBeDelayed) {
  const plan::Plan plan = ddp({.global_batch = 6}, {}, {{plan::Phase::update, -1, Nanoseconds(1000)}});
  EXPECT_EQ(places(plan.tasks(), "sgd").size(), 9U);
  EXPECT_EQ(places(plan.tasks(), "delay").size(), 3U);
}

TEST(AppliedSum, IsRefusedWhereItsOperandsDoNotFit) {
  const plan::Plan good = ddp({.global_batch = 6});
  const std::size_t at = places(good.tasks(), "all_reduce")[0];
  const auto broken = [&](auto change) {
    std::vector<plan::Task> tasks = good.tasks();
    change(tasks[at]);
    const plan::Verdict verdict = plan::verify(plan::Plan(good.title(), good.devices(), good.buffers(), std::move(tasks)));
    return !verdict.holds() && verdict.violations[0].rule == plan::Rule::meet;
  };
  EXPECT_TRUE(broken([](plan::Task& task) { std::get<plan::Collective>(task.action).sgd_rate = 0.5; })) << "unlike the others";
  EXPECT_TRUE(broken([](plan::Task& task) { task.writes.pop_back(); }));
  EXPECT_TRUE(broken([](plan::Task& task) { std::swap(task.writes[0], task.writes[1]); }));
  EXPECT_TRUE(broken([](plan::Task& task) { task.reads.pop_back(); }));
}

}  // namespace
}  // namespace baton::strategy
