#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

using plan::Buffer;
using plan::Plan;
using plan::Task;

const plan::Target copies{.copies = true};
const plan::Target fuses{.joined = op::joint_ops(),
                         .gradient_with_sgd = true,
                         .narrow_gradient_with_sgd = {DType::bf16, DType::f16},
                         .adds = true,
                         .copies = true};

Plan compiled(const std::string& model_text, const std::string& strategy, std::size_t count, Step step, plan::Target target,
              Layout layout = {}) {
  const model::Model model = model::parse_model(model_text);
  const cluster::Cluster cluster = devices(count);
  step.global_batch = 8;
  step.loss = model_text.find("vocab") == std::string::npos ? Loss::mean_squared_error : Loss::cross_entropy;
  return compile({.model = model,
                  .cluster = cluster,
                  .strategy = strategy,
                  .step = std::move(step),
                  .layout = std::move(layout),
                  .target = std::move(target)});
}

const std::string mlp = "mlp:8-12-6-10-5-7-4";
const std::string gpt = "gpt:depth=2,heads=2,dim=8,context=4,vocab=16";

void expect_sound(const Plan& plan) {
  const plan::Verdict verdict = plan::verify(plan);
  EXPECT_TRUE(verdict.holds()) << plan.title() << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
  EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan) << plan.title();
}

/// The casts of parameters.
std::size_t parameter_casts(const Plan& plan) {
  return static_cast<std::size_t>(std::count_if(plan.tasks().begin(), plan.tasks().end(), [&](const Task& task) {
    return plan::verb(task) == "cast" && plan[task.reads[0]].role == plan::Role::parameter;
  }));
}

std::size_t kept_copies(const Plan& plan) {
  return static_cast<std::size_t>(std::count_if(plan.buffers().begin(), plan.buffers().end(), plan::is_kept_copy));
}

TEST(Copies, OfParametersLiveOnUnderEveryStrategyAndAreWrittenByTheirUpdate) {
  for (const Strategy& strategy : strategies()) {
    for (const std::string optimizer : {"sgd", "momentum", "adamw"}) {
      for (const bool clips : {false, true}) {
        Step step{.optimizer = op::optimizer_by_name(optimizer), .precision = Precision::bf16};
        if (clips) {
          std::visit([](auto& one) { one.clip = 0.5; }, step.optimizer);
          step.precision = Precision::fp16;
          step.loss_scale = LossScale{};
        }
        const Plan before = compiled(mlp, strategy.name(), 3, step, {});
        const Plan plan = compiled(mlp, strategy.name(), 3, step, copies);
        expect_sound(plan);
        EXPECT_EQ(parameter_casts(plan), 0U) << strategy.name();
        EXPECT_EQ(kept_copies(plan), parameter_casts(before)) << strategy.name();
        EXPECT_EQ(kept_copies(before), 0U);
        EXPECT_EQ(plan.tasks().size(), before.tasks().size() - parameter_casts(before));
      }
    }
  }
}

TEST(Copies, OfParametersAreWrittenByTheGradientThatTakesTheStep) {
  const Plan plan = compiled(mlp, "single", 1, {.precision = Precision::bf16}, fuses);
  expect_sound(plan);
  EXPECT_TRUE(places(plan.tasks(), "sgd").empty());
  EXPECT_EQ(parameter_casts(plan), 0U);
  for (const std::size_t i : places(plan.tasks(), "linear_backward_weight")) {
    const Task& task = plan.tasks()[i];
    ASSERT_EQ(task.writes.size(), 4U);
    for (const std::size_t copy : {2U, 3U}) {
      EXPECT_TRUE(plan::is_kept_copy(plan[task.writes[copy]]));
      EXPECT_EQ(plan[task.writes[copy]].content, plan[task.writes[copy - 2]].content);
    }
  }
}

TEST(Copies, AreCastWhereNothingIsUpdatedOrTheTargetWritesNone) {
  Step step{.precision = Precision::bf16};
  EXPECT_EQ(parameter_casts(compiled(mlp, "single", 1, step, {})), 12U);
  step.forward_only = true;
  const Plan forward = compiled(mlp, "single", 1, step, copies);
  EXPECT_EQ(parameter_casts(forward), 12U);
  EXPECT_EQ(kept_copies(forward), 0U);
  EXPECT_EQ(kept_copies(compiled(mlp, "single", 1, {.precision = Precision::fp32}, copies)), 0U);
}

TEST(Copies, OfParametersCostAtMostTheirBytes) {
  for (const std::string& model : {mlp, gpt}) {
    const Step step{.optimizer = op::Adam{}, .precision = Precision::bf16};
    const Plan before = compiled(model, "single", 1, step, {});
    const Plan plan = compiled(model, "single", 1, step, copies);
    Bytes bytes;
    for (const Buffer& buffer : plan.buffers()) {
      bytes += plan::is_kept_copy(buffer) ? Bytes((buffer.size().count + 63) / 64 * 64) : Bytes(0);
    }
    EXPECT_LE(plan::verify(plan).memory.peak[0], plan::verify(before).memory.peak[0] + bytes);
  }
}

