#include "baton/lab/simulation.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "baton/lab/isolate.h"
#include "baton/lab/prediction.h"
#include "baton/lab/search.h"
#include "baton/lab/training_json.h"
#include "baton/plan/verify.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

cluster::Machine small_machine() {
  cluster::Machine machine;
  machine.cpu = "a test";
  machine.cores = {0};
  machine.memory = Bytes(1 << 30);
  machine.cache = Bytes(1 << 16);
  return machine;
}

JobWords words_on(const std::string& cluster, const std::string& strategy, const std::string& devices) {
  JobWords words;
  words.model = "mlp:dim=64,depth=4";
  words.strategy = strategy;
  words.devices = devices;
  words.cluster = cluster;
  return words;
}

/// Calibrations go to a folder of the test's own.
class OwnCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "baton-cache-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("XDG_CACHE_HOME", name.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

// What if

TEST(WhatIf, IsWhatItsWordsSay) {
  const WhatIf what_if = parse_what_if("compute=2x,link=0.5x,latency=+10us");
  EXPECT_EQ(what_if.compute, 2);
  EXPECT_EQ(what_if.link, 0.5);
  EXPECT_EQ(what_if.latency, 1);
  EXPECT_EQ(what_if.longer, Nanoseconds(10'000));
  EXPECT_EQ(parse_what_if("latency=3x").latency, 3);
  EXPECT_FALSE(parse_what_if("").changes());
  EXPECT_TRUE(what_if.changes());
  for (const char* text :
       {"compute", "compute=2", "compute=x", "compute=0x", "speed=2x", "link=-1x", "latency=+10", "latency=10us", ","}) {
    EXPECT_FALSE(usage_sentence([&] { parse_what_if(text); }).empty()) << text;
  }
}

TEST(WhatIf, ChangesEveryLinkOfTheCluster) {
  const cluster::Cluster cluster({{.name = "a", .cores = {}, .memory = Bytes(1)}}, cluster::Link{Nanoseconds(7), 100},
                                 cluster::Wiring{.port = {Nanoseconds(10), 1000}, .network = {Nanoseconds(20), 500}, .bus = 30});
  const cluster::Cluster other = changed(cluster, parse_what_if("link=2x,latency=+5ns"));
  EXPECT_EQ(other.wiring()->port.bandwidth, 2000);
  EXPECT_EQ(other.wiring()->port.latency, Nanoseconds(15));
  EXPECT_EQ(other.wiring()->network.bandwidth, 1000);
  EXPECT_EQ(other.wiring()->network.latency, Nanoseconds(25));
  EXPECT_EQ(other.wiring()->bus, 60);
  EXPECT_EQ(other.emulated_link()->bandwidth, 200);
  EXPECT_EQ(other.emulated_link()->latency, Nanoseconds(12));
}

// Jobs on other machines

TEST(ImaginedJob, TakesSoManyDevicesOfTheCluster) {
  EXPECT_EQ(Job(words_on("pcie-5", "ddp", "cpu"), small_machine()).cluster().size(), 5U) << "all of a node";
  EXPECT_EQ(Job(words_on("pcie-5", "ddp", "3"), small_machine()).cluster().size(), 3U);
  EXPECT_EQ(Job(words_on("pcie-5", "ddp", "cpu:3"), small_machine()).cluster().size(), 3U);
  EXPECT_EQ(Job(words_on("ideal", "ddp", "7"), small_machine()).cluster().size(), 7U);
  EXPECT_TRUE(says(usage_sentence([] { Job(words_on("pcie-5", "ddp", "6"), small_machine()); }), "5 devices"));
  EXPECT_TRUE(says(usage_sentence([] { Job(words_on("pcie-5", "ddp", "many"), small_machine()); }), "--devices"));
  EXPECT_TRUE(says(usage_sentence([] { Job(words_on("nowhere", "ddp", "2"), small_machine()); }), "unknown cluster 'nowhere'"));
}

TEST(ImaginedJob, ALinkOrMemoryThatIsAskedForTakesThePlaceOfTheClustersOwn) {
  JobWords words = words_on("dgx-a100", "ddp", "2");
  words.link = "bandwidth=1GB/s,latency=50us";
  words.memory = "1G";
  const Job job(words, small_machine());
  EXPECT_EQ(job.cluster().wiring()->port.bandwidth, 1e9);
  EXPECT_EQ(job.cluster().wiring()->network.latency, Nanoseconds(50'000));
  EXPECT_EQ(job.cluster().devices()[0].memory, Bytes(1 << 30));
}

// Simulated training

TEST(SimulatedTraining, IsOneStepWithoutLossesAndSaysThatItIsSimulated) {
  Training run(words_on("dgx-a100", "ddp", "4"), small_machine());
  ASSERT_TRUE(run.simulated());
  run.run(30, 5);
  EXPECT_EQ(run.timed().size(), 1U);
  EXPECT_TRUE(run.losses().empty());
  const Json result = result_json(run, "command");
  EXPECT_EQ(result["origin"], "simulated");
  EXPECT_EQ(result["device_list"].size(), 4U);
  EXPECT_GT(result["time_per_step_ns"], 0);
  EXPECT_NE(result["costs"].get<std::string>().find("roofline"), std::string::npos);
  EXPECT_EQ(timeline_json(run, "t")["origin"], "simulated");
  Training again(words_on("dgx-a100", "ddp", "4"), small_machine());
  again.run(1, 0);
  EXPECT_EQ(again.timed(), run.timed());
}

TEST(SimulatedTraining, SaysThatAPlanDoesNotFitAndByHowMuch) {
  JobWords words = words_on("pcie-2", "single", "1");
  words.model = "mlp:dim=65536,depth=4";
  const std::string sentence = usage_sentence([&] { Training(words, small_machine()); });
  EXPECT_TRUE(says(sentence, "RTX-3090:0 needs"));
  EXPECT_TRUE(says(sentence, "has 24.0 GiB"));
}

TEST(SimulatedTraining, FoldedAndWrittenOutSayTheSame) {
  JobWords words = words_on("dgx-a100", "zero-2", "32");
  words.batch = "128";
  words.optimizer = "adam";
  words.fold = "never";
  Training whole(words, small_machine());
  whole.run(1, 0);
  words.fold = "always";
  Training folded(words, small_machine());
  folded.run(1, 0);
  EXPECT_EQ(whole.copies(), 1);
  EXPECT_EQ(folded.copies(), 32);
  const Json a = result_json(whole, "");
  const Json b = result_json(folded, "");
  EXPECT_EQ(a["time_per_step_ns"], b["time_per_step_ns"]);
  EXPECT_EQ(b["device_list"].size(), 1U);
  EXPECT_EQ(b["device_list"][0]["stands_for"], 32);
  EXPECT_NEAR(a["sent_bytes"].get<double>() / b["sent_bytes"].get<double>(), 1, 0.01) << "pieces differ by an element";
  words.fold = "sometimes";
  EXPECT_TRUE(says(usage_sentence([&] { Training(words, small_machine()); }), "--fold"));
}

TEST(SimulatedTraining, InTf32SaysSo) {
  JobWords words = words_on("dgx-a100", "ddp", "2");
  words.precision = "tf32";
  Training run(words, small_machine());
  run.run(1, 0);
  EXPECT_EQ(run.result("")["precision"], "tf32");
  EXPECT_TRUE(run.plan().title().ends_with(", tf32")) << run.plan().title();
}

TEST(SimulatedTraining, AWhatIfChangesTheStepAndItsCostsSaySo) {
  JobWords words = words_on("pcie-4", "ddp", "4");
  words.model = "mlp:dim=1024,depth=4";
  const auto step_of = [&](const std::string& what_if) {
    words.what_if = what_if;
    Training run(words, small_machine());
    run.run(1, 0);
    return run.timed()[0];
  };
  const Nanoseconds plain = step_of("");
  EXPECT_LT(step_of("compute=2x"), plain);
  EXPECT_GT(step_of("link=0.1x"), plain);
  EXPECT_GT(step_of("latency=+1ms"), plain);
  words.what_if = "link=0.1x";
  EXPECT_NE(Training(words, small_machine()).simulation().cost_origin().find("link=0.1x"), std::string::npos);
}

TEST(Sensitivity, TheKnobThatGainsMostComesFirst) {
  JobWords words = words_on("pcie-4+ethernet-1", "ddp", "8");
  words.model = "mlp:dim=2048,depth=4";
  Training run(words, small_machine());
  run.run(1, 0);
  const std::vector<Sensitivity> list = sensitivities(run.simulation(), run.timed()[0]);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].knob, "links twice as wide") << "one gigabit for eight devices";
  for (std::size_t i = 1; i < list.size(); ++i) {
    EXPECT_GE(list[i - 1].gain, list[i].gain);
  }
  EXPECT_NEAR(list[0].gain, 1 - static_cast<double>(list[0].step.count) / static_cast<double>(run.timed()[0].count), 1e-9);
}

// Tasks by themselves

TEST(Isolated, ATaskIsCopiedOntoBuffersOfItsOwnAndThePlanHolds) {
  const Job job(words_on("ideal", "dp", "3"), small_machine());
  const plan::Plan plan = job.compile();
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan::meeting_of(plan.tasks()[t]).valid()) {
      continue;
    }
    const plan::Plan alone = isolate_task(plan, TaskId(t), {DeviceId(0), DeviceId(2)}, 3);
    ASSERT_EQ(alone.tasks().size(), 6U);
    EXPECT_EQ(alone.lane(DeviceId(0), plan.tasks()[t].lane).size(), 3U);
    EXPECT_EQ(alone.lane(DeviceId(2), plan.tasks()[t].lane).size(), 3U);
    const plan::Verdict verdict = plan::verify(alone);
    EXPECT_TRUE(verdict.holds()) << verdict.violations[0].text;
  }
  std::size_t first = 0;
  while (!std::holds_alternative<plan::Compute>(plan.tasks()[first].action)) {
    ++first;
  }
  const plan::Plan rested = isolate_after_delay(plan, TaskId(first), Nanoseconds(5000), 3);
  ASSERT_EQ(rested.tasks().size(), 4U);
  EXPECT_TRUE(std::holds_alternative<plan::Delay>(rested.tasks()[0].action));
  const plan::Verdict rests = plan::verify(rested);
  EXPECT_TRUE(rests.holds()) << rests.violations[0].text;
  for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
    const plan::Plan alone = isolate_meeting(plan, MeetingId(m), 2);
    EXPECT_EQ(alone.tasks().size(), 2 * plan.members(MeetingId(m)).size());
    const plan::Verdict verdict = plan::verify(alone);
    EXPECT_TRUE(verdict.holds()) << verdict.violations[0].text;
  }
}

