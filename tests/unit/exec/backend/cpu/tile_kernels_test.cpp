#include "baton/exec/backend/cpu/tile_kernels.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "agree/thread_world.h"
#include "baton/base/error.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "support/usage_sentence.h"
#include "support/variable.h"

namespace baton::exec::cpu {
namespace {

cluster::Cluster devices(std::size_t count) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({"cpu:" + std::to_string(d), {0, 1}, Bytes(1 << 30)});
  }
  return cluster::Cluster(list);
}

plan::Plan compile(const std::string& model, const cluster::Cluster& cluster, const Backend& backend, strategy::Precision precision,
                   bool wide_gradients = false) {
  strategy::Step step{.global_batch = 4, .precision = precision, .wide_gradients = wide_gradients};
  if (model.starts_with("gpt")) {
    step.loss = strategy::Loss::cross_entropy;
  }
  return strategy::compile({.model = model::parse_model(model),
                            .cluster = cluster,
                            .strategy = cluster.size() == 1 ? "single" : "ddp",
                            .step = std::move(step),
                            .target = backend.target()});
}

constexpr const char* mlp = "mlp:dim=40,depth=3";
constexpr const char* gpt = "gpt:depth=1,heads=2,dim=32,context=8,vocab=40";

std::vector<double> losses(const std::string& model, TileUnit unit, std::size_t count, bool wide_gradients = false) {
  const auto backend = make_backend(unit);
  const cluster::Cluster cluster = devices(count);
  const plan::Plan plan = compile(model, cluster, *backend, strategy::Precision::bf16, wide_gradients);
  Executor executor(plan, cluster, *backend);
  return executor.run({.steps = 6, .warmup = 0}).losses;
}

std::vector<TileUnit> units() {
  return has_amx() ? std::vector{TileUnit::portable, TileUnit::amx} : std::vector{TileUnit::portable};
}

TEST(CpuTileKernels, StepsAreNearThoseOfRoundedFloat32) {
  for (const char* model : {mlp, gpt}) {
    for (const std::size_t count : {1U, 2U}) {
      for (const bool wide_gradients : {false, true}) {
        const std::vector<double> expected = losses(model, TileUnit::none, count, wide_gradients);
        for (const TileUnit unit : units()) {
          const std::vector<double> own = losses(model, unit, count, wide_gradients);
          ASSERT_EQ(own.size(), expected.size());
          for (std::size_t step = 0; step < own.size(); ++step) {
            // Sums differ in their last bits, so a value now and then is rounded to the neighbouring bf16.
            EXPECT_NEAR(own[step], expected[step], expected[step] * 0x1p-8) << model << " on " << count << ", " << to_text(unit);
          }
          EXPECT_EQ(losses(model, unit, count, wide_gradients), own) << "the same command gives the same bits";
        }
      }
    }
  }
}

TEST(CpuTileKernels, EveryLinearProductOfABf16StepIsDoneByTiles) {
  const auto backend = make_backend(TileUnit::portable);
  for (const char* model : {mlp, gpt}) {
    const plan::Plan narrow = compile(model, devices(1), *backend, strategy::Precision::bf16);
    const plan::Plan wide = compile(model, devices(1), *backend, strategy::Precision::fp32);
    const plan::Plan fp16 = compile(model, devices(1), *backend, strategy::Precision::fp16);
    const auto count = [](const plan::Plan& plan, TileUnit unit) {
      int tasks = 0;
      for (const plan::Task& task : plan.tasks()) {
        tasks += multiplies_in_tiles(unit, plan.buffers(), task) ? 1 : 0;
      }
      return tasks;
    };
    const auto products = [](const plan::Plan& plan) {
      int tasks = 0;
      for (const plan::Task& task : plan.tasks()) {
        const auto* compute = std::get_if<plan::Compute>(&task.action);
        tasks += compute != nullptr && (std::holds_alternative<op::Linear>(compute->op) ||
                                        std::holds_alternative<op::LinearBackwardInput>(compute->op) ||
                                        std::holds_alternative<op::LinearBackwardWeight>(compute->op))
                     ? 1
                     : 0;
      }
      return tasks;
    };
    EXPECT_GT(products(narrow), 0);
    EXPECT_EQ(count(narrow, TileUnit::portable), products(narrow));
    EXPECT_EQ(count(narrow, TileUnit::none), 0);
    EXPECT_EQ(count(wide, TileUnit::portable), 0);
    EXPECT_EQ(count(fp16, TileUnit::portable), 0);
  }
}

/// A format loses gradients by rounding them to zero. A step that takes its gradient from the product rounds none of it.
TEST(CpuTileKernels, AGradientThatGoesIntoTheStepUnroundedIsCountedAsKept) {
  const auto kept = [](TileUnit unit) {
    const auto backend = make_backend(unit);
    const cluster::Cluster cluster = devices(1);
    const plan::Plan plan = compile(mlp, cluster, *backend, strategy::Precision::bf16);
    Executor executor(plan, cluster, *backend);
    const Rounding rounding = total_rounding(executor.run({.steps = 2, .warmup = 0}).roundings, plan::Role::gradient);
    return static_cast<double>(rounding.values - rounding.underflows);
  };
  const double emulated = kept(TileUnit::none);
  EXPECT_GT(emulated, 2.0 * 3 * 40 * 40 / 4) << "of three weights of 40 x 40, in two steps";
  for (const TileUnit unit : units()) {
    EXPECT_NEAR(kept(unit) / emulated, 1, 0.02) << to_text(unit);
  }
}

