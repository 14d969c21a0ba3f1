/// What a step would cost, as a user asks for it.

#include <nlohmann/json.hpp>
#include <regex>

#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using baton::test::Cli;
using baton::test::contents;
using baton::test::Outcome;
using nlohmann::json;

class Simulate : public Cli {
 protected:
  json result_of(const std::string& arguments) const {
    const Outcome outcome = run(arguments + " --json -");
    EXPECT_EQ(outcome.code, 0) << arguments << ": " << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json();
  }
};

TEST_F(Simulate, GivesWhatTrainGivesAndSaysThatItIsSimulated) {
  for (const std::string strategy : {"single", "dp", "ddp", "layers", "1f1b", "zero-3", "tensor"}) {
    const std::string command = "simulate --model mlp:dim=64,depth=8 --strategy " + strategy +
                                " --cluster dgx-a100 --devices 4 --batch 64";
    const json result = result_of(command);
    EXPECT_EQ(result["origin"], "simulated") << strategy;
    EXPECT_GT(result["time_per_step_ns"], 0) << strategy;
    EXPECT_TRUE(result["losses"].empty());
    EXPECT_EQ(result["sensitivity"].size(), 3U);
    EXPECT_NE(result["costs"].get<std::string>().find("roofline"), std::string::npos);
    for (const char* key : {"command", "model", "strategy", "device_list", "global_batch", "time_per_step_ns", "transfers_forward",
                            "transfers", "sent_bytes", "critical_path", "environment"}) {
      EXPECT_TRUE(result.contains(key)) << strategy << " lacks " << key;
    }
    double path = 0;
    for (const auto& [kind, part] : result["critical_path"].items()) {
      path += part.get<double>();
    }
    EXPECT_NEAR(path, 1, 1e-9) << strategy;
    EXPECT_EQ(result["time_per_step_ns"], result_of(command)["time_per_step_ns"]) << "twice the same";
  }
}

TEST_F(Simulate, WritesATimelineWithItsOrigin) {
  ASSERT_EQ(run("simulate --strategy layers --cluster pcie-5 --devices 2 --trace t.json").code, 0);
  const json trace = json::parse(contents(folder_ / "t.json"));
  EXPECT_EQ(trace["otherData"]["origin"], "simulated");
  EXPECT_GT(trace["traceEvents"].size(), 10U);
}

TEST_F(Simulate, RefusesToWriteOutMoreDevicesThanThisMachineHasMemoryFor) {
  const Outcome outcome = run(
      "simulate --model gpt3-175b --cluster dgx-a100 --devices 65536 --dp 1024 --tp 8 --pp 8 --schedule 1f1b --micro-batches 64 "
      "--batch 65536 --precision bf16 --memory 1024G --fold never");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("about 1.8 billion tasks"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("use fewer devices or micro-batches (or leave out --fold never)"), std::string::npos) << outcome.err;
}

TEST_F(Simulate, StagesThatWorkOneAtATimeThoughThereAreMicroBatchesGetANote) {
  const std::string job = "simulate --cluster dgx-a100 --devices 4 --pp 4 --model mlp:dim=64,depth=8 --batch 64 ";
  const std::string note = "note: without --schedule the stages work one at a time";
  EXPECT_NE(run(job + "--micro-batches 8").out.find(note), std::string::npos);
  EXPECT_EQ(run(job + "--micro-batches 8 --schedule 1f1b").out.find(note), std::string::npos);
  EXPECT_EQ(run(job).out.find(note), std::string::npos);
}

TEST_F(Simulate, OneReplicaStandsForManyAndSaysTheSame) {
  const std::string command = "simulate --strategy ddp --cluster dgx-h100 --devices 256 --batch 256";
  const json folded = result_of(command);
  EXPECT_EQ(folded["device_list"].size(), 1U);
  EXPECT_EQ(folded["device_list"][0]["stands_for"], 256);
  const json whole = result_of(command + " --fold never");
  EXPECT_EQ(whole["device_list"].size(), 256U);
  EXPECT_EQ(whole["time_per_step_ns"], folded["time_per_step_ns"]);
  EXPECT_NE(run(command).out.find("each row stands for 256 identical devices"), std::string::npos);
}

