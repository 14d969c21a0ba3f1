/// The program as a user meets it: what it prints, what it writes, how it ends.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/program.h"
#include "support/archive.h"
#include "support/variable.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using baton::test::Cli;
using baton::test::contents;
using baton::test::Outcome;

TEST_F(Cli, ListsTheDevicesThereAre) {
  const Outcome outcome = run("devices --devices cpu:3");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("cpu:2"), std::string::npos) << outcome.out;
  EXPECT_EQ(json::parse(run("devices --devices cpu:3 --json -").out)["devices"].size(), 3U);
}

TEST_F(Cli, HelpsWithExamplesEverywhere) {
  for (const char* arguments : {"--help", "devices --help", "plan --help", "train --help"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments;
    EXPECT_NE(outcome.out.find("Example"), std::string::npos) << arguments;
  }
}

TEST_F(Cli, HelpIsACommandToo) {
  EXPECT_EQ(run("help").out, run("--help").out);
  EXPECT_EQ(run("help train").out, run("train --help").out);
  EXPECT_EQ(run("help lab run").out, run("lab run --help").out);
  EXPECT_EQ(run("help alchemy").code, 2);
  EXPECT_EQ(run("-v").out, run("--version").out);
}

TEST_F(Cli, HelpNamesTheStrategyThatIsTakenWithoutOne) {
  EXPECT_NE(run("train --help").out.find("(default: single; product if"), std::string::npos);
  EXPECT_EQ(run("search --help").out.find("--strategy"), std::string::npos) << "a search refuses what it chooses itself";
  EXPECT_EQ(run("pytorch --help").out.find("--software"), std::string::npos);
  EXPECT_EQ(run("bench --help").out.find("baton train"), std::string::npos);
  EXPECT_EQ(run("man --help").out.find("baton train"), std::string::npos);
}

TEST_F(Cli, HelpNamesWhatAValueIsInsteadOfCallingItText) {
  for (const std::string command : {"train", "handin", "tokens", "compare", "pytorch", "check", "lab run", "launch"}) {
    const std::string help = run(command + " --help").out;
    EXPECT_EQ(help.find(" TEXT"), std::string::npos) << help;
  }
}

TEST_F(Cli, HelpShowsTheTypeOfANumberAndItsNarrowBoundsAndValuesOutsideAreRefused) {
  struct Flag {
    const char* command;
    const char* shown;
    const char* refused;
    const char* sentence;
  };
  for (const Flag& flag :
       {Flag{"check", "--time-limit TIME=60s", "check x --time-limit 0s", "--time-limit is '0s', but must be at least 1ms"},
        Flag{"check", "checked, at least 16M", "check x --memory-limit 1M", "--memory-limit is '1M', but must be at least 16M"},
        Flag{"check", "--jobs N", "check --class x --jobs 0", "--jobs"}, Flag{"check", "--seed N", "check x --seed -1", "--seed"},
        Flag{"sample", "--temperature NUMBER=0.8", "sample --temperature hot", "--temperature"},
        Flag{"sample", "--tokens N=200", "sample --tokens 0", "--tokens"},
        Flag{"sample", "--top-k N=0", "sample --top-k -1", "--top-k"},
        Flag{"tokens", "--val 0..0.9=0", "tokens a.txt --val 0.95 --out a", "--val"},
        Flag{"launch", "--ranks N=2", "launch --ranks 0 -- train", "--ranks"},
        Flag{"launch", "--restarts N=3", "launch --restarts 0.5 -- train", "--restarts"},
        Flag{"fit", "--top N=10", "fit --top 0", "--top"}, Flag{"search", "--top N=10", "search --top 1001", "--top"},
        Flag{"bench collectives", "--time-limit TIME=100ms", "bench collectives --time-limit 3", "a time looks like"},
        Flag{"predict", "--time-limit TIME=2s", "predict --time-limit soon", "a time looks like"},
        Flag{"lab", "--time-limit TIME", "lab run split --time-limit soon", "a time looks like"},
        Flag{"handin", "--time-limit TIME", "handin hw1 --time-limit soon", "a time looks like"}}) {
    const std::string help = run(std::string(flag.command) + " --help").out;
    EXPECT_NE(help.find(flag.shown), std::string::npos) << help;
    const Outcome outcome = run(flag.refused);
    EXPECT_EQ(outcome.code, 2) << flag.refused;
    EXPECT_NE(outcome.err.find(flag.sentence), std::string::npos) << flag.refused << ": " << outcome.err;
  }
}

TEST_F(Cli, ARefusedValueOfAnAxisLeavesNoFolder) {
  EXPECT_EQ(run("lab run split --set devices=0").code, 2);
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(Cli, TrainsUnderEveryStrategyAndReportsWhatTheResultNeeds) {
  for (const std::string strategy : {"single", "dp", "ddp", "layers"}) {
    const Outcome outcome = run("train --model mlp:dim=32,depth=4 --strategy " + strategy +
                                " --devices cpu:2 --batch 8 --steps 12 --warmup 2 --json -");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json result = json::parse(outcome.out);
    for (const char* key :
         {"command", "model", "strategy", "device_list", "global_batch", "seed", "warmup", "steps", "time_per_step_ns", "losses",
          "transfers_forward", "transfers", "sent_bytes", "origin", "environment"}) {
      EXPECT_TRUE(result.contains(key)) << strategy << " lacks " << key;
    }
    for (const char* key : {"name", "busy", "idle", "waiting", "peak_bytes", "sent_bytes", "received_bytes"}) {
      EXPECT_TRUE(result["device_list"][0].contains(key)) << strategy << " lacks " << key;
    }
    for (const char* key : {"time_low_ns", "time_high_ns", "mean_ns", "std_ns", "p5_ns", "p95_ns", "min_ns", "max_ns"}) {
      EXPECT_TRUE(result[key].is_number()) << key;
    }
    EXPECT_EQ(result["model"], "mlp:dim=32,depth=4");
    EXPECT_EQ(result["origin"], "measured");
    EXPECT_EQ(result["losses"].size(), 12U);
    EXPECT_EQ(result["global_batch"], 8);
    EXPECT_LT(result["losses"].back().get<double>(), result["losses"].front().get<double>()) << "it learns";
    for (const json& device : result["device_list"]) {
      EXPECT_NEAR(device["busy"].get<double>() + device["idle"].get<double>(), 1, 1e-9);
      EXPECT_LE(device["waiting"].get<double>(), device["idle"].get<double>());
    }
    double path = 0;
    for (const auto& [kind, part] : result["critical_path"].items()) {
      path += part.get<double>();
    }
    EXPECT_NEAR(path, 1, 1e-9) << "the critical path covers the step";
    if (strategy == "layers") {
      EXPECT_EQ(result["transfers_forward"], 1);
      EXPECT_EQ(result["transfers"], 2);
      EXPECT_EQ(result["sent_bytes"], 2 * 8 * 32 * 4);
    }
    if (strategy == "ddp") {
      EXPECT_EQ(result["sent_bytes"], 2 * 4 * (32 * 32 + 32) * 4) << "2 (n-1)/n of the gradients, for each of two";
    }
  }
}

TEST_F(Cli, GivesTheSameLossesToTheBitForOneSeedOnAnyNumberOfCores) {
  const std::string job = "train --model mlp:dim=96,depth=3 --batch 16 --steps 10 --warmup 2 --json - ";
  const json one = json::parse(run(job + "--devices cpu:0-0").out)["losses"];
  EXPECT_EQ(one, json::parse(run(job + "--devices cpu:0-0").out)["losses"]);
  EXPECT_EQ(one, json::parse(run(job + "--devices cpu").out)["losses"]);
  EXPECT_EQ(one, json::parse(run(job + "--devices cpu:3 --strategy layers").out)["losses"]);
  EXPECT_NE(one, json::parse(run(job + "--devices cpu:0-0 --seed 1").out)["losses"]);
}

TEST_F(Cli, SaysWhenDevicesShareCores) {
  const Outcome outcome = run("train --model mlp:dim=8,depth=1 --strategy ddp --devices cpu:64 --batch 64 --steps 6");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("64 devices share"), std::string::npos) << outcome.out;
  const Outcome json_outcome = run("train --model mlp:dim=8,depth=1 --devices cpu:64 --steps 6 --json -");
  EXPECT_EQ(json::parse(json_outcome.out)["oversubscribed"], true);
  EXPECT_EQ(json::parse(run("devices --devices cpu:64 --json -").out)["oversubscribed"], true);
}

TEST_F(Cli, AcceptsUnderscoresForDashesInFlags) {
  const Outcome outcome = run("train --model mlp:dim=8,depth=1 --global_batch 6 --steps=6 --bucket_mb=1 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["global_batch"], 6);
}

TEST_F(Cli, WritesATraceThatParses) {
  const Outcome outcome = run("train --model mlp:dim=8,depth=2 --strategy layers --devices cpu:2 --steps 7 --trace t.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json trace = json::parse(contents(folder_ / "t.json"));
  EXPECT_GT(trace["traceEvents"].size(), 10U);
}

TEST_F(Cli, DelaysAndSlowLinksLengthenTheStep) {
  const std::string job = "train --model mlp:dim=8,depth=2 --strategy ddp --devices cpu:2 --batch 4 --steps 8 --json - ";
  const json delayed = json::parse(run(job + "--delay before=backward,device=all,ms=10").out);
  EXPECT_GE(delayed["min_ns"], 10'000'000);
  const json slowed = json::parse(run(job + "--link latency=5ms").out);
  EXPECT_GE(slowed["min_ns"], 10'000'000) << "two steps of a ring of two, 5 ms each";
}

TEST_F(Cli, PlansPrintParseBackAndHold) {
  const Outcome text = run("plan --model mlp:dim=16,depth=4 --strategy dp --devices cpu:3 --text");
  ASSERT_EQ(text.code, 0);
  std::ofstream(folder_ / "a.plan") << text.out;
  EXPECT_EQ(run("plan --file a.plan --text").out, text.out);
  EXPECT_EQ(run("plan --file a.plan --verify").code, 0);
  EXPECT_NE(run("plan --file a.plan --dot").out.find("digraph"), std::string::npos);
  EXPECT_NE(run("plan --file a.plan").out.find("transfers"), std::string::npos);
}

TEST_F(Cli, NamesTheRuleThatAPlanBreaks) {
  std::string text = run("plan --model mlp:dim=16,depth=2 --strategy ddp --devices cpu:2 --text").out;
  const std::size_t edge = text.find(" after=");
  ASSERT_NE(edge, std::string::npos);
  text.erase(edge, text.find('\n', edge) - edge);
  std::ofstream(folder_ / "broken.plan") << text;
  const Outcome outcome = run("plan --file broken.plan --verify");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("ordered: "), std::string::npos) << outcome.out;
}

struct Bad {
  const char* arguments;
  const char* names;  // what the sentence must mention
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.arguments; }

class CliRefuses : public Cli, public testing::WithParamInterface<Bad> {};

TEST_P(CliRefuses, InOneSentenceWithExitCode2AndNothingStarted) {
  const Outcome outcome = run(std::string(GetParam().arguments) + " --json result.json");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(GetParam().names), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.err.find("bug"), std::string::npos) << outcome.err;
  EXPECT_TRUE(fs::is_empty(folder_)) << "something was left behind";
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, CliRefuses,
    testing::Values(
        Bad{"train --model rnn", "unknown model 'rnn'"}, Bad{"train --model cnn", "needs the channels of its convolutions"},
        Bad{"train --model gpt:depth=2,heads=3,dim=64,context=8,vocab=9", "64 features"},
        Bad{"train --model llama3-8b:kv-heads=3 --batch 1", "3"}, Bad{"train --model resnet:19", "'19' layers"},
        Bad{"train --lr-schedule cosine", "needs until=N"}, Bad{"train --label-smoothing 0.1", "cross-entropy"},
        Bad{"train --clip -1", "--clip is '-1'"}, Bad{"train --gradients half", "'half'"},
        Bad{"train --model mlp:dim=0,depth=2", "dim"}, Bad{"train --model mlp:dim=8", "depth"},
        Bad{"train --model mlp:8", "two widths"}, Bad{"train --model mlp:dim=8,depth=2,width=3", "width=3"},
        Bad{"train --model mlp:dim=99999999999,depth=2", "dim"}, Bad{"train --strategy magic", "unknown strategy 'magic'"},
        Bad{"train --devices tpu", "unknown device 'tpu'"}, Bad{"train --devices cpu:0", "number of devices"},
        Bad{"train --devices cpu:", "number of devices"}, Bad{"train --devices cpu:1-0", "backwards"},
        Bad{"train --devices cpu:0-9999", "no core"}, Bad{"train --strategy ddp --devices cpu:4 --batch 3", "batch of 3"},
        Bad{"train --batch 0", "--batch"}, Bad{"train --batch -4", "--batch"}, Bad{"train --batch many", "--batch"},
        Bad{"train --batch 1e3", "--batch"}, Bad{"train --steps 0", "--steps"}, Bad{"train --steps 5", "warm-up"},
        Bad{"train --seed -1", "--seed"}, Bad{"train --lr nan", "--lr"}, Bad{"train --lr -1", "--lr"},
        Bad{"train --optimizer lbfgs", "lbfgs"}, Bad{"train --optimizer adam --momentum 0.9", "--momentum"},
        Bad{"train --loss hinge", "hinge"}, Bad{"train --backend gpu", "gpu"},
        Bad{"train --strategy layers --devices cpu:3 --model mlp:dim=8,depth=2", "cannot be split over 3"},
        Bad{"train --strategy layers --devices cpu:2 --split 1,2 --model mlp:dim=8,depth=2", "split"},
        Bad{"train --strategy ddp --devices cpu:2 --split 1,1", "--split"}, Bad{"train --memory 1M", "needs"},
        Bad{"train --memory lots", "--memory"}, Bad{"train --model mlp:dim=200000,depth=4", "needs"},
        Bad{"train --link fast", "link"}, Bad{"train --link bandwidth=1", "bandwidth"}, Bad{"train --delay 10", "delay"},
        Bad{"train --delay before=lunch,ms=3", "lunch"}, Bad{"train --delay before=forward,device=7,ms=3", "device 7"},
        Bad{"train --precision tf32", "tf32"}, Bad{"train --precision fp8", "fp8"}, Bad{"train --loss-scale huge", "--loss-scale"},
        Bad{"train --precision fp16 --loss-scale-growth 0", "--loss-scale-growth"}, Bad{"train --samples 3", "--samples"},
        Bad{"train --nonsense", "--nonsense"}, Bad{"train --bucket-mb x", "--bucket-mb"}, Bad{"launch", "launch"},
        Bad{"train --devices cpu:4 --dp 3", "3 × 1 × 1 = 3, but there are 4 devices"}, Bad{"train --devices cpu:4 --dp 0", "--dp"},
        Bad{"train --devices cpu:2 --zero 4", "--zero"}, Bad{"train --devices cpu:2 --pp 2 --zero 1", "--dp"},
        Bad{"train --devices cpu:2 --pp 2 --schedule 2f2b", "unknown schedule '2f2b'"},
        Bad{"train --devices cpu:2 --pp 2 --schedule missing.csv", "missing.csv"},
        Bad{"train --devices cpu:2 --tp 2 --model mlp:dim=8,depth=1", "two layers"},
        Bad{"train --devices cpu:2 --strategy dp --tp 2", "--tp"}, Bad{"train --recompute some", "'some'"},
        Bad{"train --balance luck", "'luck'"}, Bad{"train --devices cpu:2 --strategy ddp --pp 2", "leave out one of them"},
        Bad{"train --devices cpu:2 --strategy 1f1b --dp 2", "--schedule 1f1b --pp N --dp 2"},
        Bad{"train --strategy 1f1b --devices cpu:2 --chunks 3", "one stage on each device"}));

TEST_F(Cli, PlanShowsOneThingAtATime) {
  const Outcome both = run("plan --text --dot");
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("choose one"), std::string::npos) << both.err;
  std::ofstream(folder_ / "a.plan") << run("plan --text").out;
  const Outcome grid = run("plan --grid --file a.plan");
  EXPECT_EQ(grid.code, 2);
  EXPECT_NE(grid.err.find("--file"), std::string::npos) << grid.err;
}

