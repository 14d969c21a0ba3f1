#include <gtest/gtest.h>

#include <algorithm>

#include "baton/model/zoo.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/strategy.h"
#include "support/tiled_weights.h"
#include "support/usage_sentence.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Plan;
using plan::Role;
using plan::Task;

Plan compiled(const std::string& strategy, std::size_t count, Step step, plan::Target target = {}, Layout layout = {}) {
  static const model::Model model = model::mlp({8, 12, 6, 10, 5, 7, 4});  // six blocks: two per device for the longest pipelines
  const cluster::Cluster cluster = devices(count);
  step.global_batch = 6;
  return compile({.model = model,
                  .cluster = cluster,
                  .strategy = strategy,
                  .step = std::move(step),
                  .layout = std::move(layout),
                  .target = target});
}

const plan::Target fuses{
    .joined = op::joint_ops(), .gradient_with_sgd = true, .all_reduce_with_sgd = true, .layout = test::tiled_weights};

TEST(MixedPrecision, PlansOfEveryStrategyHoldAndParseBack) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const Strategy& strategy : strategies()) {
      for (const plan::Target& target : {plan::Target{}, fuses}) {
        for (const std::int64_t pieces : {0, 2}) {
          const Plan plan = compiled(strategy.name(), 3, {.precision = precision, .loss_scale = LossScale{}}, target,
                                     {.micro_batches = pieces});
          const plan::Verdict verdict = plan::verify(plan);
          EXPECT_TRUE(verdict.holds()) << strategy.name() << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
          EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan) << strategy.name();
          EXPECT_NE(plan.title().find(to_text(precision)), std::string::npos) << plan.title();
        }
      }
    }
  }
}

TEST(MixedPrecision, EachParameterIsCastOnceOnTheDeviceThatOwnsItBeforeAnythingElseComputes) {
  for (const auto& [strategy, casts] : {std::pair<std::string, std::size_t>{"single", 12},
                                        {"dp", 12},
                                        {"ddp", 36},
                                        {"layers", 12},
                                        {"1f1b", 12},
                                        {"zero-1", 36},
                                        {"zero-3", 36}}) {
    const Plan plan = compiled(strategy, 3, {.precision = Precision::bf16});
    EXPECT_EQ(places(plan.tasks(), "cast").size(), casts) << strategy;
    for (const std::size_t i : places(plan.tasks(), "cast")) {
      const Task& cast = plan.tasks()[i];
      EXPECT_TRUE(plan[cast.reads[0]].persistent);
      EXPECT_EQ(plan[cast.reads[0]].dtype, DType::f32);
      EXPECT_EQ(plan[cast.writes[0]].dtype, DType::bf16);
      EXPECT_EQ(plan[cast.writes[0]].content, plan[cast.reads[0]].content);
      EXPECT_EQ(cast.labels.phase, plan::Phase::forward);
      EXPECT_LT(i, places(plan.tasks(), "linear")[0]) << strategy;
    }
  }
}

TEST(MixedPrecision, OnlyUpdatesAndCastsTouchFloat32) {
  for (const Strategy& strategy : strategies()) {
    const Plan plan = compiled(strategy.name(), 2, {.optimizer = op::Adam{}, .precision = Precision::fp16});
    for (const Task& task : plan.tasks()) {
      const bool may = plan::verb(task) == "cast" || plan::verb(task) == "adam";
      for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
        for (const BufferId id : *list) {
          EXPECT_TRUE(may || plan[id].dtype != DType::f32) << plan::verb(task) << " touches " << plan[id].label;
        }
      }
    }
  }
}

TEST(MixedPrecision, BucketsAreFilledByTheBytesThatCross) {
  // Six blocks of 32 to 108 parameters: about 72 of them fill a bucket in 32 bits, about 145 in 16.
  const auto buckets = [](Precision precision) {
    const Plan plan = compiled("ddp", 2, {.precision = precision}, {}, {.bucket = Bytes(290), .first_bucket = Bytes(290)});
    return places(plan.tasks(), "all_reduce").size() / 2;
  };
  EXPECT_EQ(buckets(Precision::fp32), 4U);
  EXPECT_EQ(buckets(Precision::bf16), 2U);
}

