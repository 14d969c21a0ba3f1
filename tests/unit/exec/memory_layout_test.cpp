#include "baton/exec/memory_layout.h"

#include <gtest/gtest.h>

#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/strategy/strategy.h"
#include "support/column_major_backend.h"
#include "support/devices.h"
#include "support/tiled_weights.h"
#include "support/usage_sentence.h"

namespace baton::exec {
namespace {

using test::ColumnMajorBackend;

struct Way {
  std::string strategy;
  std::size_t devices;
  strategy::Layout layout = {};
  strategy::Precision precision = strategy::Precision::fp32;
};

plan::Plan compile(const model::Model& model, const Way& way, const plan::Target& target, op::Optimizer optimizer = op::Adam{}) {
  return strategy::compile(
      {.model = model,
       .cluster = cluster::Cluster(test::cpus(way.devices)),
       .strategy = way.strategy,
       .step = {.global_batch = 8, .loss = strategy::Loss::cross_entropy, .optimizer = optimizer, .precision = way.precision},
       .layout = way.layout,
       .target = target});
}

std::vector<double> train(const plan::Plan& plan, const Backend& backend) {
  const cluster::Cluster cluster(test::cpus(plan.devices().size()));
  return Executor(plan, cluster, backend, {.seed = 3, .samples = 50}).run({.steps = 6, .warmup = 0}).losses;
}

TEST(MemoryLayout, OfABackendOfOnesOwnGivesTheLossesOfTheRowMajorOrderUnderAnyStrategy) {
  const ColumnMajorBackend own;
  const auto reference = make_reference_backend();
  for (const char* text : {"mlp:7-12-20-5", "gpt:depth=2,heads=2,dim=8,context=4,vocab=11"}) {
    const model::Model model = model::parse_model(text);
    for (const Way& way : {Way{"single", 1}, Way{"dp", 2}, Way{"ddp", 2}, Way{"layers", 2}, Way{"tensor", 2}, Way{"zero-1", 3},
                           Way{"zero-3", 2}, Way{"1f1b", 2, {.micro_batches = 2}}, Way{"ddp", 2, {}, strategy::Precision::bf16}}) {
      const plan::Plan plan = compile(model, way, own.target());
      std::size_t laid_out = 0;
      for (const plan::Buffer& buffer : plan.buffers()) {
        const bool parameter = std::holds_alternative<plan::ParameterPart>(buffer.content);
        EXPECT_EQ(buffer.layout, !parameter ? "" : plan::axes_of_whole(buffer) > 1 ? "column_major" : "reversed") << buffer.label;
        laid_out += parameter ? 1 : 0;
      }
      EXPECT_GT(laid_out, 8U);
      EXPECT_EQ(train(plan, own), train(compile(model, way, reference->target()), *reference)) << text << ", " << way.strategy;
    }
  }
}

TEST(MemoryLayout, OfTheCpuBackendIsWhatTestsWithoutABackendTakeForIt) {
  const auto cpu = make_cpu_backend();
  const plan::Target stand_in{.layout = test::tiled_weights};
  for (const char* text : {"mlp:7-12-20-5", "gpt:depth=2,heads=2,dim=8,context=4,vocab=11", "cnn:4-6,image=12,channels=2,classes=4",
                           "llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=24,context=4,vocab=11"}) {
    const model::Model model = model::parse_model(text);
    const plan::Plan plan = compile(model, {"tensor", 2}, stand_in);
    std::size_t tiled = 0;
    for (const plan::Task& task : plan.tasks()) {
      for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
        for (const BufferId operand : *list) {
          const std::string wanted = cpu->target().layout(plan.buffers(), task, operand);
          EXPECT_EQ(test::tiled_weights(plan.buffers(), task, operand), wanted) << text;
          tiled += wanted.empty() ? 0 : 1;
        }
      }
    }
    EXPECT_GT(tiled, 4U) << text;
  }
}

TEST(MemoryLayout, OfABackendOfOnesOwnStandsInAPlansText) {
  const plan::Plan plan = compile(model::parse_model("mlp:3-4-2"), {"zero-3", 2}, ColumnMajorBackend().target());
  const std::string text = plan::to_text(plan);
  EXPECT_NE(text.find(" 4x3 column_major "), std::string::npos) << text;
  EXPECT_NE(text.find(" reversed persistent "), std::string::npos) << text;
  EXPECT_EQ(plan::to_text(plan::parse(text)), text);
  EXPECT_EQ(plan::parse(text).buffers(), plan.buffers());
}

TEST(MemoryLayout, ThatABackendDoesNotHaveIsRefusedBeforeAnythingRuns) {
  const plan::Plan plan = compile(model::parse_model("mlp:3-4-2"), {"single", 1}, ColumnMajorBackend().target());
  for (const auto& backend : {make_reference_backend(), make_cpu_backend()}) {
    const std::string sentence = test::usage_sentence([&] { train(plan, *backend); });
    EXPECT_TRUE(test::says(sentence, "block0.weight in the memory layout column_major")) << sentence;
  }
}

TEST(Fusion, IsTheListOfTheBackend) {
  const model::Model model = model::parse_model("mlp:7-12-20-5");
  const auto reference = make_reference_backend();
  const auto verbs = [](const plan::Plan& plan) {
    std::map<std::string, int> counts;
    for (const plan::Task& task : plan.tasks()) {
      const auto* compute = std::get_if<plan::Compute>(&task.action);
      const auto* linear = compute == nullptr ? nullptr : std::get_if<op::Linear>(&compute->op);
      ++counts[std::string(plan::verb(task)) + (linear != nullptr && linear->relu ? " relu" : "")];
    }
    return counts;
  };
  for (const bool with_sgd : {false, true}) {
    const ColumnMajorBackend own({op::Linear{.relu = true}}, with_sgd);
    const plan::Plan plan = compile(model, {"single", 1}, own.target(), op::Sgd{});
    auto counts = verbs(plan);
    EXPECT_EQ(counts["linear relu"], 3);
    EXPECT_EQ(counts["relu"], 0);
    EXPECT_EQ(counts["relu_backward"], 3) << "this one it does not fuse";
    EXPECT_EQ(counts["sgd"], with_sgd ? 0 : 3);
    plan::Target row_major = own.target();
    row_major.layout = nullptr;
    EXPECT_EQ(train(plan, own), train(compile(model, {"single", 1}, row_major, op::Sgd{}), *reference));
  }
}

}  // namespace
}  // namespace baton::exec