TEST_F(Cli, OnlyAPipelineOfSeveralDevicesHasAGrid) {
  for (const std::string strategy : {"dp", "ddp", "tensor", "product --pp 1 --dp 2 --schedule gpipe"}) {
    for (const std::string way : {"--grid", "--csv"}) {
      const Outcome grid = run("plan " + way + " --devices cpu:2 --strategy " + strategy);
      EXPECT_EQ(grid.code, 2) << strategy;
      EXPECT_NE(grid.err.find("has no pipeline here"), std::string::npos) << grid.err;
    }
  }
}

TEST_F(Cli, DrawsAScheduleAndReadsItBack) {
  const std::string job = "plan --model mlp:dim=16,depth=8 --devices cpu:4 --strategy 1f1b --micro-batches 8 ";
  const std::string drawn = run(job + "--grid").out;
  EXPECT_NE(drawn.find("device 0  F0 F1 F2 F3"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("27.3 %"), std::string::npos) << drawn;
  const Outcome csv = run(job + "--csv");
  ASSERT_EQ(csv.code, 0) << csv.err;
  std::ofstream(folder_ / "own.csv") << csv.out;
  const std::string own = "--model mlp:dim=16,depth=8 --devices cpu:4 --schedule own.csv ";
  EXPECT_EQ(run("plan " + own + "--csv").out, csv.out);
  EXPECT_EQ(run("plan " + own + "--verify").code, 0);
  EXPECT_EQ(run("train " + own + "--steps 7").code, 0);
  std::ofstream(folder_ / "stuck.csv") << "0F0,0B0\n1B0,1F0\n";
  const Outcome stuck = run("train --model mlp:dim=16,depth=8 --devices cpu:2 --schedule stuck.csv");
  EXPECT_EQ(stuck.code, 2);
  EXPECT_NE(stuck.err.find("cannot run"), std::string::npos) << stuck.err;
}

TEST_F(Cli, TrainsAProductOfEverything) {
  const Outcome outcome = run(
      "train --model mlp:dim=32,depth=8 --devices cpu:8 --dp 2 --pp 2 --tp 2 --zero 1 --schedule 1f1b "
      "--micro-batches 8 --batch 32 --steps 7 --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["strategy"], "product");
  EXPECT_EQ(result["device_list"].size(), 8U);
  const json single = json::parse(run("train --model mlp:dim=32,depth=8 --batch 32 --steps 7 --json -").out);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_NEAR(result["losses"][i].get<double>(), single["losses"][i].get<double>(), 1e-5);
  }
}

TEST_F(Cli, SaysWhichStrategiesGoTogether) {
  const Outcome outcome = run("strategies");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name : {"single", "zero-3", "interleaved", "zb-v", "product", "dp 2 tp 2"}) {
    EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
  }
}

