/// `baton launch`, with a stand-in for mpirun that notes how it was called and ends as it is told.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/program.h"

namespace {

namespace fs = std::filesystem;

using baton::test::Cli;
using baton::test::contents;
using baton::test::Outcome;

class Launch : public Cli {
 protected:
  /// Writes the stand-in: probes of a host listed in `gone` fail; call k of the others ends with the k-th
  /// code, those after the last code with 0.
  void stand_in(const std::string& codes, const std::string& gone = "") const {
    std::ofstream script(folder_ / "mpirun");
    script << "#!/bin/bash\n"
              "if [[ ${*: -1} == true ]]; then\n"
              "  for host in "
           << gone
           << "; do [[ $* == *\"--host $host \"* ]] && exit 1; done\n"
              "  exit 0\n"
              "fi\n"
              "echo \"$*\" >>calls\n"
              "codes=("
           << codes
           << ")\n"
              "exit ${codes[$(wc -l <calls) - 1]:-0}\n";
    script.close();
    fs::permissions(folder_ / "mpirun", fs::perms::owner_all);
  }
  Outcome launch(const std::string& arguments) const { return run("launch --mpirun ./mpirun " + arguments); }
  std::vector<std::string> calls() const {
    std::vector<std::string> lines;
    std::ifstream file(folder_ / "calls");
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
    }
    return lines;
  }
};

const std::string job = "-- train --strategy ddp --checkpoint kept --every 5";

TEST_F(Launch, StartsTheRanksAndEndsAsTheyDo) {
  stand_in("0");
  const Outcome outcome = launch("-n 4 " + job);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(calls().size(), 1U);
  EXPECT_EQ(calls()[0].find("-n 4 "), 0U) << calls()[0];
  EXPECT_NE(calls()[0].find(" train --strategy ddp --checkpoint kept --every 5"), std::string::npos) << calls()[0];
  EXPECT_EQ(calls()[0].find("--resume"), std::string::npos) << calls()[0];
}

