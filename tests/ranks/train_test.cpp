#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "cli/program.h"
#include "unit/data/written.h"

/// The program under mpirun.
namespace baton::test {
namespace {

using Json = nlohmann::json;

class RanksTrain : public Cli {
 protected:
  /// `ranks` processes of one command; the last line of a test is what one process makes of the same devices.
  Outcome run_ranks(int ranks, const std::string& arguments) const {
    return start("-n " + std::to_string(ranks) + " '" BATON_PROGRAM "' " + arguments);
  }

  Outcome start(const std::string& arguments) const {
    const std::string command = "cd '" + folder_.string() + "' && '" BATON_MPIRUN "' ON '" BATON_MPIEXEC "' " + arguments +
                                " >out 2>err </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder_ / "out"), contents(folder_ / "err")};
  }

  /// Two ranks that are sent a signal `after` this many seconds, all or one of them.
  struct Stopped {
    int code = -1;
    int milliseconds = 0;  // until both had ended
    std::string err;
  };
  Stopped stop_ranks(const std::string& arguments, int signal, double after, const std::string& who) const {
    const std::string chosen = who == "all" ? "cat" : who == "first" ? "head -n 1" : "tail -n 1";
    const std::string command = "cd '" + folder_.string() +
                                "' && { '" BATON_MPIRUN "' ON '" BATON_MPIEXEC "' -n 2 '" BATON_PROGRAM "' " + arguments +
                                " >out 2>err & run=$!; sleep " + std::to_string(after) + "; begun=$(date +%s%N); kill -" +
                                std::to_string(signal) + " $(pgrep -P $run | " + chosen +
                                "); while ps --ppid $run -o stat= | grep -qv Z; do sleep 0.01; done; "
                                "echo $((($(date +%s%N) - begun) / 1000000)) >took; wait $run; } </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, std::stoi(contents(folder_ / "took")), contents(folder_ / "err")};
  }
  /// The steps of the newest checkpoint in `kept`; 0 if there is none.
  std::int64_t kept_step() const {
    std::int64_t step = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kept")) {
      EXPECT_EQ(entry.path().extension(), ".safetensors");
      step = std::max<std::int64_t>(step, std::stoll(entry.path().filename().string().substr(5)));
    }
    return step;
  }

