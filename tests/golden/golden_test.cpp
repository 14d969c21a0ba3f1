#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "baton/base/text.h"
#include "baton/model/zoo.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

/// What each strategy compiles to, as text. A change shows here as a difference to be reviewed; an intended one is
/// blessed with `./baton test --bless`.
namespace baton::strategy {
namespace {

const Target cpu_target{.linear_with_relu = true, .linear_with_mask = true, .linear_with_sgd = true, .tiled_weights = true};

struct Golden {
  std::string file;
  std::string model;
  std::size_t devices = 1;
  std::string strategy;
  Step step = {.global_batch = 4};
  Layout layout = {};
  Target target = {};
  std::vector<DelayRequest> delays = {};
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
  return compile({.model = model,
                  .cluster = cluster::Cluster(test::cpus(golden.devices, golden.devices, Bytes(1 << 20))),
                  .strategy = golden.strategy,
                  .step = golden.step,
                  .layout = golden.layout,
                  .target = golden.target,
                  .delays = golden.delays});
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
  const plan::Verdict verdict = plan::verify(plan);
  EXPECT_TRUE(verdict.holds()) << verdict.violations.front().text;
  EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan);
}

TEST_P(GoldenPlan, IsShortEnoughToReadAtOneSitting) {
  const std::string text = plan::to_text(plan_of(GetParam()));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 80);
}

TEST(GoldenText, TheFirstDifferingLineIsNamedWithBothReadings) {
  EXPECT_EQ(first_difference("a\nb\nc\n", "a\nx\nc\n"), "line 2 is\n  x\nand not\n  b");
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "line 2 is\n  b\nand not\n  ");
}

}  // namespace
}  // namespace baton::strategy
