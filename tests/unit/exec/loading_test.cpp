#include "baton/exec/host/loading.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "baton/base/error.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"
#include "support/devices.h"
#include "support/usage_sentence.h"

namespace baton::exec {
namespace {

/// Numbers that say step, row and element; and what was asked for.
class CountingFeed final : public Feed {
 public:
  CountingFeed(const model::Model& model, bool labels)
      : inputs_(model.input().elements()),
        targets_(labels ? model.output().elements() / model.output().last() : model.output().elements()),
        tokens_(model.blocks().front().values.front().integers ? 7 : 0),
        classes_(model.output().last()) {}

  std::int64_t input_elements() const override { return inputs_; }
  std::int64_t target_elements() const override { return targets_; }
  void input(std::int64_t step, std::int64_t row, std::span<float> out) const override {
    wait(step);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>((step * 31 + row * 7 + static_cast<std::int64_t>(i) * 3) % 17) / 8 - 1;
    }
  }
  void input(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>((step * 5 + row * 3 + static_cast<std::int64_t>(i)) % tokens_);
    }
  }
  void target(std::int64_t step, std::int64_t row, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>((step + row * 2 + static_cast<std::int64_t>(i)) % 5) / 4;
    }
  }
  void target(std::int64_t step, std::int64_t row, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>((step * 2 + row + static_cast<std::int64_t>(i)) % classes_);
    }
  }
  std::uint64_t fingerprint() const override { return 1; }

  std::chrono::milliseconds slow{0};
  std::int64_t broken_from = -1;

 private:
  void wait(std::int64_t step) const {
    if (broken_from >= 0 && step >= broken_from) {
      throw failure("the data ends at step {}", step);
    }
    std::this_thread::sleep_for(slow);
  }

  std::int64_t inputs_;
  std::int64_t targets_;
  std::int64_t tokens_;
  std::int64_t classes_;
};

struct Case {
  std::string model;
  std::string strategy;
  std::size_t devices;
  strategy::Layout layout = {};
};

plan::Plan compiled(const Case& one, const model::Model& model, const cluster::Cluster& cluster, const Backend& backend, bool ahead,
                    double rate = 0.05) {
  const bool labels = model.output_kind() == model::Output::scores;
  return strategy::compile({.model = model,
                            .cluster = cluster,
                            .strategy = one.strategy,
                            .step = {.global_batch = 8,
                                     .loss = labels ? strategy::Loss::cross_entropy : strategy::Loss::mean_squared_error,
                                     .optimizer = op::Sgd{.rate = rate},
                                     .loads_ahead = ahead},
                            .layout = one.layout,
                            .target = backend.target()});
}

std::vector<double> losses(const Case& one, const Backend& backend, bool ahead, std::vector<std::int64_t> runs,
                           std::int64_t from = 0, double rate = 0.05) {
  const model::Model model = model::parse_model(one.model);
  const cluster::Cluster cluster(test::cpus(one.devices, 2));
  const plan::Plan plan = compiled(one, model, cluster, backend, ahead, rate);
  const auto feed = std::make_shared<const CountingFeed>(model, model.output_kind() == model::Output::scores);
  Executor executor(plan, cluster, backend, {.feed = feed});
  executor.continue_from(from);
  std::vector<double> all;
  for (const std::int64_t steps : runs) {
    const RunResult result = executor.run({.steps = steps, .warmup = 0});
    all.insert(all.end(), result.losses.begin(), result.losses.end());
  }
  return all;
}

TEST(Loading, EveryStrategyTrainsOnTheSameRowsLoadedBeforeOrBesideTheStep) {
  const auto cpu = make_cpu_backend();
  const auto reference = make_reference_backend();
  for (const std::string model :
       {"mlp:6-5-4", "cnn:4,image=6,channels=1,classes=3", "gpt:depth=2,heads=2,dim=8,context=5,vocab=7"}) {
    const std::vector<double> wanted = losses({model, "single", 1}, *reference, false, {5});
    for (const Case& one : {Case{model, "single", 1}, Case{model, "ddp", 2}, Case{model, "dp", 2}, Case{model, "zero-3", 2},
                            Case{model, "layers", 2}, Case{model, "1f1b", 2}, Case{model, "tensor", 2}}) {
      if (model.starts_with("cnn") && one.strategy == "tensor") {
        continue;  // it has no pair of Linear layers to divide
      }
      for (const bool ahead : {false, true}) {
        const std::vector<double> got = losses(one, *cpu, ahead, {5});
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t s = 0; s < got.size(); ++s) {
          EXPECT_NEAR(got[s], wanted[s], 2e-5 * std::max(1.0, wanted[s])) << model << " " << one.strategy << ", step " << s;
        }
      }
      EXPECT_EQ(losses(one, *cpu, true, {5}), losses(one, *cpu, false, {5})) << "the same bits";
    }
  }
}