  Json json(const std::string& name) const { return Json::parse(contents(folder_ / name)); }
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

/// A second, on a machine that others use too.
constexpr int in_time = 2500;

const std::string small = "train --model mlp:dim=64,depth=4 --batch 16 --steps 8 --warmup 2 ";

TEST_F(RanksTrain, RankZeroPrintsAndTheLossesAreThoseOfOneProcess) {
  const Outcome ranks = run_ranks(2, small + "--strategy ddp --json ranks.json --trace trace.json");
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(count(ranks.out, "Step time over 6 steps"), 1U) << ranks.out;
  EXPECT_EQ(count(ranks.out, "cpu:1 on core"), 1U) << ranks.out;
  EXPECT_NE(ranks.out.find("rank 1 on "), std::string::npos) << ranks.out;
  ASSERT_EQ(run(small + "--strategy ddp --devices cpu:2 --json one.json").code, 0);
  const Json result = json("ranks.json");
  EXPECT_EQ(result["losses"], json("one.json")["losses"]);
  EXPECT_EQ(result["sent_bytes"], json("one.json")["sent_bytes"]);
  EXPECT_EQ(result["ranks"].size(), 2U);
  EXPECT_EQ(result["ranks"][1]["devices"], Json::array({"cpu:1"}));
  EXPECT_EQ(result["ranks"][1]["clock_error_ns"], 0) << "one machine has one clock";
  for (const Json& device : result["device_list"]) {
    EXPECT_GT(device["busy"], 0.0) << "of both ranks it is known how busy their devices were";
    EXPECT_GT(device["peak_bytes"], 0);
  }
  std::set<int> devices;
  const Json trace = json("trace.json");
  for (const Json& event : trace["traceEvents"]) {
    devices.insert(event["pid"].get<int>());
  }
  EXPECT_EQ(devices, (std::set<int>{0, 1}));
}

TEST_F(RanksTrain, SeveralDevicesARankAreOneClusterInTheOrderOfTheRanks) {
  const Outcome ranks = run_ranks(2, small + "--strategy 1f1b --micro-batches 4 --devices cpu:2 --json ranks.json --quiet");
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  ASSERT_EQ(run(small + "--strategy 1f1b --micro-batches 4 --devices cpu:4 --json one.json").code, 0);
  const Json result = json("ranks.json");
  EXPECT_EQ(result["losses"], json("one.json")["losses"]);
  ASSERT_EQ(result["device_list"].size(), 4U);
  for (std::size_t d = 0; d < 4; ++d) {
    EXPECT_EQ(result["device_list"][d]["name"], "cpu:" + std::to_string(d));
    EXPECT_EQ(result["device_list"][d]["rank"], d / 2);
    EXPECT_EQ(result["device_list"][d]["peak_bytes"], json("one.json")["device_list"][d]["peak_bytes"]);
  }
}

TEST_F(RanksTrain, CheckpointsGoOnUnderAnyNumberOfRanksWithTheLossesOfARunThatWasNotCut) {
  const std::string job =
      "train --model mlp:dim=64,depth=4 --batch 12 --warmup 0 --optimizer adam --samples 60 --strategy "
      "zero-2 --quiet ";
  ASSERT_EQ(run(job + "--devices cpu:3 --steps 9 --json whole.json").code, 0);
  const Json whole = json("whole.json")["losses"];
  const auto tail = [&](std::size_t from) {
    return Json(std::vector<Json>(whole.begin() + static_cast<std::ptrdiff_t>(from), whole.end()));
  };

  Outcome outcome = run_ranks(3, job + "--steps 4 --checkpoint ranks --every 2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(count(outcome.out, "Checkpoint: "), 1U) << outcome.out;
  ASSERT_EQ(run(job + "--devices cpu:3 --steps 9 --checkpoint ranks --resume --json after.json").code, 0);
  EXPECT_EQ(json("after.json")["losses"], tail(4)) << "ranks, then one process";

  ASSERT_EQ(run(job + "--devices cpu:3 --steps 5 --checkpoint one").code, 0);
  outcome = run_ranks(3, job + "--steps 9 --checkpoint one --resume --json after.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json("after.json")["losses"], tail(5)) << "one process, then ranks";

  outcome = run_ranks(2,
                      "train --model mlp:dim=64,depth=4 --batch 12 --warmup 0 --optimizer adam --samples 60 "
                      "--strategy 1f1b --steps 12 --checkpoint one "
                      "--resume --quiet");
  EXPECT_EQ(outcome.code, 0) << "another strategy on another number of ranks: " << outcome.err;
}

TEST_F(RanksTrain, RowsThatOneRankCannotReadEndAllRanksWithOneSentence) {
  std::vector<std::uint16_t> tokens(401);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i * 7 % 11 % 8);
  }
  tokens[222] = 900;
  write_bytes(folder_ / "train.bin", packed(tokens));
  const std::string gpt =
      "train --model gpt:depth=1,heads=1,dim=8,context=4,vocab=8 --data train.bin --token-type uint16 --batch 4 --precision fp16 "
      "-q "
      "--strategy ddp --warmup 0 --epochs 1 ";
  const Outcome alone = run(gpt + "--devices cpu:2 --json one.json");
  ASSERT_EQ(alone.code, 2) << alone.err;
  const int steps = json("one.json")["steps"].get<int>();
  ASSERT_GT(steps, 0);
  // In the middle of a stretch between two checkpoints, and as the first step of one.
  for (const int every : {1000, steps}) {
    const std::string folder = "kept" + std::to_string(every);
    const Outcome ranks = run_ranks(2, gpt + "--json ranks.json --checkpoint " + folder + " --every " + std::to_string(every));
    EXPECT_NE(ranks.code, 0) << every;
    EXPECT_EQ(count(ranks.err, "900"), 1U) << ranks.err;
    EXPECT_EQ(json("ranks.json")["losses"], json("one.json")["losses"]) << every;
  }
}

TEST_F(RanksTrain, EachLoadsItsOwnRowsAndAllEvaluateTogether) {
  std::vector<std::uint16_t> tokens;
  for (int i = 0; i < 2000; ++i) {
    tokens.push_back(static_cast<std::uint16_t>(i * i % 13));
  }
  write_bytes(folder_ / "some.bin", llmc_shard(tokens, 20240520, 1));
  const std::string job =
      "train --model gpt:depth=2,heads=2,dim=16,context=8,vocab=13 --batch 12 --warmup 0 --data some.bin --eval-data some.bin "
      "--eval-every 5 --quiet --checkpoint kept --keep-best ";
  for (const std::string strategy : {"ddp", "1f1b"}) {
    std::filesystem::remove_all(folder_ / "kept");
    ASSERT_EQ(run(job + "--steps 8 --devices cpu:2 --json one.json --strategy " + strategy).code, 0);
    std::filesystem::remove_all(folder_ / "kept");
    const Outcome ranks = run_ranks(2, job + "--steps 8 --json ranks.json --strategy " + strategy);
    ASSERT_EQ(ranks.code, 0) << ranks.err;
    EXPECT_EQ(json("ranks.json")["losses"], json("one.json")["losses"]) << strategy;
    EXPECT_EQ(json("ranks.json")["eval_loss"], json("one.json")["eval_loss"]) << strategy;
    EXPECT_EQ(json("ranks.json")["eval_step"], Json({5, 8}));
  }
  const Outcome on = run_ranks(2, job + "--steps 11 --resume --json ranks.json --strategy zero-3");
  ASSERT_EQ(on.code, 0) << on.err;
  EXPECT_EQ(json("ranks.json")["losses"].size(), 3U);
}

TEST_F(RanksTrain, WhereTheResultCannotBeWrittenAllEndWithAndWithoutAWatch) {
  for (const std::string patience : {"0", "5"}) {
    const Outcome outcome = run_ranks(2, small + "--strategy ddp --quiet --json /dev/full --patience " + patience);
    EXPECT_EQ(outcome.code, 1) << outcome.out;
    EXPECT_NE(outcome.err.find("/dev/full cannot be written: No space left"), std::string::npos) << outcome.err;
  }
}

TEST_F(RanksTrain, WhatIsWrongOnAllRanksIsSaidOnce) {
  for (const std::string arguments :
       {"train --model nothing", "train --steps", "trains", "train --batch 0", "train --devices gpus"}) {
    const Outcome outcome = run_ranks(3, arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(count(outcome.err, "baton: "), 1U) << outcome.err;
  }
}

TEST_F(RanksTrain, WhatIsWrongOnRankZeroAloneEndsAllOfThem) {
  const Outcome outcome = run_ranks(2, small + "--json /nowhere/result.json");
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(count(outcome.err, "baton: "), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find("/nowhere/result.json"), std::string::npos) << outcome.err;
}

TEST_F(RanksTrain, RanksWithDifferentCommandsAreNamed) {
  const Outcome outcome = start("-n 1 '" BATON_PROGRAM "' " + small + "--strategy ddp : -n 2 '" BATON_PROGRAM "' " + small +
                                "--strategy ddp --optimizer adam");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("baton: ranks 1 and 2 have another --optimizer than rank 0: start all ranks with the same command\n"),
            std::string::npos)
      << outcome.err;
}

TEST_F(RanksTrain, RanksThatWereToldSomethingElseBesideThePlanAreNamedWithTheFlag) {
  struct Other {
    std::string flag;
    std::string words;
  };
  for (const Other& other :
       {Other{"--steps", "--steps 9"}, Other{"--warmup", "--warmup 3"}, Other{"--checkpoint", "--checkpoint kept"},
        Other{"--patience", "--patience 0"}, Other{"--link", "--link bandwidth=1GB/s"}, Other{"--backend", "--backend reference"},
        Other{"--delay", "--delay before=forward,ms=1"}, Other{"--json", "--json r.json"}, Other{"--trace", "--trace t.json"},
        Other{"--csv", "--csv log.csv"}, Other{"--report", "--report r.html"}}) {
    const std::string first = "'" BATON_PROGRAM "' train --model mlp:dim=64,depth=4 --batch 16 --strategy ddp ";
    const Outcome outcome = start("-n 1 " + first + ": -n 2 " + first + other.words);
    EXPECT_EQ(outcome.code, 2) << other.words;
    EXPECT_EQ(count(outcome.err,
                    "baton: ranks 1 and 2 have another " + other.flag + " than rank 0: start all ranks with the same command\n"),
              1U)
        << outcome.err;
  }
}

TEST_F(RanksTrain, ARankThatIsAloneWithItsTroubleEndsTheOthersAndNamesItself) {
  const Outcome outcome = start("-n 1 '" BATON_PROGRAM "' " + small + "--strategy ddp : -n 1 '" BATON_PROGRAM "' " + small +
                                "--strategy ddp --devices nothing");
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("baton: rank 1 (pid "), std::string::npos) << outcome.err;
}

TEST_F(RanksTrain, CommandsThatRunInOneProcessSaySo) {
  for (const std::string command : {"lab list", "plan", "simulate", "devices"}) {
    const Outcome outcome = run_ranks(2, command);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("runs in one process: start it without mpirun or srun"), std::string::npos) << outcome.err;
    EXPECT_EQ(count(outcome.err, "baton: "), 1U) << outcome.err;
  }
}

