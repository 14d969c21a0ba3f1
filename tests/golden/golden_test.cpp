#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "baton/base/text.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/fold.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"
#include "support/tiled_weights.h"

/// What each strategy compiles to, as text. A change shows here as a difference to be reviewed; an intended one is
/// blessed with `./baton test --bless`.
namespace baton::strategy {
namespace {

const plan::Target cpu_target{.joined = op::joint_relus(), .gradient_with_sgd = true, .layout = test::tiled_weights};

struct Golden {
  std::string file;
  std::string model;
  std::size_t devices = 1;
  std::string strategy;
  Step step = {.global_batch = 4};
  Layout layout = {};
  plan::Target target = {};
  std::vector<DelayRequest> delays = {};
  bool folded = false;
};

std::vector<Golden> golden_plans() {
  std::vector<Golden> list;
  const auto add = [&](std::string file, std::string model, std::size_t devices, std::string strategy) -> Golden& {
    Golden golden;
    golden.file = std::move(file);
    golden.model = std::move(model);
    golden.devices = devices;
    golden.strategy = std::move(strategy);
    return list.emplace_back(std::move(golden));
  };
  add("single", "mlp:3-5-2", 1, "single");
  add("single_fused", "mlp:3-5-2", 1, "single").target = cpu_target;
  add("single_adam", "mlp:3-5-2", 1, "single").step = {.global_batch = 4, .loss = Loss::cross_entropy, .optimizer = op::Adam{}};
  add("dp_3", "mlp:3-2", 3, "dp").target = cpu_target;
  add("ddp_2", "mlp:3-5-2", 2, "ddp");
  add("residual", "residual:dim=3,hidden=5,depth=2,sequence=2", 1, "single");
  add("tensor_2_sequence", "residual:dim=3,hidden=4,depth=1,sequence=2", 2, "tensor").layout = {.sp = true};
  Golden& buckets = add("ddp_2_buckets", "mlp:3-7-5-2", 2, "ddp");
  buckets.layout = {.bucket = Bytes(150), .first_bucket = Bytes(48)};  // 48 bytes are the last block's: reached
  buckets.target = cpu_target;
  add("ddp_2_delayed", "mlp:3-2", 2, "ddp").delays = {
      {.before = plan::Phase::backward, .device = 1, .duration = Nanoseconds(10'000'000)}};
  Golden& mixed = add("ddp_2_fp16", "mlp:3-2", 2, "ddp");
  mixed.step = {.global_batch = 4, .precision = Precision::fp16, .loss_scale = LossScale{}};
  mixed.target = cpu_target;
  add("layers_3", "mlp:3-5-4-2", 3, "layers");
  add("layers_3_fused", "mlp:3-5-4-6-2", 3, "layers").target = cpu_target;

  // Gradients that add up over micro-batches, one replica and several.
  add("single_accumulated", "mlp:3-5-2", 1, "single").layout = {.micro_batches = 2};
  add("ddp_2_accumulated", "mlp:3-2", 2, "ddp").layout = {.micro_batches = 2};
  add("dp_2_accumulated", "mlp:3-2", 2, "dp").layout = {.micro_batches = 2};

  // Divided tensors: pairs, a Linear left over, and features that do not divide evenly.
  add("tensor_2", "mlp:3-4-2", 2, "tensor");
  add("tensor_2_odd", "mlp:3-4-6-2", 2, "tensor");
  add("tensor_3_uneven", "mlp:3-5-4-7-2", 3, "tensor").target = cpu_target;
  add("tensor_2_accumulated", "mlp:3-4-2", 2, "tensor").layout = {.micro_batches = 2};

  // ZeRO, with pieces that do not divide evenly; a bias of one element leaves a device without a piece.
  add("zero1_2", "mlp:3-5-2", 2, "zero-1").step = {.global_batch = 4, .optimizer = op::Adam{}};
  add("zero2_2", "mlp:3-5-2", 2, "zero-2").step = {.global_batch = 5};
  add("zero3_2", "mlp:3-5-2", 2, "zero-3");
  add("zero3_3_one_output", "mlp:3-1", 3, "zero-3").target = cpu_target;
  for (const std::int64_t stage : {1, 2, 3}) {
    add(fmt::format("zero{}_2_accumulated", stage), "mlp:3-2", 2, fmt::format("zero-{}", stage)).layout = {.micro_batches = 2};
  }

  // Pipelines: whole and split backwards, several stages per device, recomputation.
  add("gpipe_2", "mlp:3-4-2", 2, "gpipe").layout = {.micro_batches = 3};
  add("1f1b_2", "mlp:3-4-2", 2, "1f1b").layout = {.micro_batches = 3};
  add("interleaved_2", "mlp:3-4-4-4-2", 2, "interleaved").layout = {.micro_batches = 2};
  add("zbv_2", "mlp:3-4-4-4-2", 2, "zb-v").layout = {.micro_batches = 2};
  add("single_recompute", "mlp:3-5-4-2", 1, "single").layout = {.recompute = Recompute::alternate};
  add("1f1b_2_recompute", "mlp:3-5-4-4-2", 2, "1f1b").layout = {.recompute = Recompute::all, .micro_batches = 2};
  add("tensor_2_recompute", "mlp:3-4-6-2", 2, "tensor").layout = {.recompute = Recompute::alternate};

  // 16-bit values.
  add("single_bf16", "mlp:3-5-2", 1, "single").step = {.global_batch = 4, .precision = Precision::bf16};
  add("tensor_2_fp16", "mlp:3-4-2", 2, "tensor").step = {
      .global_batch = 4, .precision = Precision::fp16, .loss_scale = LossScale{}};
  add("zero3_2_bf16", "mlp:3-2", 2, "zero-3").step = {.global_batch = 4, .precision = Precision::bf16};
  add("dp_2_bf16", "mlp:3-2", 2, "dp").step = {.global_batch = 4, .precision = Precision::bf16};

  // Products: replicas, stages, divided tensors, divided states.
  add("product_dp2_tp2", "mlp:3-4-2", 4, "product").layout = {.dp = 2, .tp = 2};
  add("product_dp2_pp2", "mlp:3-4-2", 4, "product").layout = {.dp = 2, .pp = 2, .schedule = "1f1b", .micro_batches = 2};
  add("product_pp2_tp2", "mlp:3-4-2-4-2", 4, "product").layout = {.pp = 2, .tp = 2, .schedule = "gpipe", .micro_batches = 2};
  Golden& product = add("product_dp2_pp2_tp2_zero2", "mlp:3-4-2-4-2", 8, "product");
  product.layout = {.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "1f1b", .micro_batches = 2};
  product.target = cpu_target;
  add("product_dp2_tp2_zero3", "mlp:3-4-2", 4, "product").layout = {.dp = 2, .tp = 2, .zero = 3};
  add("product_dp2_pp2_zero1", "mlp:3-4-2", 4, "product").layout = {.dp = 2, .pp = 2, .zero = 1};

  // Attention: heads, tied weights, positions.
  const std::string gpt = "gpt:depth=1,heads=2,dim=4,context=4,vocab=6";
  const Step tokens{.global_batch = 2, .loss = Loss::cross_entropy};
  add("gpt", gpt, 1, "single").step = tokens;
  Golden& heads = add("gpt_tensor_2_sequence", gpt, 2, "tensor");
  heads.step = tokens;
  heads.layout = {.sp = true};
  Golden& pipeline = add("gpt_1f1b_2", gpt, 2, "1f1b");
  pipeline.step = tokens;
  pipeline.layout = {.micro_batches = 2};
  add("gpt_zero3_2", gpt, 2, "zero-3").step = tokens;

  // Folded: one replica stands for four.
  add("ddp_4_folded", "mlp:3-5-2", 4, "ddp").folded = true;
  Golden& pieces = add("zero2_4_folded", "mlp:3-5-2", 4, "zero-2");
  pieces.layout = {.micro_batches = 2};
  pieces.step = {.global_batch = 8};
  pieces.folded = true;
  Golden& all = add("product_dp4_pp2_tp2_folded", "mlp:3-4-2-4-2", 16, "product");
  all.layout = {.dp = 4, .pp = 2, .tp = 2, .schedule = "1f1b", .micro_batches = 2};
  all.step = {.global_batch = 8};
  all.folded = true;
  return list;
}

std::string path_of(const Golden& golden) { return fmt::format("{}/golden/{}.plan", BATON_TEST_DATA, golden.file); }

std::optional<std::string> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

plan::Plan plan_of(const Golden& golden) {
  const model::Model model = model::parse_model(golden.model);
  const cluster::Cluster cluster(test::cpus(golden.devices, golden.devices, Bytes(1 << 20)));
  const Request request{.model = model,
                        .cluster = cluster,
                        .strategy = golden.strategy,
                        .step = golden.step,
                        .layout = golden.layout,
                        .target = golden.target,
                        .delays = golden.delays};
  return golden.folded ? fold(request).value().plan : compile(request);
}

/// "line 7 is '...' and not '...'": where two texts part.
std::string first_difference(std::string_view expected, std::string_view actual) {
  const std::vector<std::string_view> before = split(expected, '\n');
  const std::vector<std::string_view> after = split(actual, '\n');
  for (std::size_t i = 0; i < std::max(before.size(), after.size()); ++i) {
    const std::string_view was = i < before.size() ? before[i] : "<nothing>";
    const std::string_view is = i < after.size() ? after[i] : "<nothing>";
    if (was != is) {
      return fmt::format("line {} is\n  {}\nand not\n  {}", i + 1, is, was);
    }
  }
  return "nothing differs";
}

class GoldenPlan : public testing::TestWithParam<Golden> {};

INSTANTIATE_TEST_SUITE_P(Of, GoldenPlan, testing::ValuesIn(golden_plans()), [](const auto& one) { return one.param.file; });

TEST_P(GoldenPlan, IsWhatItWas) {
  const std::string text = plan::to_text(plan_of(GetParam()));
  const std::string path = path_of(GetParam());
  if (const char* bless = std::getenv("BATON_BLESS"); bless != nullptr && std::string_view(bless) == "1") {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    ASSERT_TRUE(file.flush()) << "cannot write " << path;
  }
  const std::optional<std::string> golden = contents(path);
  ASSERT_TRUE(golden) << path << " is missing; if the plan is meant to be there, run ./baton test --bless";
  EXPECT_TRUE(*golden == text) << path << ": " << first_difference(*golden, text)
                               << "\nIf the change is meant, run ./baton test --bless and review the difference.";
}

TEST_P(GoldenPlan, ObeysTheLawAndParsesBackToItself) {
  const plan::Plan plan = plan_of(GetParam());
  const plan::Verdict verdict = plan::verify(plan, {.slice = GetParam().folded});
  EXPECT_TRUE(verdict.holds()) << verdict.violations.front().text;
  EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan);
}

TEST_P(GoldenPlan, HasAtMostAHundredLinesPerDeviceOrThreeHundredOfATransformer) {
  const plan::Plan plan = plan_of(GetParam());
  const std::string text = plan::to_text(plan);
  const std::int64_t most = GetParam().model.starts_with("gpt:") ? 300 : 100;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), most * static_cast<std::int64_t>(plan.devices().size()));
}

TEST(GoldenText, TheFirstDifferingLineIsNamedWithBothReadings) {
  EXPECT_EQ(first_difference("a\nb\nc\n", "a\nx\nc\n"), "line 2 is\n  x\nand not\n  b");
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "line 2 is\n  b\nand not\n  ");
}

}  // namespace
}  // namespace baton::strategy