TEST_F(Cli, GoesOnFromACheckpointUnderTheSameStrategyToTheBitAndUnderAnother) {
  const std::string job = "train --model mlp:dim=32,depth=4 --batch 16 --optimizer adam --samples 100 --warmup 0 --json - ";
  const json whole = json::parse(run(job + "--strategy ddp --devices cpu:4 --steps 12").out);
  ASSERT_EQ(run(job + "--strategy ddp --devices cpu:4 --steps 7 --checkpoint saved --every 3 --keep 2").code, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "saved"), fs::directory_iterator()), 2);
  const Outcome same = run(job + "--strategy ddp --devices cpu:4 --steps 12 --checkpoint saved --resume --keep 9");
  ASSERT_EQ(same.code, 0) << same.err;
  const json rest = json::parse(same.out);
  EXPECT_EQ(rest["steps_before"], 7);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rest["losses"][i], whole["losses"][7 + i]) << i;
  }
  fs::remove(folder_ / "saved" / "step-000000000012.safetensors");
  const json other = json::parse(run(job + "--strategy 1f1b --devices cpu:2 --steps 12 --checkpoint saved --resume").out);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(other["losses"][i].get<double>(), whole["losses"][7 + i].get<double>(), 1e-5) << i;
  }
  const Outcome done = run(job + "--steps 12 --checkpoint saved --resume");
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("already at step 12"), std::string::npos) << done.err;
}