TEST_F(Simulate, AClusterMayBeAFileOfOnesOwn) {
  std::ofstream(folder_ / "mine.toml") << "summary = 'mine'\n[device]\nname = 'box'\ncount = 3\nmemory = '1M'\n"
                                          "[device.rates]\nf32 = '1Gflop/s'\n[port]\nbandwidth = '1GB/s'\n";
  const json result = result_of("simulate --model mlp:dim=8,depth=3 --strategy layers --cluster mine.toml");
  EXPECT_EQ(result["device_list"][2]["name"], "box:2");
  const Outcome refused = run("simulate --model mlp:dim=512,depth=3 --strategy layers --cluster ./mine.toml");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("box:0 needs"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("has 1.00 MiB"), std::string::npos) << refused.err;
  EXPECT_NE(run("clusters mine.toml").out.find("3 box"), std::string::npos);
}

TEST_F(Simulate, ListsAndShowsClusters) {
  const Outcome list = run("clusters");
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char* name : {"machine", "ideal", "dgx-a100", "dgx-h100", "dgx-h200", "dgx-v100", "pcie-2", "pcie-4", "pcie-5",
                           "pcie-8", "laptop", "ethernet-1 ", "ethernet-10 ", "ethernet-25", "ethernet-100", "infiniband-400"}) {
    EXPECT_NE(list.out.find(name), std::string::npos) << name;
  }
  const Outcome one = run("clusters pcie-4+ethernet-10");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("1.25 GB/s"), std::string::npos) << one.out;
}

TEST_F(Simulate, TimesTheTasksOfThisMachineOnceAndKeepsThem) {
  const std::string job = " --model mlp:dim=16,depth=2 --strategy ddp --devices cpu:2 --batch 4";
  const Outcome first = run("calibrate" + job);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.out.find("linear"), std::string::npos) << first.out;
  EXPECT_NE(first.err.find("timing"), std::string::npos) << first.err;
  Outcome again = run("calibrate" + job);
  for (int more = 0; more < 8 && again.out.find("0 tasks timed now") == std::string::npos; ++more) {
    again = run("calibrate" + job);  // other work has disturbed some: those are timed again, or not kept
  }
  EXPECT_FALSE(fs::is_empty(folder_ / "cache" / "baton"));
  EXPECT_NE(again.out.find("0 tasks timed now"), std::string::npos) << again.out;
  EXPECT_EQ(again.err, "");
  const json result = result_of("simulate" + job);
  EXPECT_EQ(result["origin"], "simulated");
  EXPECT_NE(result["costs"].get<std::string>().find("timed by itself"), std::string::npos);
  EXPECT_NE(run("calibrate --again" + job).err.find("timing"), std::string::npos);
}

TEST_F(Simulate, PredictionsStandBesideMeasurementsWithTheirErrors) {
  const Outcome magic = run("predict --devices cpu:2 --set strategy=ddp,magic");
  EXPECT_EQ(magic.code, 2);
  EXPECT_NE(magic.err.find("unknown strategy 'magic'"), std::string::npos) << "before anything is measured: " << magic.err;
  const json result = result_of(
      "predict --model mlp:dim=32,depth=3 --batch 8 --devices cpu:2 --set strategy=ddp,layers,interleaved --time-limit 100ms");
  ASSERT_EQ(result["rows"].size(), 3U);
  for (std::size_t i = 0; i < 2; ++i) {
    const json& row = result["rows"][i];
    const double measured = row["time_per_step_ns"].get<double>();
    EXPECT_GT(measured, 0);
    EXPECT_NEAR(row["error"].get<double>(), row["simulated_ns"].get<double>() / measured - 1, 1e-9);
  }
  EXPECT_NE(result["rows"][2]["reason"].get<std::string>().find("over 4 stages"), std::string::npos);
  EXPECT_NE(result["details"][0].get<std::string>().find("Over 2 points the median"), std::string::npos);
}

TEST_F(Simulate, TheLaboratorySimulatesItsExperiments) {
  const json result = result_of("lab run strong-scaling --simulate --cluster dgx-a100 --set devices=1,4");
  ASSERT_EQ(result["rows"].size() % 2, 0U);
  for (const json& row : result["rows"]) {
    EXPECT_EQ(row["origin"], "simulated");
  }
  EXPECT_NE(result["command"].get<std::string>().find("--simulate --cluster dgx-a100"), std::string::npos);
  EXPECT_NE(result["command"].get<std::string>().find("--preset full"), std::string::npos) << "it takes no longer than quick";
  const Outcome refused = run("lab run timing --simulate --cluster ideal");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("losses"), std::string::npos) << refused.err;
}