TEST(Loading, PartsOfASequenceAreLoadedByEachDevice) {
  const auto cpu = make_cpu_backend();
  const std::string model = "gpt:depth=2,heads=2,dim=8,context=5,vocab=7";
  const std::vector<double> wanted = losses({model, "single", 1}, *cpu, true, {4});
  const std::vector<double> got = losses({model, "tensor", 2, {.sp = true}}, *cpu, true, {4});
  for (std::size_t s = 0; s < got.size(); ++s) {
    EXPECT_NEAR(got[s], wanted[s], 1e-5 * std::max(1.0, wanted[s]));
  }
}

TEST(Loading, RunsThatContinueEachOtherTakeTheRowsOfOne) {
  const auto cpu = make_cpu_backend();
  const Case one{"mlp:6-5-4", "ddp", 2};
  const std::vector<double> whole = losses(one, *cpu, true, {7});
  EXPECT_EQ(losses(one, *cpu, true, {1, 3, 2, 1}), whole);
  // Without steps of the optimizer a loss depends on its rows alone.
  const std::vector<double> rows = losses(one, *cpu, true, {7}, 0, 0);
  EXPECT_EQ(losses(one, *cpu, true, {3}, 4, 0), std::vector<double>(rows.begin() + 4, rows.end()));
}

TEST(Loading, WhatCannotBeReadEndsTheRunWithItsSentence) {
  const auto cpu = make_cpu_backend();
  const model::Model model = model::parse_model("mlp:6-5-4");
  const cluster::Cluster cluster(test::cpus(2, 2));
  const plan::Plan plan = compiled({"", "ddp", 2}, model, cluster, *cpu, true);
  const auto feed = std::make_shared<CountingFeed>(model, false);
  Executor executor(plan, cluster, *cpu, {.feed = feed});
  executor.run({.steps = 2, .warmup = 0});
  feed->broken_from = 4;
  try {
    executor.run({.steps = 9, .warmup = 0});
    FAIL() << "it went on without data";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the data ends at step 4");
  }
}

TEST(Loading, RowsThatCannotBeReadEndARunWithTheStepsBeforeIfItsStateIsWanted) {
  const auto cpu = make_cpu_backend();
  const model::Model model = model::parse_model("mlp:6-5-4");
  for (const Case& one : {Case{"", "single", 1}, Case{"", "ddp", 2}, Case{"", "1f1b", 2}}) {
    const cluster::Cluster cluster(test::cpus(one.devices, 2));
    const plan::Plan plan = compiled(one, model, cluster, *cpu, true);
    const auto feed = std::make_shared<CountingFeed>(model, false);
    Executor executor(plan, cluster, *cpu, {.feed = feed});
    const std::vector<double> whole = executor.run({.steps = 9, .warmup = 0}).losses;
    Executor again(plan, cluster, *cpu, {.feed = feed});
    const RunOptions kept{.steps = 9, .warmup = 0, .keep_result = true};
    feed->broken_from = 4;
    const auto sentence = [](const RunResult& result) -> std::string {
      try {
        std::rethrow_exception(result.unread);
      } catch (const Error& error) {
        return error.what();
      }
    };
    const RunResult early = again.run(kept);
    EXPECT_EQ(early.losses, std::vector<double>(whole.begin(), whole.begin() + 4)) << one.strategy;
    EXPECT_EQ(sentence(early), "the data ends at step 4");
    const RunResult none = again.run(kept);
    EXPECT_TRUE(none.losses.empty());
    EXPECT_EQ(sentence(none), "the data ends at step 4");
    feed->broken_from = 9;
    const RunResult rest = again.run({.steps = 5, .warmup = 0, .keep_result = true});
    EXPECT_EQ(rest.losses, std::vector<double>(whole.begin() + 4, whole.end())) << "to the bit";
    EXPECT_FALSE(rest.unread) << "the rows after the last step are not needed";
  }
}

TEST(Loading, TimeThatOnlyDataIsWaitedForIsTold) {
  const auto cpu = make_cpu_backend();
  const model::Model model = model::parse_model("mlp:6-5-4");
  const cluster::Cluster cluster(test::cpus(1, 1));
  const plan::Plan plan = compiled({"", "single", 1}, model, cluster, *cpu, true);
  const auto feed = std::make_shared<CountingFeed>(model, false);
  feed->slow = std::chrono::milliseconds(2);  // for each of 8 rows, compared with a step of some microseconds
  Executor executor(plan, cluster, *cpu, {.feed = feed});
  const RunResult result = executor.run({.steps = 3, .warmup = 0});
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_GT(result.data_waits[s], Nanoseconds(10'000'000));
    EXPECT_LE(result.data_waits[s], result.step_times[s]);
    const trace::DeviceTime time = trace::device_times(plan, result.trace.steps[s])[0];
    EXPECT_GT(time.loading, Nanoseconds(10'000'000));
    EXPECT_GE(time.rest(), Nanoseconds(0));
  }
}

}  // namespace
}  // namespace baton::exec