TEST(CpuTileKernels, OnlyTheProcessorsTilesMakeBf16Native) {
  EXPECT_TRUE(make_backend(TileUnit::amx)->is_native(DType::bf16));
  EXPECT_FALSE(make_backend(TileUnit::amx)->is_native(DType::f16));
  EXPECT_FALSE(make_backend(TileUnit::portable)->is_native(DType::bf16));
  EXPECT_FALSE(make_backend(TileUnit::none)->is_native(DType::bf16));
  EXPECT_TRUE(make_backend(TileUnit::none)->is_native(DType::f32));
}

TEST(CpuTileKernels, TheEnvironmentMayTurnThemOffOrAskForTheModel) {
  const auto chosen = [](const char* word) {
    const baton::test::Variable variable("BATON_AMX", word);
    return tile_unit();
  };
  EXPECT_EQ(chosen(nullptr), has_amx() ? TileUnit::amx : TileUnit::none);
  EXPECT_EQ(chosen("off"), TileUnit::none);
  EXPECT_EQ(chosen("portable"), TileUnit::portable);
  EXPECT_EQ(baton::test::usage_sentence([&] { chosen("on"); }), "BATON_AMX is 'on': choose off or portable, or do not set it");
}

TEST(CpuTileKernels, OtherProductsOfBf16ThanThoseOfLinearLayersAreEmulated) {
  const std::string cnn = "cnn:4,image=8,channels=1,classes=3";
  const auto emulated = [](const std::string& model, TileUnit unit, strategy::Precision precision) {
    const auto backend = make_backend(unit);
    const plan::Plan plan = compile(model, devices(1), *backend, precision);
    std::set<std::string> kinds;
    for (const plan::Task& task : plan.tasks()) {
      if (backend->emulates(plan, task)) {
        kinds.emplace(op::kind_of_product(std::get<plan::Compute>(task.action).op));
      }
    }
    return kinds;
  };
  using Kinds = std::set<std::string>;
  for (const TileUnit unit : {TileUnit::portable, TileUnit::amx}) {  // nothing runs
    EXPECT_EQ(emulated(mlp, unit, strategy::Precision::bf16), Kinds());
    EXPECT_EQ(emulated(gpt, unit, strategy::Precision::bf16), Kinds{"attention"});
    EXPECT_EQ(emulated(cnn, unit, strategy::Precision::bf16), Kinds{"convolutions"});
    EXPECT_EQ(emulated(cnn, unit, strategy::Precision::fp16), (Kinds{"convolutions", "linear layers"}));
    EXPECT_EQ(emulated(cnn, unit, strategy::Precision::fp32), Kinds());
  }
  EXPECT_EQ(emulated(gpt, TileUnit::none, strategy::Precision::bf16), (Kinds{"attention", "linear layers"}));
}

TEST(CpuTileKernels, TheUnitOfAPlanIsThatOfItsTypes) {
  const auto backend = make_backend(TileUnit::portable);
  const auto unit = [&](strategy::Precision precision) {
    return arithmetic_of(compile(mlp, devices(1), *backend, precision), *backend);
  };
  EXPECT_EQ(unit(strategy::Precision::bf16), "portable");
  EXPECT_EQ(unit(strategy::Precision::fp16), "");
  EXPECT_EQ(unit(strategy::Precision::fp32), "");
}

TEST(CpuTileKernels, RanksMustAgreeOnTheUnitIfTheStepIsInBf16) {
  const auto told = [](TileUnit first, TileUnit second, strategy::Precision precision) {
    std::vector<std::string> sentences(2);
    baton::test::run_as_ranks(2, [&](const std::shared_ptr<ranks::World>& world) {
      const auto backend = make_backend(world->rank() == 0 ? first : second);
      const cluster::Cluster cluster = devices(2);
      const plan::Plan plan = compile(mlp, cluster, *backend, precision);
      try {
        const Executor executor(plan, cluster, *backend, {}, world);
      } catch (const Error& error) {
        sentences[static_cast<std::size_t>(world->rank())] = error.what();
      }
    });
    EXPECT_EQ(sentences[0], sentences[1]);
    return sentences[0];
  };
  EXPECT_EQ(told(TileUnit::none, TileUnit::portable, strategy::Precision::bf16),
            "rank 1 multiplies bf16 by portable and rank 0 by emulation: set BATON_AMX to the same word, off or portable, for all "
            "ranks");
  EXPECT_EQ(told(TileUnit::portable, TileUnit::portable, strategy::Precision::bf16), "");
  EXPECT_EQ(told(TileUnit::none, TileUnit::portable, strategy::Precision::fp32), "");
  if (has_amx()) {
    EXPECT_EQ(told(TileUnit::amx, TileUnit::portable, strategy::Precision::bf16), "");
  }
}

}  // namespace
}  // namespace baton::exec::cpu