TEST(MixedPrecision, HalfTheBytesCross) {
  for (const std::string strategy : {"dp", "ddp", "layers", "tensor", "zero-1", "zero-2", "zero-3", "1f1b"}) {
    const auto sent = [&](Precision precision) {
      Bytes sum;
      for (const plan::Totals& totals : plan::totals_by_device(compiled(strategy, 3, {.precision = precision}))) {
        sum += totals.work.sent;
      }
      return sum;
    };
    EXPECT_EQ(sent(Precision::bf16) * 2, sent(Precision::fp32)) << strategy;
  }
}

TEST(MixedPrecision, FusesActivationsAndMasksButNoUpdate) {
  for (const bool scaled : {false, true}) {
    for (const std::string strategy : {"single", "ddp"}) {
      Step step{.precision = Precision::bf16};
      if (scaled) {
        step.loss_scale = LossScale{};
      }
      const Plan plan = compiled(strategy, 2, step, fuses);
      EXPECT_TRUE(places(plan.tasks(), "relu").empty());
      const std::size_t devices = strategy == "single" ? 1 : 2;
      EXPECT_EQ(places(plan.tasks(), "relu_backward").size(), devices) << "behind the loss";
      EXPECT_EQ(places(plan.tasks(), "sgd").size(), 6 * devices);
      EXPECT_TRUE(plan::verify(plan).holds());
    }
  }
}

TEST(MixedPrecision, Float32WithAScaledLossFusesNoUpdateEither) {
  const Plan plan = compiled("ddp", 2, {.loss_scale = LossScale{}}, fuses);
  EXPECT_EQ(places(plan.tasks(), "sgd").size(), 12U);
  EXPECT_TRUE(places(plan.tasks(), "cast").empty());
  EXPECT_TRUE(plan::verify(plan).holds());
}

TEST(MixedPrecision, WorkingCopiesOfWeightsAreTiledLikeTheWeights) {
  const Plan plan = compiled("dp", 2, {.precision = Precision::fp16}, fuses);
  for (const Buffer& buffer : plan.buffers()) {
    if (std::holds_alternative<plan::ParameterPart>(buffer.content)) {
      EXPECT_EQ(buffer.layout == "tiled", buffer.shape.rank() == 2) << buffer.label;
    }
  }
}

TEST(MixedPrecision, DataIsDrawnInSixteenBitsAndLabelsStayWhatTheyAre) {
  const Plan plan = compiled("ddp", 2, {.loss = Loss::cross_entropy, .precision = Precision::fp16});
  for (const Buffer& buffer : plan.buffers()) {
    if (buffer.role == Role::input) {
      EXPECT_EQ(buffer.dtype, DType::f16);
    } else if (buffer.role == Role::target) {
      EXPECT_EQ(buffer.dtype, DType::i32);
    } else if (buffer.role == Role::loss) {
      EXPECT_EQ(buffer.dtype, DType::f64);
    }
  }
}

// ---- loss scaling

TEST(LossScaling, ChecksAllGradientsOfADeviceOnceAndAdjustsAfterTheLastUpdate) {
  for (const Strategy& strategy : strategies()) {
    const Plan plan = compiled(strategy.name(), 3, {.precision = Precision::fp16, .loss_scale = LossScale{.growth_interval = 7}});
    const std::size_t owners = strategy.name() == "single" || strategy.name() == "dp" ? 1 : 3;
    const std::vector<std::size_t> checks = places(plan.tasks(), "check_finite");
    const std::vector<std::size_t> updates = places(plan.tasks(), "sgd");
    const std::vector<std::size_t> ends = places(plan.tasks(), "adjust_scale");
    ASSERT_EQ(checks.size(), owners) << strategy.name();
    ASSERT_EQ(ends.size(), owners) << strategy.name();
    EXPECT_LT(checks.back(), updates.front());
    EXPECT_LT(updates.back(), ends.front());
    std::vector<BufferId> checked;
    std::vector<BufferId> used;
    for (const std::size_t i : checks) {
      checked.insert(checked.end(), plan.tasks()[i].reads.begin(), plan.tasks()[i].reads.end());
    }
    for (const std::size_t i : updates) {
      const Task& update = plan.tasks()[i];
      EXPECT_TRUE(std::get<plan::Update>(update.action).scaled);
      used.insert(used.end(), update.reads.begin(), update.reads.begin() + static_cast<std::ptrdiff_t>(update.writes.size()));
    }
    std::sort(checked.begin(), checked.end());
    std::sort(used.begin(), used.end());
    EXPECT_EQ(checked, used) << strategy.name();
    for (const std::size_t i : ends) {
      EXPECT_EQ(std::get<plan::Compute>(plan.tasks()[i].action).op, op::Op(op::AdjustScale{7}));
    }
    for (const std::size_t i : places(plan.tasks(), "mean_squared_error")) {
      EXPECT_TRUE(std::get<op::MeanSquaredError>(std::get<plan::Compute>(plan.tasks()[i].action).op).scaled);
    }
  }
}

