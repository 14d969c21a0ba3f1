#include "baton/predict/search.h"

#include <fmt/format.h>

#include <random>
#include <set>

#include "baton/base/error.h"
#include "baton/job/choice.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::predict {
namespace {

using baton::test::says;
using baton::test::small_machine;
using baton::test::usage_sentence;
using training::test::spec_on;

TEST(Search, RanksWhatFitsAndItsFrontierIsNeverBothSlowerAndLarger) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=256,depth=8";
  spec.optimizer = "adam";
  const SearchResult result = search(spec, small_machine());
  ASSERT_GT(result.ranked.size(), 10U);
  EXPECT_TRUE(result.complete);
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    EXPECT_LE(result.ranked[i - 1].step, result.ranked[i].step);
  }
  ASSERT_FALSE(result.frontier.empty());
  EXPECT_EQ(result.frontier[0], 0U);
  for (const std::size_t f : result.frontier) {
    for (const RankedSplit& other : result.ranked) {
      EXPECT_FALSE(other.step < result.ranked[f].step && other.memory < result.ranked[f].memory) << other.name;
    }
  }
  // The job that is shown gives the same step again.
  job::JobSpec again = result.ranked[0].spec;
  again.fold = job::Fold::never;
  training::Training run(again, small_machine());
  run.run(1, 0);
  EXPECT_EQ(run.timed()[0], result.ranked[0].step);
}

TEST(Search, NamesASplitAsItsPlanDoesAndSaysWhetherItRecomputes) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=256,depth=8";
  bool recomputes = false;
  for (const RankedSplit& one : search(spec, small_machine()).ranked) {
    const training::Job job(one.spec, small_machine());
    const bool again = one.spec.recompute != strategy::Recompute::none;
    EXPECT_EQ(one.name, strategy::describe(job.request()) + (one.spec.chunks ? fmt::format(", {} chunks", *one.spec.chunks) : "") +
                            (again ? fmt::format(", recompute {}", strategy::to_text(one.spec.recompute)) : ""));
    recomputes = recomputes || again;
  }
  EXPECT_TRUE(recomputes);
}

TEST(Search, OnOneDeviceTellsItsMicroBatchesApart) {
  job::JobSpec spec = spec_on("pcie-4", "", "1");
  spec.model = "mlp:dim=64,depth=2";
  std::set<std::string> names;
  const SearchResult result = search(spec, small_machine());
  for (const RankedSplit& one : result.ranked) {
    names.insert(one.name);
  }
  EXPECT_EQ(names.size(), result.ranked.size());
  EXPECT_TRUE(names.contains("one device"));
}

TEST(Search, LeavesOutOnlyWhatCouldNotWin) {
  // Every split by itself, without bounds: none is faster than the first, nor as fast and smaller than the frontier.
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=512,depth=4";
  spec.batch = 256;
  spec.optimizer = "adam";
  const SearchResult result = search(spec, small_machine());
  EXPECT_GT(result.pruned, 0U);
  for (const std::string strategy : {"ddp", "zero-1", "zero-2", "zero-3", "tensor", "layers", "gpipe", "1f1b", "zb-h1"}) {
    job::JobSpec one = spec;
    one.strategy = strategy;
    training::Training run(one, small_machine());
    run.run(1, 0);
    EXPECT_GE(run.timed()[0], result.ranked[0].step) << strategy;
  }
}

/// That the search finds nothing slower than what is asked for, simulated by itself.
void expect_no_slower_than(const job::JobSpec& shared, std::int64_t dp, std::int64_t pp, std::int64_t tp,
                           std::optional<std::int64_t> zero) {
  const SearchResult result = search(shared, small_machine());
  EXPECT_GT(result.pruned + result.left_out, 0U);
  job::JobSpec one = shared;
  one.dp = dp;
  one.pp = pp;
  one.tp = tp;
  one.zero = zero;
  one.micro_batches = 1;
  training::Training run(one, small_machine());
  run.run(1, 0);
  EXPECT_LE(result.ranked[0].step, run.timed()[0]) << result.ranked[0].name;
}

TEST(Search, BoundsProductsByTheRateTheyRunAt) {
  job::JobSpec spec = spec_on("dgx-a100", "", "8");
  spec.model = "mlp:dim=8192,depth=16";
  spec.batch = 4096;
  spec.precision = strategy::Precision::tf32;
  expect_no_slower_than(spec, 4, 1, 2, std::nullopt);
}

TEST(Search, BoundsMessagesByTheLinksThatThereWouldBe) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=1024,depth=4";
  spec.what_if = job::parse_what_if("link=16x");
  expect_no_slower_than(spec, 2, 2, 1, 1);
}