TEST_F(Launch, GoesOnFromTheLastCheckpointWhenARankIsLostAndSaysSo) {
  stand_in("75 137");
  ASSERT_EQ(run("train --model mlp:dim=8,depth=1 --batch 4 --steps 10 --checkpoint kept -q").code, 0);
  const Outcome outcome = launch("-n 2 " + job);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(calls().size(), 3U);
  EXPECT_NE(calls()[1].find(" --resume"), std::string::npos) << calls()[1];
  EXPECT_NE(outcome.err.find("baton launch: a rank was lost after "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("baton launch: restart 1 of 3 on 2 ranks, from kept/step-000000000010.safetensors\n"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("baton launch: a rank was ended by signal 9"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("baton launch: done after 2 restarts\n"), std::string::npos) << outcome.err;
}

TEST_F(Launch, AnInterruptedOneSaysHowToGoOn) {
  stand_in("130 130 130");
  Outcome outcome = launch("-n 2 --restarts 0 -- train --strategy ddp");
  EXPECT_EQ(outcome.code, 130);
  EXPECT_NE(outcome.err.find("it was interrupted after "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("; train has no --checkpoint, so nothing is kept\n"), std::string::npos) << outcome.err;
  outcome = launch("-n 2 " + job);
  EXPECT_NE(outcome.err.find("; no checkpoint was written yet\n"), std::string::npos) << outcome.err;
  ASSERT_EQ(run("train --model mlp:dim=8,depth=1 --batch 4 --steps 10 --checkpoint kept -q").code, 0);
  outcome = launch("-n 2 " + job);
  EXPECT_NE(
      outcome.err.find("; the newest checkpoint is kept/step-000000000010.safetensors, and this command continues from it: baton "
                       "launch --mpirun ./mpirun -n 2 " +
                       job + " --resume\n"),
      std::string::npos)
      << outcome.err;
  EXPECT_EQ(outcome.err.find("would not help"), std::string::npos) << outcome.err;
}

TEST_F(Launch, RestartsAreCounted) {
  stand_in("75 75 75 75 75");
  const Outcome outcome = launch("-n 2 --restarts 2 " + job);
  EXPECT_EQ(outcome.code, 75);
  EXPECT_EQ(calls().size(), 3U);
  EXPECT_NE(outcome.err.find("that was the last of 3 attempts; no checkpoint was written yet"), std::string::npos) << outcome.err;
}

TEST_F(Launch, WhatWouldEndAlikeIsNotTriedAgain) {
  for (const char* code : {"1", "2"}) {
    fs::remove(folder_ / "calls");
    stand_in(code);
    const Outcome outcome = launch("-n 2 " + job);
    EXPECT_EQ(std::to_string(outcome.code), code);
    EXPECT_EQ(calls().size(), 1U);
    EXPECT_NE(outcome.err.find("a restart would not help"), std::string::npos) << outcome.err;
  }
}

TEST_F(Launch, WithoutALostHostThereAreFewerRanks) {
  stand_in("75", "b");
  const Outcome outcome = launch("-n 4 --host a:2,b:2 " + job);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(calls().size(), 2U);
  EXPECT_NE(calls()[0].find("-n 4 "), std::string::npos) << calls()[0];
  EXPECT_NE(calls()[0].find("--host a:2,b:2 "), std::string::npos) << calls()[0];
  EXPECT_NE(calls()[1].find("-n 2 "), std::string::npos) << calls()[1];
  EXPECT_NE(calls()[1].find("--host a:2 "), std::string::npos) << calls()[1];
  EXPECT_NE(outcome.err.find("baton launch: b is lost: no process can be started there\n"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("restart 1 of 3 on 2 ranks"), std::string::npos) << outcome.err;
}

TEST_F(Launch, HostsAreReadFromAFileAsMpirunReadsIt) {
  stand_in("0");
  std::ofstream(folder_ / "hosts") << "# ours\na slots=3\n\nb slots=1 # small\n";
  EXPECT_EQ(launch("-n 4 --hostfile hosts " + job).code, 0);
  ASSERT_EQ(calls().size(), 1U);
  EXPECT_NE(calls()[0].find("--host a:3,b:1 "), std::string::npos) << calls()[0];
}

TEST_F(Launch, SaysInASentenceWhatItCannotDo) {
  stand_in("0");
  std::ofstream(folder_ / "hosts") << "a cores=3\n";
  struct Bad {
    const char* arguments;
    const char* words;
  };
  for (const Bad& bad :
       {Bad{"-n 2", "-- train"}, Bad{"-n 2 -- lab run", "-- train"}, Bad{"-n 2 -- train", "--checkpoint DIR --every N"},
        Bad{"-n 2 -- train --checkpoint kept", "--every N"}, Bad{"-n 0 -- train", "--ranks"},
        Bad{"-n 2 --host a:x --restarts 0 -- train", "slots"}, Bad{"-n 2 --host ,b --restarts 0 -- train", "empty name"},
        Bad{"-n 3 --host a,b --restarts 0 -- train", "do not fit"},
        Bad{"-n 2 --host a:2 --hostfile hosts --restarts 0 -- train", "not from both"},
        Bad{"-n 2 --hostfile hosts --restarts 0 -- train", "slots=N"},
        Bad{"-n 2 --hostfile nowhere --restarts 0 -- train", "nowhere"}}) {
    const Outcome outcome = launch(bad.arguments);
    EXPECT_EQ(outcome.code, 2) << bad.arguments;
    EXPECT_NE(outcome.err.find(bad.words), std::string::npos) << outcome.err;
    EXPECT_TRUE(calls().empty());
  }
  EXPECT_EQ(launch("-n 2 --restarts 0 -- train").code, 0) << "without restarts it needs no checkpoint";
}

TEST_F(Launch, IsDoneOnlyWhereTheLastStepAskedForWasSaved) {
  ASSERT_EQ(run("train --model mlp:dim=8,depth=1 --batch 4 --steps 30 --checkpoint kept -q").code, 0);
  for (const char* more : {" -n1000", " --steps 30 --steps 1000", " --steps=1000"}) {
    fs::remove(folder_ / "calls");
    stand_in("75");
    const Outcome outcome = launch("-n 2 " + job + more);
    EXPECT_EQ(outcome.err.find("all steps were done"), std::string::npos) << more << outcome.err;
    EXPECT_EQ(calls().size(), 2U) << more;
  }
  fs::remove(folder_ / "calls");
  stand_in("75");
  const Outcome done = launch("-n 2 " + job + " --steps 1000 -n 30");
  EXPECT_NE(done.err.find("all steps were done"), std::string::npos) << done.err;
  EXPECT_EQ(calls().size(), 1U);
}

TEST_F(Launch, WhatWasInterruptedIsNotStartedAgain) {
  stand_in("130");
  const Outcome outcome = launch("-n 2 " + job);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(calls().size(), 1U);
  EXPECT_NE(outcome.err.find("it was interrupted"), std::string::npos) << outcome.err;
}

TEST_F(Launch, HostsReachWhateverStartsTheRanks) {
  stand_in("0");
  fs::rename(folder_ / "mpirun", folder_ / "starter");
  ASSERT_EQ(run("launch --mpirun ./starter -n 2 --host a:1,b:1 " + job).code, 0);
  EXPECT_NE(calls()[0].find("--host a:1,b:1 "), std::string::npos) << calls()[0];
}

TEST_F(Launch, ASignalBetweenAttemptsEndsIt) {
  stand_in("75 0", "b");
  {
    std::ofstream script(folder_ / "mpirun");
    script << "#!/bin/bash\nif [[ ${*: -1} == true ]]; then kill -TERM $PPID; sleep 5; exit 1; fi\necho \"$*\" >>calls\nexit 75\n";
  }
  const Outcome outcome = launch("-n 4 --host a:2,b:2 " + job);
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  EXPECT_EQ(calls().size(), 1U) << outcome.err;
  EXPECT_EQ(outcome.err.find("is gone"), std::string::npos) << outcome.err;
}

TEST_F(Launch, WhatIsNotThereCannotBeStarted) {
  const Outcome outcome = run("launch --mpirun ./nothing -n 2 " + job);
  EXPECT_EQ(outcome.code, 127);
  EXPECT_NE(outcome.err.find("./nothing cannot be started"), std::string::npos) << outcome.err;
}

}  // namespace