TEST_F(Simulate, ExperimentsOnLossesShowTimesAndMemoryWithoutThem) {
  for (const std::string id : {"accumulate", "four-way-split", "precision"}) {
    const json result = result_of("lab run " + id + " --simulate --cluster dgx-a100");
    ASSERT_FALSE(result["rows"].empty()) << id;
    for (const json& row : result["rows"]) {
      EXPECT_GT(row["time_per_step_ns"], 0) << id;
      EXPECT_TRUE(row["losses"].empty()) << id;
    }
    EXPECT_FALSE(result["answers"].empty()) << id;
    EXPECT_EQ((result["answers"].dump() + result["details"].dump()).find("after ten steps"), std::string::npos)
        << result["answers"];
    EXPECT_EQ((result["answers"].dump() + result["details"].dump()).find("to the bit"), std::string::npos) << result["answers"];
  }
}

TEST_F(Simulate, PowersOfMatricesTakeThePrecisionsOfTheCluster) {
  const auto time_in = [&](const std::string& precision) {
    const json result = result_of("lab run matrix-power --simulate --cluster dgx-a100 --set devices=1 --set precision=" +
                                  precision);
    return result["rows"][0]["time_per_step_ns"].get<double>();
  };
  EXPECT_NEAR(time_in("fp32") / time_in("tf32"), 8, 0.1) << "19.5 and 156 TFLOP/s";
}

TEST_F(Simulate, ThisMachineMayBeWrittenInAnyCase) {
  const json result = result_of(
      "lab run delay --set model=mlp:dim=16,depth=2 --set delay_ms=0 --set devices=1 --cluster Machine --preset Quick");
  EXPECT_NE(result["command"].get<std::string>().find("--preset quick"), std::string::npos) << result["command"];
  EXPECT_NE(result["command"].get<std::string>().find("--cluster machine"), std::string::npos) << result["command"];
  EXPECT_EQ(result["rows"][0]["origin"], "simulated");
}