/// The shortest step of all splits of the job that fit, each simulated by itself.
Nanoseconds shortest_of_all(const job::JobSpec& shared) {
  const training::Job job(shared, small_machine());
  const std::int64_t batch = job.request().step.global_batch;
  Nanoseconds shortest(std::numeric_limits<std::int64_t>::max());
  for (const job::Group& group : job::groups_of(job.model(), batch, static_cast<std::int64_t>(job.cluster().size()))) {
    job::for_each_choice(group, job.model(), batch, [&](const job::Choice& choice) {
      try {
        training::Training run(job::spec_of(choice, shared), small_machine());
        run.run(1, 0);
        shortest = std::min(shortest, run.timed()[0]);
      } catch (const Error&) {
        return;  // the model does not allow it, or it does not fit
      }
    });
  }
  return shortest;
}

TEST(Search, OfRandomSmallJobsFindsTheFastestOfAllSplits) {
  std::mt19937 random(5);
  const auto one_of = [&](const std::vector<std::string>& list) { return list[random() % list.size()]; };
  for (int i = 0; i < 5; ++i) {
    job::JobSpec spec = spec_on(one_of({"pcie-4", "dgx-a100", "dgx-h100"}), "", one_of({"2", "3", "4"}));
    spec.model = fmt::format("mlp:dim={},depth={}", one_of({"64", "512", "2048"}), one_of({"2", "3", "5"}));
    job::set_field(spec, "batch", one_of({"3", "4", "16"}));
    spec.optimizer = one_of({"sgd", "adam"});
    const SearchResult result = search(spec, small_machine());
    ASSERT_FALSE(result.ranked.empty());
    EXPECT_EQ(result.left_out, 0U);
    EXPECT_EQ(result.ranked[0].step, shortest_of_all(spec))
        << spec.model.text() << " on " << spec.devices.text() << " of " << spec.cluster;
  }
}

TEST(Search, OfAHugeJobSimulatesAFewAndEveryRowRunsAsItIsShown) {
  job::JobSpec spec = spec_on("dgx-h100", "", "1024");
  spec.model = "gpt:depth=6,heads=16,dim=1024,context=128,vocab=1000";
  spec.batch = 256;
  spec.precision = strategy::Precision::bf16;
  spec.optimizer = "adam";
  spec.memory = Bytes(std::int64_t{4} << 30);
  const SearchResult result = search(spec, small_machine());
  EXPECT_GT(result.considered, 50'000U);
  EXPECT_GT(result.left_out, 0U);
  EXPECT_LE(result.tried, 100U);
  ASSERT_GE(result.ranked.size(), 10U);
  for (std::size_t i = 0; i < 3; ++i) {
    job::JobSpec shown = result.ranked[i].spec;
    shown.fold = job::Fold::automatic;
    training::Training run(shown, small_machine());
    run.run(1, 0);
    const double ratio = static_cast<double>(run.timed()[0].count) / static_cast<double>(result.ranked[i].step.count);
    EXPECT_NEAR(ratio, 1, result.ranked[i].from_shorter_steps ? 0.03 : 0) << result.ranked[i].name;
  }
  EXPECT_FALSE(against_all_devices(result).empty());
}

TEST(Search, StepsOfManyMicroBatchesAreKnownFromShorterOnes) {
  job::JobSpec spec = spec_on("dgx-h100", "", "2");
  spec.model = "mlp:dim=2048,depth=4";
  spec.batch = 512;
  spec.optimizer = "adam";
  spec.memory = Bytes(160 << 20);
  std::size_t compared = 0;
  for (const RankedSplit& one : search(spec, small_machine()).ranked) {
    if (one.from_shorter_steps && compared < 5) {
      training::Training run(one.spec, small_machine());
      run.run(1, 0);
      EXPECT_NEAR(static_cast<double>(run.timed()[0].count) / static_cast<double>(one.step.count), 1, 0.03) << one.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0U);
}

TEST(Search, SaysWhetherFewerDevicesAreFaster) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=64,depth=2";
  EXPECT_TRUE(says(against_all_devices(search(spec, small_machine())), "faster than all 4: the fastest split of all"));
  spec = spec_on("dgx-a100", "", "4");
  spec.model = "mlp:dim=4096,depth=2";
  spec.batch = 4096;
  EXPECT_TRUE(says(against_all_devices(search(spec, small_machine())), "is faster than all 4"));
}

TEST(Search, CountsWhatDoesNotFit) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=512,depth=4";
  spec.memory = Bytes(6 << 20);
  const SearchResult result = search(spec, small_machine());
  EXPECT_GT(result.too_large, 0U);
  EXPECT_GT(result.least_too_large, Bytes(6 << 20));
  for (const RankedSplit& one : result.ranked) {
    EXPECT_LE(one.memory, Bytes(6 << 20)) << one.name;
  }
  EXPECT_TRUE(says(usage_sentence([] { search(job::JobSpec{}, small_machine()); }), "--cluster"));
}