TEST_F(Cli, KilledAtAnyMomentLeavesCheckpointsThatCanBeGoneOnFrom) {
  const std::string job =
      "train --model mlp:dim=64,depth=2 --batch 4 --warmup 0 -q --checkpoint saved --keep 2 --every 1 --resume ";
  std::int64_t before = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string killed = fmt::format("cd '{}' && timeout -s KILL 0.{:02} '{}' {} --steps 1000000 >/dev/null 2>&1",
                                           folder_.string(), 4 + 3 * i, BATON_PROGRAM, job);
    EXPECT_NE(std::system(killed.c_str()), 0);
    const Outcome after = run(job + fmt::format("--steps {} --json -", before + 1));
    std::int64_t now = before + 1;
    if (after.code != 0) {  // it had come further: the sentence says to which step
      const std::size_t at = after.err.find("is already at step ");
      ASSERT_NE(at, std::string::npos) << after.err;
      now = std::stoll(after.err.substr(at + 19));
    }
    EXPECT_GE(now, before);
    EXPECT_EQ(after.err.find("cannot be used"), std::string::npos) << after.err;
    before = now;
  }
  EXPECT_GT(before, 12) << "no run came to save anything";
}

TEST_F(Cli, ABrokenLossStopsAndNamesTheLastGoodCheckpoint) {
  const Outcome outcome = run("train --model mlp:dim=16,depth=4 --lr 1000000 --steps 400 --every 1 --checkpoint saved -q");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("the last good checkpoint is saved/step-"), std::string::npos) << outcome.err;
}

TEST_F(Cli, StepsAreCountedFromOne) {
  const std::string job = "train --model mlp:dim=16,depth=2 --steps 8 ";
  const Outcome outcome = run(job);
  EXPECT_NE(outcome.out.find("\n     1  "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n     8  "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("\n     0  "), std::string::npos) << outcome.out;
  const Outcome broken = run("train --model mlp:dim=16,depth=6 --lr 1e6 --steps 30");
  EXPECT_NE(broken.out.find("\n     3  "), std::string::npos) << broken.out;
  EXPECT_EQ(broken.out.find("\n     4  "), std::string::npos) << broken.out;
  EXPECT_NE(broken.err.find("the loss is not a number at step 3;"), std::string::npos) << broken.err;
}

TEST_F(Cli, AStageOfAPipelineIsNotCalledSlow) {
  std::ofstream(folder_ / "all.txt") << std::string(20000, 'a');
  const std::string job =
      "train --model gpt:depth=2,heads=2,dim=32,context=32,vocab=256 --data all.txt --batch 16 --devices cpu:2 "
      "--steps 60 -q --strategy ";
  const Outcome pipeline = run(job + "1f1b");
  EXPECT_EQ(pipeline.code, 0) << pipeline.err;
  EXPECT_EQ(pipeline.out.find("slow"), std::string::npos) << pipeline.out;
  EXPECT_EQ(pipeline.out.find("stands out"), std::string::npos) << pipeline.out;
  EXPECT_NE(pipeline.out.find("The busiest stage is on cpu:1"), std::string::npos) << pipeline.out;
  EXPECT_NE(pipeline.out.find("--balance work"), std::string::npos) << pipeline.out;
  const Outcome even = run("train --model mlp:dim=64,depth=4 --devices cpu:2 --steps 20 -q --strategy layers");
  EXPECT_EQ(even.out.find("--balance work"), std::string::npos) << "its blocks are shared evenly: " << even.out;
  const Outcome replicas = run(job + "ddp --delay before=backward,device=1,ms=30");
  EXPECT_NE(replicas.out.find("cpu:1 is slow"), std::string::npos) << replicas.out;
}

TEST_F(Cli, NothingIsSavedOfWeightsThatAreNotFiniteThoughTheLossStillIs) {
  const Outcome outcome = run("train --model mlp:dim=64,depth=2 --lr 1e6 --batch 8 --every 1 --steps 40 --checkpoint saved -q");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find(" is not finite at step "), std::string::npos) << outcome.err;
  std::size_t saved = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "saved")) {
    EXPECT_EQ(baton::test::not_finite(baton::test::read_archive(entry.path())), "") << entry.path();
    ++saved;
  }
  EXPECT_GT(saved, 0U);
}

TEST_F(Cli, ARunThatBeginsAnewDoesNotMixWithTheCheckpointsOfAnother) {
  const std::string job = "train --model mlp:dim=8,depth=1 --batch 4 --steps 6 --checkpoint saved -q";
  ASSERT_EQ(run(job).code, 0);
  const Outcome again = run(job);
  EXPECT_EQ(again.code, 2);
  EXPECT_NE(again.err.find("continue it with --resume, or give another folder"), std::string::npos) << again.err;
}