/// As a batch system does when the time is up.
TEST_F(RanksTrain, ARankThatIsToldToEndEndsAllAfterTheSameStepAndACheckpointIsLeft) {
  const std::string command = "cd '" + folder_.string() +
                              "' && { '" BATON_MPIRUN "' ON '" BATON_MPIEXEC "' -n 2 '" BATON_PROGRAM
                              "' train --model mlp:dim=64,depth=2 --strategy ddp --batch 8 --steps 10000000 "
                              "--checkpoint kept >out 2>err & "
                              "for i in $(seq 100); do sleep 0.1; grep -q warm-up out && break; done; "
                              "kill -TERM $(pgrep -P $! | tail -n 1); wait $!; } </dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM) << contents(folder_ / "err");
  EXPECT_EQ(count(contents(folder_ / "err"), "baton: interrupted after "), 1U) << contents(folder_ / "err");
  EXPECT_EQ(count(contents(folder_ / "out"), "Checkpoint: kept/step-"), 1U);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "kept"));
}

TEST_F(RanksTrain, ASignalInAStepThatTakesLongSavesWhatTheStepBeforeLeft) {
  // The first step ends after three seconds, the second after six. Rank 0 hears of it from rank 1.
  const Stopped stopped = stop_ranks(
      "train --model mlp:dim=16,depth=2 --strategy ddp --batch 8 --steps 100 --warmup 0 -q --checkpoint kept "
      "--delay before=backward,ms=3000",
      SIGTERM, 5.0, "last");
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  EXPECT_LT(stopped.milliseconds, in_time);
  EXPECT_EQ(count(stopped.err, "baton: interrupted after 1 of 100 steps"), 1U) << stopped.err;
  EXPECT_EQ(count(stopped.err, "baton: "), 1U) << stopped.err;
  EXPECT_EQ(kept_step(), 1);
}