using CalibrationTest = OwnCache;

TEST_F(CalibrationTest, EachDistinctTaskIsTimedOnceAndKept) {
  JobWords words = words_on("", "ddp", "cpu:2");
  words.model = "mlp:dim=16,depth=3";
  const Job job(words, small_machine());
  const plan::Plan plan = job.compile();
  Calibration calibration(job.machine(), job.cluster(), job.backend());
  std::vector<std::string> keys;
  const std::size_t timed = calibration.measure(plan, job.cluster(), job.backend(), false,
                                                [&](std::size_t, std::size_t, const std::string& key) {
                                                  keys.push_back(key);
                                                  return true;
                                                });
  EXPECT_EQ(timed, keys.size());
  EXPECT_LT(timed, plan.tasks().size()) << "blocks are alike, and devices are";
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const std::string key = cost::key_of(plan, TaskId(t), job.cluster());
    ASSERT_TRUE(calibration.times(plan, 1).contains(key)) << key;
    ASSERT_TRUE(calibration.times(plan, 2).contains(key)) << key;
    EXPECT_GT(calibration.times(plan, 1).at(key).count, 0) << key;
  }
  EXPECT_EQ(calibration.measure(plan, job.cluster(), job.backend()), 0U);
  Calibration again(job.machine(), job.cluster(), job.backend());
  EXPECT_EQ(again.measure(plan, job.cluster(), job.backend()), 0U) << "read from " << again.file();
  EXPECT_EQ(again.times(plan, 1), calibration.times(plan, 1));
  EXPECT_TRUE(again.file().string().starts_with(folder_.string()));
}