TEST_F(Cli, TrainsInSixteenBitsAndSaysThatTheyAreEmulated) {
  const baton::test::Variable variable("BATON_AMX", "off");  // bf16 is emulated on every processor then
  const std::string job = "train --model mlp:dim=16,depth=2 --batch 8 --steps 6 --warmup 1 -q --precision ";
  const Outcome text = run(job + "mixed");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("fp16 is emulated"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("Loss scale 65536 at the end; 0 of 6 steps skipped"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("Rounding made 0 of"), std::string::npos) << text.out;
  const Outcome plain = run(job + "float32");
  EXPECT_EQ(plain.out.find("emulated"), std::string::npos) << plain.out;
  EXPECT_EQ(plain.out.find("Loss scale"), std::string::npos) << plain.out;
  for (const char* name : {"bf16", "bfloat16", "fp16", "half", "float16"}) {
    const Outcome outcome = run(job + name + " --json -");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_EQ(result["precision"], std::string(name).starts_with("b") ? "bf16" : "fp16");
    EXPECT_EQ(result["emulated"], true);
    EXPECT_EQ(result["final_scale"].is_null(), result["precision"] == "bf16");
  }
  EXPECT_NE(run("plan --model mlp:dim=16,depth=2 --precision bf16 --text").out.find(" bf16 "), std::string::npos);
}

TEST_F(Cli, SaysWhichProductsAreEmulatedBesideTilesOfAmx) {
  const baton::test::Variable variable("BATON_AMX", "portable");
  const std::string job = " --batch 4 --steps 3 --warmup 1 -q --precision bf16";
  const Outcome layers = run("train --model mlp:dim=16,depth=2" + job);
  EXPECT_NE(layers.out.find("note: bf16 is computed by a model of AMX's tiles: its results"), std::string::npos) << layers.out;
  const Outcome images = run("train --model cnn:4,image=8,channels=1,classes=3" + job);
  EXPECT_NE(images.out.find("a model of AMX's tiles, and emulated in convolutions: its results"), std::string::npos) << images.out;
}

TEST_F(Cli, ComparesPrecisionsInAnExperiment) {
  const baton::test::Variable variable("BATON_AMX", "off");  // bf16 is emulated on every processor then
  const Outcome outcome = run("lab run precision --set model=mlp:dim=16,depth=4 --set batch=8 --time-limit 50ms --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result["rows"].size(), 6U);
  EXPECT_EQ(result["rows"][5]["precision"], "tf32");
  EXPECT_NE(result["rows"][5]["reason"].get<std::string>().find("tf32"), std::string::npos);
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(result["rows"][row]["computed"], row == 0 ? "none" : "emulated");
    EXPECT_GT(result["rows"][row]["time_per_step_ns"], 0);
  }
}

TEST_F(Cli, SaysWhatWasLikelyMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"train --stepz 3", "baton train does not know '--stepz' (did you mean --steps?): see baton train --help"},
      {"train --zero-stage 1", "write --zero"},
      {"train --dtype bf16", "write --precision"},
      {"train --amp", "write --precision bf16, or fp16"},
      {"train --max-steps 3", "write --steps"},
      {"train --num-epochs 3", "--epochs"},
      {"train --grad-accum 2", "write --micro-batches"},
      {"train --gradient-accumulation-steps=2", "write --micro-batches"},
      {"train --output-dir x", "--checkpoint DIR"},
      {"train --save-every 3", "write --checkpoint DIR --every N"},
      {"simulate --nodes 2", "--devices counts those of all nodes"},
      {"train --gpu 0", "--devices cuda"},
      {"trian", "'trian' (did you mean train?)"},
      {"lab runn timing", "baton lab does not know 'runn' (did you mean run?)"},
      {"lab run strong-scalling", "(did you mean strong-scaling?)"},
      {"lab run delay --set delay_m=1", "(did you mean delay_ms?)"},
      {"plan --strategy layer", "(did you mean layers?)"},
      {"plan --model mpl:dim=8,depth=2", "(did you mean mlp?)"},
      {"plan --strategy 1f1b --devices cpu:2 --schedule gpip", "(did you mean gpipe?)"},
      {"plan --optimizer adm", "(did you mean adam?)"},
      {"simulate --cluster dgx-a10", "(did you mean dgx-a100?)"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_NE(outcome.err.find(sentence), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(run("train --zzzzzzzz").err.find("did you mean"), std::string::npos);
}

/// The lines of a text.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_F(Cli, TheStepOfADeviceIsDividedWithoutARest) {
  const Outcome outcome = run(
      "train --model mlp:dim=64,depth=4 --strategy ddp --devices cpu:2 --batch 16 --steps 12 --quiet --delay "
      "before=backward,device=0,ms=2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  int devices = 0;
  for (const std::string& line : lines_of(outcome.out)) {
    if (line.starts_with("cpu:") && line.find(" %") != std::string::npos && line.find("is slow") == std::string::npos) {
      std::istringstream cells(line);
      std::string name;
      cells >> name;
      double sum = 0;
      double share = 0;
      std::string sign;
      for (int part = 0; part < 5; ++part) {
        cells >> share >> sign;
        EXPECT_EQ(sign, "%") << line;
        sum += share;
      }
      EXPECT_NEAR(sum, 100, 0.3) << line;
      ++devices;
    }
  }
  EXPECT_EQ(devices, 2) << outcome.out;
  for (const char* heading : {"busy", "waiting", "exposed comm.", "delayed", "rest"}) {
    EXPECT_NE(outcome.out.find(heading), std::string::npos) << heading;
  }
}

TEST_F(Cli, OneStepHasNoSpread) {
  const Outcome one = run("train --model mlp:dim=16,depth=2 --steps 1 --warmup 0 --quiet");
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("over 1 step ("), std::string::npos) << one.out;
  for (const char* statistic : {"±", "p5", "p95", "median"}) {
    EXPECT_EQ(one.out.find(statistic), std::string::npos) << one.out;
  }
  EXPECT_NE(run("train --model mlp:dim=16,depth=2 --steps 2 --warmup 0 --quiet").out.find("±"), std::string::npos);
}

TEST_F(Cli, TablesAlignTextLeftAndNumbersRight) {
  const std::vector<std::string> strategies = lines_of(run("strategies").out);
  ASSERT_GT(strategies.size(), 2U);
  const std::size_t column = strategies[0].find("what it does");
  ASSERT_NE(column, std::string::npos);
  for (std::size_t line = 1; line < 4; ++line) {
    EXPECT_EQ(strategies[line].substr(column - 2, 2), "  ") << strategies[line];
    EXPECT_NE(strategies[line][column], ' ') << strategies[line];
  }
  const std::vector<std::string> devices = lines_of(run("plan --strategy ddp --devices cpu:2").out);
  ASSERT_GT(devices.size(), 3U);
  EXPECT_TRUE(devices[2].ends_with("  memory")) << devices[2];
  EXPECT_EQ(devices[3].size(), devices[2].size()) << "the last column holds numbers, which end together";
}

TEST_F(Cli, TheCommandThatMeasuresAgainKeepsWhatWasAsked) {
  const Outcome outcome = run("lab run split --set dim=16,32 --time-limit 10ms --out 'my runs'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(
      outcome.out.find("Reproduce with: baton lab run split --preset quick --set dim=16,32 --time-limit 10ms --out 'my runs'\n"),
      std::string::npos)
      << outcome.out;
  std::ofstream(folder_ / "mine.toml") << "[job]\nmodel = \"mlp:dim=16,depth=2\"\n[axes]\nbatch = [4, 8]\n";
  EXPECT_NE(run("lab run --spec mine.toml --set batch=4 --time-limit 10ms")
                .out.find("Reproduce with: baton lab run --spec mine.toml --preset quick --set batch=4 --time-limit 10ms\n"),
            std::string::npos);
}

TEST_F(Cli, CommandsBeginAsTheLauncherOfACloneWasCalled) {
  const std::string clone = "BATON_CALLED_AS=./baton";
  for (const std::string arguments : {"--help", "train --help", "lab --help", "lab run --help", "plan --help"}) {
    const std::string shown = run_with(clone, arguments).out;
    EXPECT_NE(shown.find("\n  ./baton "), std::string::npos) << arguments << shown;
    EXPECT_EQ(shown.find("\n  baton "), std::string::npos) << arguments << shown;
    EXPECT_EQ(run(arguments).out.find("./baton"), std::string::npos) << arguments;
  }
  EXPECT_NE(run_with(clone, "completion --help").out.find("<(./baton completion bash)"), std::string::npos);
  EXPECT_NE(run_with(clone, "lab --help").out.find("`./baton clusters`"), std::string::npos);
  EXPECT_EQ(run_with(clone, "train --nonesuch").err, "baton: ./baton train does not know '--nonesuch': see ./baton train --help\n");
  EXPECT_NE(run_with(clone, "lab run split --set dim=16 --time-limit 10ms").out.find("\nReproduce with: ./baton lab run split "),
            std::string::npos);
  EXPECT_NE(run_with(clone, "train --model mlp:dim=8,depth=1 --batch 2 --steps 2 --warmup 0 -q --json -")
                .out.find("\"command\": \"./baton train "),
            std::string::npos);
}

TEST_F(Cli, AValueIsSetForTheExperimentsThatHaveTheAxis) {
  const Outcome outcome = run("lab run split matrix-power --set dim=16 --set size=32 --set devices=2 --time-limit 10ms");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line :
       {"note: matrix-power has no axis dim and uses the preset\n", "note: split has no axis size and uses the preset\n",
        "Reproduce with: baton lab run split --preset quick --set dim=16 --set devices=2 --time-limit 10ms\n",
        "Reproduce with: baton lab run matrix-power --preset quick --set size=32 --set devices=2 --time-limit 10ms\n"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << outcome.out;
  }
  const Outcome refused = run("lab run split depth --set dims=16 --time-limit 10ms");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err,
            "baton: none of these experiments has an axis 'dims' (did you mean dim?): their axes are depth, devices, dim\n");
}