TEST_F(RanksTrain, ASignalAtAnyMomentLeavesACheckpointThatGoesOnAsIfThereHadBeenNone) {
  std::mt19937 random(17);
  const auto draw = [&](const auto& list) { return *(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size())); };
  for (int trial = 0; trial < 4; ++trial) {
    const std::string strategy = draw(std::array<const char*, 6>{"ddp", "layers", "1f1b", "tensor", "zero-3", "dp"});
    const std::string job = "train --model mlp:dim=16,depth=4 --batch 8 --optimizer adam --samples 80 --warmup 0 -q --strategy " +
                            strategy;
    const std::string delay = std::string(" --delay before=") + draw(std::array<const char*, 3>{"forward", "backward", "update"}) +
                              ",device=" + draw(std::array<const char*, 3>{"0", "1", "all"}) +
                              ",ms=" + draw(std::array<const char*, 5>{"1", "20", "200", "700", "3000"});
    const int signal = draw(std::array<int, 3>{SIGINT, SIGTERM, SIGHUP});
    const double after = 0.2 + 2.3 * static_cast<double>(random() % 1000) / 1000;
    const std::string who = draw(std::array<const char*, 3>{"all", "first", "last"});
    const std::string words = job + delay + " --steps 300 --checkpoint kept" + (random() % 2 == 0 ? " --every 3" : "");
    SCOPED_TRACE(words + ", signal " + std::to_string(signal) + " to " + who + " after " + std::to_string(after));
    std::filesystem::create_directory(folder_ / "kept");
    const Stopped stopped = stop_ranks(words, signal, after, who);
    const std::int64_t kept = kept_step();
    if (kept < 300) {
      EXPECT_EQ(stopped.code, 128 + signal) << stopped.err;
      EXPECT_LT(stopped.milliseconds, in_time);
    }
    if (kept > 0) {
      const std::string steps = " --steps " + std::to_string(kept + 2);
      ASSERT_EQ(run(job + " --devices cpu:2 --json whole.json" + steps).code, 0);
      ASSERT_EQ(run(job + " --devices cpu:2 --json after.json --checkpoint kept --resume" + steps).code, 0);
      const Json whole = json("whole.json")["losses"];
      EXPECT_EQ(json("after.json")["losses"],
                (Json{whole[static_cast<std::size_t>(kept)], whole[static_cast<std::size_t>(kept) + 1]}));
    }
    std::filesystem::remove_all(folder_ / "kept");
  }
}