TEST_F(CalibrationTest, AFileThatIsCutOffOrOfAnotherMachineIsAsGoodAsNone) {
  JobWords words = words_on("", "single", "cpu:1");
  words.model = "mlp:dim=8,depth=1";
  const Job job(words, small_machine());
  const plan::Plan plan = job.compile();
  Calibration first(job.machine(), job.cluster(), job.backend());
  const std::size_t timed = first.measure(plan, job.cluster(), job.backend());
  std::filesystem::resize_file(first.file(), std::filesystem::file_size(first.file()) / 2);
  EXPECT_EQ(Calibration(job.machine(), job.cluster(), job.backend()).measure(plan, job.cluster(), job.backend()), timed);
  cluster::Machine other = small_machine();
  other.cpu = "another test";
  EXPECT_NE(Calibration(other, job.cluster(), job.backend()).file(), first.file());
}

TEST_F(CalibrationTest, ASimulationOfThisMachineTakesAboutTheTimesOfItsTasks) {
  JobWords words = words_on("machine", "single", "cpu:1");
  words.model = "mlp:dim=64,depth=2";
  Training run(words, small_machine());
  run.run(1, 0);
  Calibration calibration(run.job().machine(), run.job().cluster(), run.job().backend());
  Nanoseconds sum = calibration.times(run.plan(), 1).find(Calibration::step_key)->second;
  for (std::size_t t = 0; t < run.plan().tasks().size(); ++t) {
    sum += calibration.times(run.plan(), 1).at(cost::key_of(run.plan(), TaskId(t), run.job().cluster()));
  }
  EXPECT_EQ(run.timed()[0], sum) << "one device, one lane: the tasks one after the other, and the step itself";
  EXPECT_NE(run.simulation().cost_origin().find("timed by itself"), std::string::npos);
}