TEST_F(Cli, SaysThatThereIsNoCheckpointToGoOnFrom) {
  const std::string job = "train --model mlp:dim=8,depth=1 --batch 4 --steps 6 --checkpoint here --resume";
  EXPECT_NE(run(job).out.find("\nnote: there is no checkpoint in here; training starts at step 1\n"), std::string::npos);
  const Outcome again = run(job + " --steps 7");
  EXPECT_EQ(again.out.find("there is no checkpoint"), std::string::npos) << again.out;
}

TEST_F(Cli, AFlagThatTakesNoValueIsNotGivenOne) {
  const Outcome outcome = run("train --model mlp:dim=8,depth=1 --checkpoint here --resume=5");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "baton: --resume takes no value (see baton train --help)\n");
}

TEST_F(Cli, ShowsWhatAnExperimentVariesInEachPreset) {
  const Outcome outcome = run("lab list accumulate");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"axis", "quick", "full", "precision", "number format", "fp32, mixed", "1, 4, 8, 16, 32"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(run("lab list accumulation").code, 2);
}

TEST_F(Cli, ListsEveryExperimentOfTheCourse) {
  const std::string list = run("lab list").out;
  for (const char* id : {"timing", "strong-scaling", "comm-vs-compute", "dp-vs-ddp", "delay", "batch-scaling", "imbalance",
                         "accumulate", "first-split", "split", "depth", "all-devices", "transfers", "four-way-split", "idle",
                         "memory", "matrix-power", "precision", "profile"}) {
    EXPECT_NE(list.find(std::string(id) + " "), std::string::npos) << id;
  }
}

TEST_F(Cli, RunsAnExperimentAndKeepsItsResults) {
  const Outcome outcome = run("lab run transfers --set dim=32 --set devices=2,3 --time-limit 100ms --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["id"], "transfers");
  ASSERT_EQ(result["rows"].size(), 2U);
  EXPECT_EQ(result["rows"][1]["devices"], 3);
  EXPECT_EQ(result["rows"][1]["transfers_forward"], 2);
  EXPECT_EQ(result["rows"][1]["bytes_forward"], 2 * 64 * 32 * 4);
  EXPECT_EQ(result["rows"][1]["origin"], "measured");
  EXPECT_GT(result["rows"][1]["time_per_step_ns"], 0);
  EXPECT_FALSE(result["answers"][0]["text"].get<std::string>().empty());
  fs::path folder;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "runs")) {
    folder = entry.path();
  }
  for (const char* name : {"transfers.jsonl", "transfers.spec.json", "transfers.csv", "report.html", "report.md", "report.json"}) {
    EXPECT_TRUE(fs::exists(folder / name)) << name;
  }
  EXPECT_EQ(json::parse(contents(folder / "report.json"))["experiments"][0], result) << "what is printed is what is kept";
  const std::string relative = fs::relative(folder, folder_).string();
  EXPECT_EQ(run("report " + relative).code, 0);
  EXPECT_NE(run("compare " + relative + " " + relative).out.find("within the noise"), std::string::npos);
}

TEST_F(Cli, TimelinesLinkToThePlaygroundWithTheJobThatTheyShow) {
  ASSERT_EQ(run("lab run idle --set schedule=1f1b --set devices=2 --set model=mlp:dim=16,depth=4 --cluster pcie-4 --out here").code,
            0);
  const fs::path folder = fs::directory_iterator(folder_ / "here")->path();
  const auto link = [&](const std::string& flags) {
    const Outcome outcome = run("report " + fs::relative(folder, folder_).string() + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(contents(folder / "report.json")).value("playground", json());
  };
  EXPECT_TRUE(link("").is_null()) << "no page is there";
  std::ofstream(folder_ / "playground.html") << "a page";
  EXPECT_EQ(link(""), "../../playground.html");
  std::ofstream(folder / "playground.html") << "a page";
  EXPECT_EQ(link(""), "playground.html");
  std::ofstream(folder_ / "of mine#1.html") << "a page";
  EXPECT_EQ(link(" --playground 'of mine#1.html'"), "../../of%20mine%231.html");
  EXPECT_EQ(link(" --playground https://example.org/p.html"), "https://example.org/p.html");
  const Outcome refused = run("report here --playground nowhere.html");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("nowhere.html is neither a file nor an address"), std::string::npos) << refused.err;

  const json timeline = json::parse(contents(folder / "report.json"))["experiments"][0]["timelines"][0];
  std::string flags;
  for (const auto& [name, value] : timeline["playground"].items()) {
    flags += fmt::format(" --{} {}", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  EXPECT_EQ(timeline["playground"]["cluster"], "pcie-4");
  EXPECT_EQ(json::parse(run("simulate --json -" + flags).out)["time_per_step_ns"], timeline["duration_ns"]) << flags;
}

TEST_F(Cli, ALossThatIsNoNumberIsSpeltWithoutASign) {
  const Outcome outcome = run("train --model mlp:dim=16,depth=8 --lr 1e6 --batch 8 --steps 12");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find(" nan"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("-nan"), std::string::npos) << outcome.out;
}

TEST_F(Cli, ResumesARunInsteadOfMeasuringAgain) {
  const std::string job = "lab run split --set dim=16 --time-limit 100ms ";
  ASSERT_EQ(run(job).code, 0);
  fs::path file;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / "runs")) {
    file = entry.path().filename() == "split.jsonl" ? entry.path() : file;
  }
  const std::string before = contents(file);
  ASSERT_EQ(run(job + "--resume").code, 0);
  EXPECT_EQ(contents(file), before) << "what was measured is not measured again";
  std::ofstream(file, std::ios::trunc) << before.substr(0, before.size() / 2);  // as after a kill
  ASSERT_EQ(run(job + "--resume").code, 0);
  EXPECT_GT(contents(file).size(), before.size() / 2);
}

TEST_F(Cli, TheReportOfAResumedRunHasWhatItsFolderHeldBefore) {
  const std::string small = " --set dim=16 --simulate --cluster pcie-5 --json -";
  ASSERT_EQ(run("lab run split depth" + small).code, 0);
  const Outcome outcome = run("lab run split transfers --resume" + small);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).size(), 2U);
  std::vector<std::string> ids;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "runs")) {
    const json report = json::parse(contents(entry.path() / "report.json"));
    for (const json& experiment : report["experiments"]) {
      ids.push_back(experiment["id"]);
    }
  }
  EXPECT_EQ(ids, (std::vector<std::string>{"split", "depth", "transfers"}));
}