TEST(LossScaling, ADeviceToWhichNoParameterFallsStillAgreesToSkip) {
  const model::Model model = model::mlp({1, 1});  // a weight and a bias: the last of three devices gets both
  const cluster::Cluster cluster = devices(3);
  const Plan plan = compile({.model = model,
                             .cluster = cluster,
                             .strategy = "zero-2",
                             .step = {.global_batch = 6, .precision = Precision::fp16, .loss_scale = LossScale{}}});
  EXPECT_TRUE(plan::verify(plan).holds());
  EXPECT_EQ(places(plan.tasks(), "check_finite").size(), 3U);
  EXPECT_EQ(places(plan.tasks(), "sgd").size(), 1U);
}

TEST(LossScaling, DevicesTellEachOtherWhetherTheirGradientsAreFinite) {
  for (const auto& [strategy, members] :
       {std::pair<std::string, std::size_t>{"single", 0}, {"dp", 0}, {"ddp", 3}, {"layers", 3}, {"tensor", 3}, {"zero-3", 3}}) {
    const Plan plan = compiled(strategy, 3, {.precision = Precision::fp16, .loss_scale = LossScale{}});
    std::size_t found = 0;
    for (const std::size_t i : places(plan.tasks(), "all_reduce")) {
      const Task& task = plan.tasks()[i];
      if (plan[task.reads[0]].shape == Shape{1} && plan[task.reads[0]].dtype == DType::f32) {
        ++found;
        EXPECT_EQ(task.reads.size(), 1U);
        EXPECT_EQ(task.labels.phase, plan::Phase::update);
      }
    }
    EXPECT_EQ(found, members) << strategy;
  }
}

TEST(LossScaling, KeepsItsStateFromStepToStepAndBeginsAtTheScaleAskedFor) {
  const Plan plan = compiled("layers", 2, {.precision = Precision::fp16, .loss_scale = LossScale{.initial = 96}});
  std::size_t states = 0;
  for (const Buffer& buffer : plan.buffers()) {
    if (const auto* scaler = std::get_if<plan::LossScaler>(&buffer.content)) {
      ++states;
      EXPECT_EQ(scaler->initial, 96);
      EXPECT_TRUE(buffer.persistent);
      EXPECT_EQ(buffer.dtype, DType::f32);
    }
  }
  EXPECT_EQ(states, 2U);
}

TEST(LossScaling, AFixedScaleIsAdjustedByNothing) {
  const Plan plan = compiled("single", 1, {.loss_scale = LossScale{.growth_interval = 5, .dynamic = false}});
  const Task& end = plan.tasks()[places(plan.tasks(), "adjust_scale")[0]];
  EXPECT_EQ(std::get<plan::Compute>(end.action).op, op::Op(op::AdjustScale{0}));
}

TEST(Precision, GoesByOurNamesAndByPyTorchs) {
  for (const auto& [name, precision] : {std::pair{"fp32", Precision::fp32},
                                        {"Float32", Precision::fp32},
                                        {"bf16", Precision::bf16},
                                        {"bfloat16", Precision::bf16},
                                        {"FP16", Precision::fp16},
                                        {"float16", Precision::fp16},
                                        {"half", Precision::fp16},
                                        {"mixed", Precision::fp16},
                                        {"tf32", Precision::tf32},
                                        {"fp64", Precision::fp64},
                                        {"double", Precision::fp64}}) {
    EXPECT_EQ(precision_by_name(name), precision) << name;
  }
  EXPECT_EQ(test::usage_sentence([] { precision_by_name("fp8"); }),
            "unknown precision 'fp8': choose fp64, fp32, tf32, bf16 or fp16");
  EXPECT_TRUE(test::says(test::usage_sentence([] { precision_by_name("bp16"); }), "did you mean bf16?"));
  EXPECT_EQ(dtype_of(Precision::fp64), DType::f64);
  EXPECT_EQ(dtype_of(Precision::tf32), DType::f32);
  EXPECT_EQ(dtype_of(Precision::fp32), DType::f32);
  EXPECT_EQ(dtype_of(Precision::bf16), DType::bf16);
  EXPECT_EQ(dtype_of(Precision::fp16), DType::f16);
}

}  // namespace
}  // namespace baton::strategy