// Predictions

TEST(Accuracy, IsTheMedianOfAbsoluteErrorsAndTheOrderOfStrategies) {
  const auto row = [](const std::string& strategy, int devices, double measured, double simulated) {
    return Json{{"point", {{"strategy", strategy}, {"devices", devices}}},
                {"time_per_step_ns", measured},
                {"time_low_ns", measured - 1},
                {"time_high_ns", measured + 1},
                {"simulated_ns", simulated},
                {"error", simulated / measured - 1}};
  };
  const Accuracy found = accuracy({row("a", 2, 100, 110), row("b", 2, 200, 190), row("c", 2, 300, 100), row("a", 4, 100, 100)});
  EXPECT_EQ(found.points, 4U);
  EXPECT_NEAR(found.median_error, (0.05 + 0.1) / 2, 1e-12);
  EXPECT_NEAR(found.largest_error, 2.0 / 3, 1e-12);
  EXPECT_EQ(found.pairs, 3U) << "only those on equal devices";
  EXPECT_EQ(found.in_order, 1U) << "a before b";
  EXPECT_EQ(accuracy({row("a", 2, 100, 1), row("b", 2, 101, 2)}).pairs, 0U) << "within the noise";
  EXPECT_EQ(accuracy({}).points, 0U);
}

TEST(Prediction, AnAxisMustBeAWordOfAJob) {
  EXPECT_TRUE(says(usage_sentence([] { prediction({}, {{"colour", {"red"}}}); }), "'colour'"));
}

// Searching

TEST(Search, RanksWhatFitsAndItsFrontierIsNeverBothSlowerAndLarger) {
  JobWords words = words_on("pcie-4", "", "4");
  words.model = "mlp:dim=256,depth=8";
  words.optimizer = "adam";
  const SearchResult result = search(words, small_machine());
  ASSERT_GT(result.ranked.size(), 10U);
  EXPECT_TRUE(result.complete);
  for (std::size_t i = 1; i < result.ranked.size(); ++i) {
    EXPECT_LE(result.ranked[i - 1].step, result.ranked[i].step);
  }
  ASSERT_FALSE(result.frontier.empty());
  EXPECT_EQ(result.frontier[0], 0U);
  for (const std::size_t f : result.frontier) {
    for (const Found& other : result.ranked) {
      EXPECT_FALSE(other.step < result.ranked[f].step && other.memory < result.ranked[f].memory) << other.name;
    }
  }
  // The words that are shown give the same step again.
  JobWords again = result.ranked[0].words;
  again.fold = "never";
  Training run(again, small_machine());
  run.run(1, 0);
  EXPECT_EQ(run.timed()[0], result.ranked[0].step);
}