TEST(Copies, ThatAreNotUpdatedOrUpdatedByAnotherAreNoticed) {
  const Plan plan = compiled(mlp, "single", 1, {.optimizer = op::Adam{}, .precision = Precision::bf16}, copies);
  const auto changed = [&](auto change) {
    std::vector<Task> tasks = plan.tasks();
    std::vector<Buffer> buffers = plan.buffers();
    change(tasks[places(tasks, "adam")[0]], buffers);
    const plan::Verdict verdict = plan::verify(Plan(plan.title(), plan.devices(), buffers, tasks, plan.graph()));
    EXPECT_FALSE(verdict.holds());
    return verdict.violations.empty() ? std::string() : verdict.violations[0].text;
  };
  const auto stale = changed([](Task& update, std::vector<Buffer>&) {
    update.writes.resize(update.writes.size() - plan::updated_count(update));
    std::get<plan::Update>(update.action).copies = false;
  });
  EXPECT_NE(stale.find("nothing updates"), std::string::npos) << stale;
  const auto forgotten = changed(
      [](Task& update, std::vector<Buffer>& buffers) { buffers[update.writes.back().index()].persistent = false; });
  EXPECT_FALSE(forgotten.empty());
  const auto wide = changed(
      [](Task& update, std::vector<Buffer>& buffers) { buffers[update.writes.back().index()].dtype = DType::f32; });
  EXPECT_FALSE(wide.empty());
}

TEST(Copies, OfTheStreamsGradientAreWrittenByTheNormsThatMakeIt) {
  for (const std::string& model : {gpt, std::string("llama:depth=2,heads=2,kv-heads=1,dim=8,hidden=12,context=4,vocab=16")}) {
    const Step step{.precision = Precision::bf16};
    const Plan before = compiled(model, "single", 1, step, {});
    const Plan plan = compiled(model, "single", 1, step, fuses);
    expect_sound(plan);
    EXPECT_EQ(places(before.tasks(), "cast").size() - parameter_casts(before), 4U) << "two in each of two layers";
    EXPECT_EQ(places(plan.tasks(), "cast").size(), 0U);
  }
}

TEST(Sums, OfGradientsAreMadeByTheOpsThatGiveTheirTerms) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto backward_adds = [](const Plan& plan) {
      return std::count_if(plan.tasks().begin(), plan.tasks().end(), [](const Task& task) {
        return plan::verb(task) == "add" && task.labels.phase == plan::Phase::backward;
      });
    };
    const Plan before = compiled(gpt, "single", 1, {.precision = precision}, {});
    const Plan plan = compiled(gpt, "single", 1, {.precision = precision}, fuses);
    expect_sound(plan);
    EXPECT_EQ(backward_adds(before), 8) << "of queries, keys and values two, of the stream two in each layer";
    EXPECT_EQ(backward_adds(plan), 0);
  }
}

TEST(Sums, AreSoundUnderEveryStrategy) {
  for (const Strategy& strategy : strategies()) {
    for (const Recompute recompute : {Recompute::none, Recompute::all}) {
      for (const std::int64_t pieces : {0, 2}) {
        expect_sound(compiled("gpt:depth=4,heads=2,dim=8,context=4,vocab=16", strategy.name(), 2,
                              {.optimizer = op::Adam{}, .precision = Precision::bf16}, fuses,
                              {.recompute = recompute, .micro_batches = pieces}));
      }
    }
  }
  expect_sound(compiled(gpt, "product", 4, {.precision = Precision::bf16}, fuses, {.dp = 2, .tp = 2, .sp = true}));
  expect_sound(compiled(gpt, "product", 8, {.precision = Precision::bf16}, fuses,
                        {.dp = 2, .pp = 2, .tp = 2, .zero = 3, .schedule = "1f1b", .micro_batches = 2}));
}

TEST(Sums, OfTheSameTermTwiceAreNoticed) {
  const Plan plan = compiled(gpt, "single", 1, {.precision = Precision::bf16}, fuses);
  std::vector<Task> tasks = plan.tasks();
  const auto adding = std::find_if(tasks.begin(), tasks.end(), [](const Task& task) {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    const auto* product = compute == nullptr ? nullptr : std::get_if<op::LinearBackwardInput>(&compute->op);
    return product != nullptr && product->adds;
  });
  ASSERT_NE(adding, tasks.end());
  const auto next = std::find_if(adding + 1, tasks.end(), [&](const Task& task) {
    return std::find(task.reads.begin(), task.reads.end(), adding->writes[0]) != task.reads.end();
  });
  ASSERT_NE(next, tasks.end());
  next->reads.back() = adding->reads.back();  // in place of the sum of it and another one
  const plan::Verdict verdict = plan::verify(Plan(plan.title(), plan.devices(), plan.buffers(), tasks, plan.graph()));
  EXPECT_FALSE(verdict.holds());
}

}  // namespace
}  // namespace baton::strategy