TEST(Search, OneDeviceAndFewerDevicesAreAlwaysConsidered) {
  // One GPU takes 84 µs for this and the fastest split over several more.
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=1024,depth=2";
  spec.batch = 64;
  const SearchResult result = search(spec, small_machine());
  job::JobSpec alone = spec;
  alone.devices = "1";
  alone.strategy = "single";
  training::Training run(alone, small_machine());
  run.run(1, 0);
  ASSERT_TRUE(result.one_device);
  EXPECT_EQ(result.one_device->step, run.timed()[0]);
  EXPECT_LE(result.ranked[0].step, run.timed()[0]);
  EXPECT_EQ(against_one_device(result).find("No split beats one device"), 0U) << against_one_device(result);
}

TEST(Search, ASplitThatBeatsOneDeviceIsSaidTo) {
  job::JobSpec spec = spec_on("dgx-a100", "", "4");
  spec.model = "mlp:dim=4096,depth=2";
  spec.batch = 4096;
  const SearchResult result = search(spec, small_machine());
  EXPECT_NE(result.ranked[0].choice.devices(), 1);
  EXPECT_TRUE(says(against_one_device(result), "times as fast as one device"));
}

TEST(Search, OneDeviceThatCannotHoldTheJobIsSaidNotTo) {
  job::JobSpec spec = spec_on("pcie-4", "", "4");
  spec.model = "mlp:dim=512,depth=4";
  spec.memory = Bytes(4 << 20);
  EXPECT_TRUE(says(against_one_device(search(spec, small_machine())), "One device cannot hold the job"));
}

TEST(Search, RefusesWhatItChoosesItself) {
  for (const auto& [name, value] : {std::pair("strategy", "ddp"),
                                    {"dp", "2"},
                                    {"pp", "2"},
                                    {"tp", "2"},
                                    {"zero", "1"},
                                    {"sp", "on"},
                                    {"chunks", "2"},
                                    {"split", "1,1"},
                                    {"schedule", "1f1b"},
                                    {"micro-batches", "4"},
                                    {"recompute", "all"},
                                    {"fold", "never"}}) {
    job::JobSpec spec = spec_on("pcie-4", "", "4");
    job::set_field(spec, name, value);
    EXPECT_TRUE(says(usage_sentence([&] { search(spec, small_machine()); }), std::string("--") + name));
  }
}

TEST(Search, SaysWhatTheRunnerUpLostBy) {
  const RankedSplit best{.spec = {},
                         .name = "a",
                         .step = Nanoseconds(1000),
                         .memory = {},
                         .time = {.busy = Nanoseconds(900), .idle = Nanoseconds(100), .exposed = Nanoseconds(100)}};
  const RankedSplit second{
      .spec = {},
      .name = "b",
      .step = Nanoseconds(1200),
      .memory = {},
      .time = {.busy = Nanoseconds(850), .idle = Nanoseconds(350), .exposed = Nanoseconds(100), .waiting = Nanoseconds(250)}};
  const std::string sentence = why_not(best, second);
  EXPECT_TRUE(says(sentence, "b takes 20.0 % longer"));
  EXPECT_TRUE(says(sentence, "5.0 % less goes into computing"));
  EXPECT_TRUE(says(sentence, "25.0 % more goes into waiting"));
  EXPECT_EQ(sentence.find("communication"), std::string::npos) << sentence;
}

TEST(Search, TellsTheRunnerUpApartFromTheBestByEnoughDigits) {
  const auto split = [](const char* name, std::int64_t step) {
    return RankedSplit{.spec = {}, .name = name, .step = Nanoseconds(step), .memory = {}, .time = {}};
  };
  const std::string near = why_not(split("a", 51'200'000), split("b", 51'225'000));
  EXPECT_TRUE(says(near, "(51.23 ms for 51.20 ms)") || says(near, "(51.22 ms for 51.20 ms)"));
  EXPECT_EQ(why_not(split("a", 1000), split("b", 1000)), "b takes as long.");
}

}  // namespace
}  // namespace baton::predict