TEST(Search, LeavesOutOnlyWhatCouldNotWin) {
  // Every split by itself, without bounds: none is faster than the first, nor as fast and smaller than the frontier.
  JobWords words = words_on("pcie-4", "", "4");
  words.model = "mlp:dim=512,depth=4";
  words.batch = "256";
  words.optimizer = "adam";
  const SearchResult result = search(words, small_machine());
  EXPECT_GT(result.pruned, 0U);
  for (const std::string strategy : {"ddp", "zero-1", "zero-2", "zero-3", "tensor", "layers", "gpipe", "1f1b", "zb-h1"}) {
    JobWords one = words;
    one.strategy = strategy;
    Training run(one, small_machine());
    run.run(1, 0);
    EXPECT_GE(run.timed()[0], result.ranked[0].step) << strategy;
  }
}

TEST(Search, NoBoundIsAboveWhatSimulates) {
  // In tf32 products take an eighth of what they take in fp32; with wide links gradients take little.
  JobWords words = words_on("dgx-a100", "", "8");
  words.model = "mlp:dim=8192,depth=16";
  words.batch = "4096";
  words.precision = "tf32";
  for (const std::string what_if : {"", "compute=4x", "link=0.1x", "link=20x"}) {
    words.what_if = what_if;
    const SearchResult result = search(words, small_machine());
    EXPECT_GT(result.pruned, 0U);
    for (const auto& [dp, tp] : {std::pair("8", "1"), std::pair("4", "2"), std::pair("2", "4"), std::pair("1", "8")}) {
      JobWords one = words;
      one.dp = dp;
      one.tp = tp;
      one.micro_batches = "1";
      one.fold = "always";
      Training run(one, small_machine());
      run.run(1, 0);
      EXPECT_GE(run.timed()[0], result.ranked[0].step) << "dp " << dp << ", tp " << tp << ", " << what_if;
    }
  }
}

TEST(Search, CountsWhatDoesNotFit) {
  JobWords words = words_on("pcie-4", "", "4");
  words.model = "mlp:dim=512,depth=4";
  words.memory = "6M";
  const SearchResult result = search(words, small_machine());
  EXPECT_GT(result.too_large, 0U);
  EXPECT_GT(result.least_too_large, Bytes(6 << 20));
  for (const Found& one : result.ranked) {
    EXPECT_LE(one.memory, Bytes(6 << 20)) << one.name;
  }
  EXPECT_TRUE(says(usage_sentence([] { search(JobWords{}, small_machine()); }), "--cluster"));
}

TEST(Search, RefusesWhatItChoosesItself) {
  for (const auto& [name, value] : {std::pair("strategy", "ddp"),
                                    {"dp", "2"},
                                    {"pp", "2"},
                                    {"tp", "2"},
                                    {"zero", "1"},
                                    {"schedule", "1f1b"},
                                    {"micro-batches", "4"},
                                    {"recompute", "all"},
                                    {"fold", "never"}}) {
    JobWords words = words_on("pcie-4", "", "4");
    set_word(words, name, value);
    EXPECT_TRUE(says(usage_sentence([&] { search(words, small_machine()); }), std::string("--") + name));
  }
}

TEST(Search, SaysWhatTheRunnerUpLostBy) {
  const Found best{.words = {},
                   .name = "a",
                   .step = Nanoseconds(1000),
                   .memory = {},
                   .compute = Nanoseconds(900),
                   .exposed = Nanoseconds(100),
                   .waiting = {},
                   .other = {}};
  const Found second{.words = {},
                     .name = "b",
                     .step = Nanoseconds(1200),
                     .memory = {},
                     .compute = Nanoseconds(850),
                     .exposed = Nanoseconds(100),
                     .waiting = Nanoseconds(250),
                     .other = {}};
  const std::string sentence = why_not(best, second);
  EXPECT_TRUE(says(sentence, "b takes 20.0 % longer"));
  EXPECT_TRUE(says(sentence, "5.0 % less goes into computing"));
  EXPECT_TRUE(says(sentence, "25.0 % more goes into waiting"));
  EXPECT_EQ(sentence.find("communication"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace baton::lab