/// The rows of the report in the only run folder whose name ends so.
json rows_of_run(const fs::path& runs, const std::string& file = "report.json") {
  json rows;
  for (const fs::directory_entry& entry : fs::directory_iterator(runs)) {
    rows = json::parse(contents(entry.path() / file))["experiments"][0]["rows"];
  }
  return rows;
}

TEST_F(Cli, ResumingTakesNothingFromAnotherClusterOrAnotherWhatIf) {
  const std::string job = "lab run all-devices --set dim=64 --set depth=4 --set devices=1,2 --json - ";
  ASSERT_EQ(run(job + "--cluster pcie-5 --out Q").code, 0);
  const Outcome other = run(job + "--cluster dgx-a100 --out Q --resume");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.err.find("measured with another cluster (pcie-5, now dgx-a100)"), std::string::npos) << other.err;
  const Outcome afresh = run(job + "--cluster dgx-a100 --out fresh");
  EXPECT_EQ(json::parse(other.out)["rows"], json::parse(afresh.out)["rows"]);
  const Outcome what_if = run(job + "--cluster pcie-5 --what-if compute=10x --out V");
  const Outcome plain = run(job + "--cluster pcie-5 --out V --resume");
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_NE(json::parse(plain.out)["rows"], json::parse(what_if.out)["rows"]);
  EXPECT_NE(plain.err.find("what-if (compute=10x, now none)"), std::string::npos) << plain.err;
  const Outcome again = run(job + "--cluster pcie-5 --out V --resume");
  EXPECT_EQ(again.err.find("another"), std::string::npos) << again.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "V"), {}), 2) << "the run that matched was gone on with";
}

TEST_F(Cli, ResumingTakesNothingFromAClusterWhoseFileHasChanged) {
  const auto write = [&](const char* rate) {
    std::ofstream(folder_ / "mine.toml", std::ios::trunc)
        << "summary = \"mine\"\n[device]\nname = \"x\"\ncount = 2\nmemory = \"1GiB\"\n[device.rates]\nf32 = \"" << rate << "\"\n";
  };
  const std::string job = "lab run split --set dim=64 --set devices=2 --cluster ./mine.toml --out Q --json - ";
  write("1Gflop/s");
  const Outcome slow = run(job);
  ASSERT_EQ(slow.code, 0) << slow.err;
  write("100Gflop/s");
  const Outcome fast = run(job + "--resume");
  ASSERT_EQ(fast.code, 0) << fast.err;
  EXPECT_NE(fast.err.find("contents of ./mine.toml"), std::string::npos) << fast.err;
  EXPECT_LT(json::parse(fast.out)["rows"][0]["time_per_step_ns"], json::parse(slow.out)["rows"][0]["time_per_step_ns"]);
}

TEST_F(Cli, ResumingTakesNothingFromASpecWithAnotherJobButAddsPoints) {
  const auto write = [&](const char* dim, const char* batches) {
    std::ofstream(folder_ / "s.toml", std::ios::trunc)
        << "[job]\nmodel=\"mlp:dim=" << dim << ",depth=2\"\n[axes]\nbatch=[" << batches << "]\n";
  };
  const std::string job = "lab run --spec s.toml --time-limit 30ms --out R --json - ";
  write("32", "16");
  const Outcome first = run(job);
  ASSERT_EQ(first.code, 0) << first.err;
  write("32", "16, 32");
  const Outcome wider = run(job + "--resume");
  ASSERT_EQ(wider.code, 0) << wider.err;
  EXPECT_EQ(json::parse(wider.out)["rows"][0]["instance_times_ns"], json::parse(first.out)["rows"][0]["instance_times_ns"])
      << "the same job: what was measured stays";
  write("512", "16, 32");
  const Outcome other = run(job + "--resume");
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_NE(
      other.err.find("2 records of s are not used, because they were measured with another [job] model (mlp:dim=32,depth=2, now "
                     "mlp:dim=512,depth=2)"),
      std::string::npos)
      << other.err;
  EXPECT_GT(json::parse(other.out)["rows"][0]["flops"], 100 * json::parse(first.out)["rows"][0]["flops"].get<double>());
}

TEST_F(Cli, ALargeSweepKeepsEveryPointAndItsReport) {
  std::string seeds;
  for (int seed = 0; seed < 130; ++seed) {
    seeds += (seeds.empty() ? "" : ", ") + std::to_string(seed);
  }
  std::ofstream(folder_ / "m.toml") << "[job]\nmodel=\"mlp:dim=8,depth=1\"\nbatch=1\n[axes]\nseed=[" << seeds << "]\n";
  const Outcome outcome = run("lab run --spec m.toml --time-limit 2ms --out B --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["rows"].size(), 130U);
  EXPECT_NE(outcome.err.find("timelines are kept of the first 100 of 130 points"), std::string::npos) << outcome.err;
  EXPECT_EQ(rows_of_run(folder_ / "B").size(), 130U);
  std::string folder;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "B")) {
    folder = entry.path().string();
    EXPECT_EQ(std::ranges::count(contents(entry.path() / "m.csv"), '\n'), 131);
    for (const json& row : rows_of_run(folder_ / "B")) {
      EXPECT_LE(row["losses"].size(), 64U);
    }
  }
  EXPECT_EQ(run("report " + folder + " >/dev/null").code, 0);
}

TEST_F(Cli, ResultsOfAnotherKindAreRefusedInASentence) {
  const std::string small = "lab run split --set dim=16 --time-limit 10ms --json - >/dev/null --out ";
  ASSERT_EQ(run(small + "A").code, 0);
  ASSERT_EQ(run(small + "B").code, 0);
  const auto folder = [&](const char* out) { return fs::directory_iterator(folder_ / out)->path(); };
  const std::string records = contents(folder("A") / "split.jsonl");
  const std::string spec = contents(folder("A") / "split.spec.json");
  const auto expect_sentence = [&](const std::string& command, const std::string& what) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 2) << what;
    EXPECT_EQ(outcome.err.find("bug"), std::string::npos) << what << ": " << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << what << ": " << outcome.err;
  };
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    return text;
  };
  for (const char* value : {"3", "[]", "null", "{}"}) {
    std::ofstream(folder("A") / "split.jsonl", std::ios::trunc)
        << changed(records, "\"origin\":\"measured\"", "\"origin\":" + std::string(value));
    expect_sentence("compare " + folder("A").string() + " " + folder("B").string(), std::string("origin ") + value);
    expect_sentence("report " + folder("A").string(), std::string("origin ") + value);
  }
  for (const char* key : {"others_share", "instances"}) {
    std::ofstream(folder("A") / "split.jsonl", std::ios::trunc)
        << changed(records, "\"stopped\":", "\"" + std::string(key) + "\":\"x\",\"stopped\":");
    expect_sentence("compare " + folder("A").string() + " " + folder("B").string(), key);
  }
  std::ofstream(folder("A") / "split.jsonl", std::ios::trunc) << records;
  for (const char* change : {"\"cores\": \"two\",\n    \"was\":", "\"cores\": [],\n    \"was\":"}) {
    std::ofstream(folder("A") / "split.spec.json", std::ios::trunc) << changed(spec, "\"cores\":", change);
    expect_sentence("report " + folder("A").string(), change);
    expect_sentence("compare " + folder("A").string() + " " + folder("B").string(), change);
  }
  std::ofstream(folder("A") / "split.spec.json", std::ios::trunc) << changed(spec, "\"cpu\":", "\"cpu\": 7,\n    \"was\":");
  expect_sentence("report " + folder("A").string(), "cpu");
}