TEST_F(RanksTrain, WhereThereIsNoGpuThatIsSaidOnce) {
  if (run("train --steps 2 --warmup 1 --devices cuda").code == 0) {
    GTEST_SKIP() << "there is a GPU here";
  }
  const Outcome outcome = run_ranks(2, small + "--devices cuda");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(count(outcome.err, "baton: "), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find("use --devices cpu"), std::string::npos) << outcome.err;
}

TEST_F(RanksTrain, RanksOnPartsOfOneGpuHaveTheLossesOfOneProcessAndSayThatTheyShareIt) {
  if (run("train --steps 2 --warmup 1 --devices cuda").code != 0) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const Outcome ranks = run_ranks(2, small + "--strategy ddp --devices cuda:0/2:1 --json ranks.json");
  ASSERT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_EQ(count(ranks.out, "note: 2 ranks share a GPU"), 1U) << ranks.out;
  ASSERT_EQ(run(small + "--strategy ddp --devices cuda:0/2 --json one.json").code, 0);
  EXPECT_EQ(json("ranks.json")["losses"], json("one.json")["losses"]);
  EXPECT_EQ(json("ranks.json")["gpus"].size(), 2U);
}

TEST_F(RanksTrain, WhoWaitsForASlowLinkThatIsEmulatedIsNotTakenForHung) {
  for (const std::string words : {"-n 2 ddp", "-n 3 layers"}) {
    const Outcome outcome = start(words.substr(0, 5) +
                                  "'" BATON_PROGRAM "' train --model mlp:dim=64,depth=4 --batch 16 --steps 1 " +
                                  "--warmup 0 --patience 1 --link latency=3000ms -q --strategy " + words.substr(5));
    EXPECT_EQ(outcome.code, 0) << words << ": " << outcome.err;
  }
}

TEST_F(RanksTrain, HelpIsShownOnce) {
  const Outcome outcome = run_ranks(2, "train --help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(count(outcome.out, "--micro-batches"), 1U);
}

}  // namespace
}  // namespace baton::test