TEST_F(Simulate, AReportSaysWhatItIsSimulatedOnAndNothingOfThisMachinesNoise) {
  ASSERT_EQ(run("lab run strong-scaling --cluster pcie-5 --what-if link=2x").code, 0);
  const std::string text = contents(fs::directory_iterator(folder_ / "runs")->path() / "report.md");
  EXPECT_NE(text.find("simulated on pcie-5 (five RTX 3090"), std::string::npos) << text;
  EXPECT_NE(text.find("what if link=2x"), std::string::npos) << text;
  EXPECT_NE(text.find("\nall rows are simulated\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("the same computation, timed at every point"), std::string::npos) << text;
}

TEST_F(Simulate, TheWholeLaboratoryRunsOnAMachineThatIsNotHere) {
  const Outcome outcome = run("lab --cluster pcie-5");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\nall rows are simulated\n"), std::string::npos);
  EXPECT_EQ(outcome.out.find("(measured)"), std::string::npos);
}

TEST_F(Simulate, ASearchRanksSplitsAndGivesTheCommandOfTheBest) {
  const json result = result_of("search --model mlp:dim=128,depth=4 --cluster pcie-4 --batch 64 --optimizer adam");
  ASSERT_GT(result["ranked"].size(), 5U);
  EXPECT_EQ(result["frontier"][0], 0);
  EXPECT_EQ(result["origin"], "simulated");
  EXPECT_TRUE(result.contains("why_not_the_next"));
  const std::string command = result["ranked"][0]["command"].get<std::string>().substr(std::string("baton ").size());
  EXPECT_EQ(result_of(command)["time_per_step_ns"], result["ranked"][0]["time_per_step_ns"]) << command;
  const Outcome table = run("search --model mlp:dim=128,depth=4 --cluster pcie-4 --batch 64 --top 3");
  EXPECT_NE(table.out.find("Why not the next"), std::string::npos) << table.out;
}

TEST_F(Simulate, EverySplitThatASearchRanksRunsAsItsCommandSays) {
  const json result = result_of("search --model mlp:dim=64,depth=3 --cluster pcie-2 --batch 8 --optimizer adam --memory 140K");
  EXPECT_GT(result["too_large"], 0);
  ASSERT_GT(result["ranked"].size(), 2U);
  for (std::size_t i = 0; i < std::min<std::size_t>(5, result["ranked"].size()); ++i) {
    const std::string command = result["ranked"][i]["command"].get<std::string>().substr(std::string("baton ").size());
    EXPECT_EQ(result_of(command)["time_per_step_ns"], result["ranked"][i]["time_per_step_ns"]) << command;
    EXPECT_EQ(result["ranked"][i]["programs"].size(), 3U);
  }
}

TEST_F(Simulate, FitSaysWhichSplitsFitAndWhatMakesOneSmaller) {
  const json list = result_of("fit --model mlp:dim=128,depth=4 --cluster pcie-4 --batch 64 --optimizer adam --memory 1M");
  EXPECT_EQ(list["fits"], true);
  EXPECT_LE(list["smallest"][0]["peak_bytes"], 1 << 20);
  const json one = result_of(
      "fit --model mlp:dim=128,depth=4 --cluster pcie-4 --batch 64 --optimizer adam --strategy ddp --memory 700K");
  EXPECT_EQ(one["fit"]["fits"], false);
  EXPECT_LT(one["smaller"][0]["peak_bytes"], one["fit"]["peak_bytes"]);
  const Outcome table = run("fit --model mlp:dim=128,depth=4 --cluster pcie-4 --batch 64 --strategy ddp");
  EXPECT_NE(table.out.find("Yes, it fits"), std::string::npos) << table.out << table.err;
}

TEST_F(Simulate, FitSaysWhichStatesAreCountedAndWhatEverySplitNeeds) {
  const Outcome adam = run("fit --model llama3-8b --cluster dgx-h100 --devices 1 --batch 8 --optimizer adam --precision bf16");
  EXPECT_NE(
      adam.out.find("No: parameters and the states of adam alone need at least 89.7 GiB per device of 80.0 GiB in every split."),
      std::string::npos)
      << adam.out;
  const Outcome sgd = run("fit --model mlp:dim=1024,depth=4 --cluster pcie-4 --devices 1 --batch 4 --memory 1M");
  EXPECT_NE(sgd.out.find("for parameters alone (sgd has no states)"), std::string::npos) << sgd.out;
}

TEST_F(Simulate, SequencesOfTokensAreCountedInTokensPerSecondToo) {
  const std::string said = run("simulate --model gpt2 --cluster dgx-h100 --devices 1 --batch 1 --precision bf16").out;
  EXPECT_TRUE(std::regex_search(said, std::regex("[0-9.]+ samples/s, [0-9.]+ thousand tokens/s\n"))) << said;
}

TEST_F(Simulate, ADevicesMemoryIsSaidByTheFileOrTheCommand) {
  std::ofstream(folder_ / "bare.toml") << "[device]\ncount = 2\nmemory_bandwidth = '1TB/s'\n[device.rates]\nf32 = '1Tflop/s'\n"
                                          "[port]\nbandwidth = '1GB/s'\n";
  const std::string job = "simulate --model mlp:dim=8,depth=2 --strategy ddp --cluster ./bare.toml";
  const Outcome refused = run(job);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("does not say how much memory a device has"), std::string::npos) << refused.err;
  EXPECT_EQ(run(job + " --memory 1G").code, 0);
}

TEST_F(Simulate, AdviceOnMemoryLeavesOutWhatIsUsedAlready) {
  const std::string job = "simulate --model mlp:dim=2048,depth=8 --cluster pcie-4 --devices 2 --batch 8 --memory 8M --strategy ";
  EXPECT_NE(run(job + "ddp").err.find("recompute activations, or divide the model (ZeRO, pipelines"), std::string::npos);
  const std::string used = run(job + "zero-3 --recompute full").err;
  EXPECT_NE(used.find("use a smaller model or batch, or divide the model (pipelines, tensor parallelism)"), std::string::npos)
      << used;
}

TEST_F(Simulate, TheCommandThatASearchGivesCanBePasted) {
  const json best = result_of(
      "search --model mlp:dim=128,depth=4 --cluster pcie-2 --batch 64 "
      "--delay 'before=backward,device=0,ms=1' --delay 'before=update,device=0,ms=2'")["ranked"][0];
  const std::string command = best["command"].get<std::string>().substr(std::string("baton ").size());
  EXPECT_EQ(result_of(command)["time_per_step_ns"], best["time_per_step_ns"]) << command;
}

struct Bad {
  const char* arguments;
  const char* names;
};
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.arguments; }