TEST_F(Cli, ARunIsComparedWithTheSmallestDifferenceItCouldHaveSeen) {
  const std::string small = "lab run split --set dim=16 --time-limit 10ms --json - >/dev/null --out ";
  ASSERT_EQ(run(small + "A").code, 0);
  const std::string folder = fs::directory_iterator(folder_ / "A")->path().string();
  const std::string same = run("compare " + folder + " " + folder).out;
  EXPECT_NE(same.find("within the noise"), std::string::npos) << same;
  EXPECT_NE(same.find("would have been seen"), std::string::npos) << same;
}

TEST_F(Cli, OneSizeOfMessageMakesNoLaw) {
  const Outcome outcome = run("bench collectives --sizes 8:8 --time-limit 1ms --operations all_reduce");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("good fit"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("needs three sizes, and there is 1"), std::string::npos) << outcome.out;
  EXPECT_EQ(run("bench collectives --sizes 8:32 --time-limit 1ms --write-cluster x.toml").code, 2);
}

TEST_F(Cli, OneStepIsNoEvidenceOfASlowDevice) {
  for (int i = 0; i < 10; ++i) {
    const Outcome outcome = run("train --strategy ddp --devices cpu:2 --model mlp:dim=64,depth=2 --steps 2 --warmup 1 -q");
    EXPECT_EQ(outcome.out.find(" is slow:"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("other processes used"), std::string::npos) << "a step is too short to tell";
  }
}

TEST_F(Cli, SweepsWhatASpecAsksFor) {
  std::ofstream(folder_ / "mine.toml") << "title = \"Mine\"\n[job]\nmodel = \"mlp:dim=16,depth=2\"\ndevices = \"cpu:2\"\n"
                                          "[axes]\nstrategy = [\"dp\", \"ddp\"]\nbatch = [4, 8]\n";
  const Outcome outcome = run("lab run --spec mine.toml --time-limit 50ms --json -");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["rows"].size(), 4U);
  for (const char* text : {"[axes]\nspeed = [1]\n", "[axes]\n", "title = 3\n[axes]\nbatch=[1]\n", "[axes]\nbatch = 4\n", "nonsense",
                           "[axes]\nbatch = [4]\n[jobs]\nmodel = \"x\"\n"}) {
    std::ofstream(folder_ / "bad.toml", std::ios::trunc) << text;
    const Outcome refused = run("lab run --spec bad.toml");
    EXPECT_EQ(refused.code, 2) << text;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  EXPECT_EQ(run("lab run --spec nowhere.toml").code, 2);
}

TEST_F(Cli, RefusesWhatTheLaboratoryDoesNotHave) {
  for (const char* arguments :
       {"lab run alchemy", "lab run", "lab run split --set color=red", "lab run split --set dim", "lab run split --preset slow",
        "lab run split --devices tpu", "report nowhere", "compare nowhere nowhere"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(Cli, SaysThatAFolderCannotBeWritten) {
  const Outcome outcome = run("lab run split --out /proc/nowhere");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("cannot be made"), std::string::npos) << outcome.err;
}

TEST_F(Cli, EndsQuietlyWhenNobodyReadsOn) {
  const Outcome outcome = run("train --model mlp:dim=8,depth=1 --steps 200000 | head -n 3; exit ${PIPESTATUS:-0}");
  EXPECT_EQ(outcome.err.find("terminate"), std::string::npos) << outcome.err;
}

TEST_F(Cli, RefusesPlansThatAreNone) {
  std::ofstream(folder_ / "x.plan") << "hello\n";
  EXPECT_EQ(run("plan --file x.plan").code, 2);
  EXPECT_EQ(run("plan --file nowhere.plan").code, 2);
}

TEST_F(Cli, SaysBeforeTrainingThatAFileCannotBeWritten) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run("train --model mlp:dim=512,depth=4 --steps 100000 --json nowhere/result.json");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("nowhere/result.json cannot be written"), std::string::npos) << outcome.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(Cli, KeepsWhatIsDoneWhenInterrupted) {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    const std::string file = folder_ / "r.json";
    execl(BATON_PROGRAM, "baton", "train", "--model", "mlp:dim=64,depth=2", "--steps", "10000000", "--warmup", "2", "--json",
          file.c_str(), nullptr);
    _exit(127);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const json result = json::parse(contents(folder_ / "r.json"));
  EXPECT_GT(result["steps"], 2);
  EXPECT_LT(result["steps"], 10000000);
}

TEST_F(Cli, SaysWhereALossStoppedBeingANumber) {
  const Outcome outcome = run("train --model mlp:dim=16,depth=3 --lr 1e6 --steps 40");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("smaller --lr"), std::string::npos) << outcome.err;
}

TEST_F(Cli, PlanShowsWhichBlocksADeviceHasWhereTheyAreApart) {
  const Outcome outcome = run("plan --strategy interleaved --devices cpu:2 --model mlp:dim=8,depth=4");
  EXPECT_NE(outcome.out.find("cpu:0      0,2 "), std::string::npos) << outcome.out;
}

TEST_F(Cli, AnExperimentWithoutAResultEndsWithAFailure) {
  const Outcome outcome = run("lab run idle --set devices=5000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("baton: no point could be measured"), std::string::npos) << outcome.err;
}

TEST_F(Cli, ASchedulesFileCanBeHeldAgainstOthersInTheLaboratory) {
  std::ofstream(folder_ / "mine.csv") << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  const Outcome outcome = run(
      "lab run idle --set schedule=naive,mine.csv --set devices=2 --set model=mlp:dim=16,depth=2 --cluster ideal");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("mine.csv over 2 devices with 2 micro-batches"), std::string::npos) << outcome.out;
}

TEST_F(Cli, OfAFlagGivenTwiceTheLastCounts) {
  const Outcome outcome = run("plan --devices cpu:2 --strategy dp --strategy ddp");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("ddp of ")) << outcome.out;
  EXPECT_NE(run("lab run idle --set schedule=naive --set devices=2 --set model=mlp:dim=16,depth=2 --preset quick --cluster ideal")
                .out.find("1 point,"),
            std::string::npos)
      << "those that are repeatable still add up";
}

}  // namespace