class SimulateRefuses : public Cli, public testing::WithParamInterface<Bad> {};

TEST_P(SimulateRefuses, InOneSentenceWithExitCode2) {
  const Outcome outcome = run(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(GetParam().names), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, SimulateRefuses,
    testing::Values(
        Bad{"simulate --cluster cray", "unknown cluster 'cray'"}, Bad{"simulate --cluster ./none.toml", "cannot be read"},
        Bad{"simulate --cluster pcie-4 --devices 5 --strategy ddp", "4 devices"},
        Bad{"simulate --cluster ethernet-10", "network alone"}, Bad{"simulate --cluster pcie-4+pcie-2", "no network"},
        Bad{"simulate --cluster pcie-4 --what-if speed=2x", "--what-if"},
        Bad{"simulate --cluster pcie-4 --what-if compute=2", "2x"}, Bad{"simulate --cluster pcie-4 --fold maybe", "--fold"},
        Bad{"simulate --cluster pcie-2 --model mlp:dim=65536,depth=4", "needs"}, Bad{"train --cluster pcie-4", "baton simulate"},
        Bad{"train --what-if compute=2x", "baton simulate"}, Bad{"train --fold always", "baton simulate"},
        Bad{"plan --fold bogus", "--fold"}, Bad{"plan --what-if nonsense", "--what-if"},
        Bad{"calibrate --cluster pcie-4", "only this machine"}, Bad{"predict --cluster pcie-4", "leave out --cluster"},
        Bad{"predict --fold never", "--fold"}, Bad{"search --cluster pcie-4 --strategy ddp --zero 1", "--strategy"},
        Bad{"search", "--cluster"}, Bad{"fit", "--cluster"}, Bad{"fit --cluster pcie-4 --top 0", "--top"},
        Bad{"fit --cluster pcie-4 --strategy ddp --tp 3", "dp × pp × tp"}, Bad{"plan --export gltf plan", "chakra"},
        Bad{"search --cluster pcie-4 --top 0", "--top"},
        Bad{"search --cluster pcie-2 --memory 1M --model mlp:dim=2048,depth=2", "no split"}, Bad{"clusters cray", "dgx-a100"},
        Bad{"lab run strong-scaling --what-if compute=2x", "--simulate"}));

TEST_F(Cli, ValidateLeavesOutATableThatCannotBeReadAndSaysSo) {
  std::filesystem::create_directory(folder_ / "tables");
  const std::string row = "8,H100,64,8,";
  std::ofstream(folder_ / "tables/a.csv") << "model,gpus\n\"gpt2,8\n";
  std::ofstream(folder_ / "tables/b.csv") << "model,gpus,gpu,global_batch,micro_batch,iteration_s\ngpt2," << row << "0.03\n";
  const Outcome some = run("validate tables --page page.html");
  EXPECT_EQ(some.code, 1);
  EXPECT_NE(some.err.find("tables/a.csv is left out: line 2 of the table a begins a quoted cell"), std::string::npos) << some.err;
  EXPECT_NE(some.out.find("assumed for table b: sequence 1024, bf16, software megatron-core, cluster dgx-h100\n"),
            std::string::npos)
      << some.out;
  EXPECT_NE(some.out.find("1 published time, 1 simulated, 0 not"), std::string::npos) << some.out;
  std::ofstream(folder_ / "c.csv") << "model,gpus,gpu,global_batch,micro_batch,iteration_s\nabacus," << row << "1\n";
  const Outcome none = run("validate c.csv");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("none of the rows of the tables could be simulated"), std::string::npos) << none.err;
  EXPECT_EQ(run("validate c.csv --cluster nosuch").code, 2);
}

TEST_F(Cli, SaysWhoseDevicesAreTakenWhereThisMachinesAreNamed) {
  const std::string job = "simulate --model mlp:dim=8,depth=2 --strategy ddp --cluster dgx-a100 --devices ";
  EXPECT_NE(
      run(job + "cpu:2").out.find("\nnote: cpu:2 names devices of this machine; 2 devices of dgx-a100 are simulated instead\n"),
      std::string::npos);
  EXPECT_EQ(run(job + "2").out.find("note:"), std::string::npos);
}

}  // namespace
