/// The first SIGINT, SIGTERM or SIGHUP ends any command within a second, a second one at once.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using baton::test::Cli;
using baton::test::contents;

/// On a machine that others use too.
constexpr double patience = 2.5;

struct Ended {
  int code = -1;  // -1: by a signal
  double seconds = 0;
  std::string out;
  std::string err;
};

class Signals : public Cli {
 protected:
  /// Starts it and sends the signals `after` this many seconds.
  Ended stop(const std::vector<std::string>& arguments, const std::vector<int>& signals, double after = 0.7) {
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(folder_.c_str()) != 0 || setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1) != 0) {
        _exit(126);
      }
      dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      std::vector<char*> words{const_cast<char*>("baton")};
      for (const std::string& argument : arguments) {
        words.push_back(const_cast<char*>(argument.c_str()));
      }
      words.push_back(nullptr);
      execv(BATON_PROGRAM, words.data());
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(after));
    const auto start = std::chrono::steady_clock::now();
    for (const int number : signals) {
      kill(child, number);
      std::this_thread::sleep_for(std::chrono::milliseconds(signals.size() > 1 ? 250 : 0));
    }
    int status = 0;
    waitpid(child, &status, 0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, took.count(), contents(folder_ / "out"), contents(folder_ / "err")};
  }
  bool has_leftovers() const {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".tmp") {
        return true;
      }
    }
    return false;
  }
};

TEST_F(Signals, EndWhateverIsUnderWay) {
  const std::vector<std::vector<std::string>> commands{
      {"train", "--model", "mlp:dim=8,depth=2", "--steps", "3", "--warmup", "0", "--delay", "before=forward,ms=60000"},
      {"train", "--model", "mlp:dim=8,depth=2", "--strategy", "ddp", "--devices", "cpu:2", "--link", "bandwidth=10B/s"},
      {"train", "--model", "mlp:dim=4096,depth=8", "--batch", "8192", "--warmup", "0", "-q"},
      {"train", "--model", "mlp:dim=1024,depth=8", "--batch", "4096", "--warmup", "0", "--backend", "reference", "-q"},
      {"simulate", "--model", "mlp:dim=1024,depth=512", "--strategy", "1f1b", "--cluster", "dgx-a100", "--devices", "128",
       "--batch", "65536", "--micro-batches", "1024"},
      {"calibrate", "--model", "mlp:dim=2048,depth=4", "--batch", "2048", "--strategy", "ddp", "--devices", "cpu:2"},
      {"simulate", "--model", "mlp:dim=2048,depth=4", "--batch", "2048", "--strategy", "ddp", "--devices", "cpu:2"},
      {"search", "--model", "mlp:dim=4096,depth=96", "--cluster", "dgx-a100", "--devices", "64", "--batch", "4096"}};
  const std::vector<int> signals{SIGINT, SIGTERM, SIGHUP};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const int number = signals[i % signals.size()];
    const Ended ended = stop(commands[i], {number});
    EXPECT_EQ(ended.code, 128 + number) << commands[i][0] << " " << i << ": " << ended.err;
    EXPECT_LT(ended.seconds, patience) << commands[i][0] << " " << i;
    EXPECT_NE(ended.err.find("baton: "), std::string::npos);
  }
  EXPECT_FALSE(has_leftovers());
}

TEST_F(Signals, EndASearchAtAnyMoment) {
  for (const double after : {0.1, 0.2, 0.3, 0.45, 1.0}) {
    const Ended ended = stop({"search", "--model", "llama3-70b", "--cluster", "dgx-a100", "--devices", "64", "--batch", "512"},
                             {SIGINT}, after);
    EXPECT_EQ(ended.code, 130) << "after " << after << " s: " << ended.err;
    EXPECT_LT(ended.seconds, patience);
    EXPECT_EQ(ended.err.find("no split"), std::string::npos) << ended.err;
  }
}

TEST_F(Signals, EndAStepThatTakesMinutes) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string out = "run-" + std::to_string(number);
    const Ended ended = stop({"lab", "run", "matrix-power", "--set", "size=8192", "--time-limit", "7200s", "--out", out}, {number},
                             4.0);
    EXPECT_EQ(ended.code, 128 + number) << ended.out << ended.err;
    EXPECT_LT(ended.seconds, patience);
    EXPECT_EQ(ended.out.find("would take about"), std::string::npos) << ended.out;
  }
  EXPECT_FALSE(has_leftovers());
}

TEST_F(Signals, ThatComeInADelayLeaveTheStateAfterTheLastWholeStep) {
  // The first step ends after two seconds, the second after four.
  const Ended ended = stop({"train", "--model", "mlp:dim=8,depth=2", "--steps", "100", "--warmup", "0", "--checkpoint", "kept",
                            "--delay", "before=backward,ms=2000"},
                           {SIGTERM}, 3.0);
  EXPECT_EQ(ended.code, 143) << ended.err;
  EXPECT_LT(ended.seconds, patience);
  EXPECT_NE(ended.err.find("interrupted after 1 of 100 steps"), std::string::npos) << ended.err;
  EXPECT_TRUE(fs::exists(folder_ / "kept" / "step-000000000001.safetensors")) << ended.err;
  const baton::test::Outcome again = run(
      "train --model mlp:dim=8,depth=2 --steps 3 --warmup 0 -q --checkpoint kept --resume --json -");
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(Signals, ThatComeInTheFirstStepSayThatNothingIsSaved) {
  const Ended ended = stop({"train", "--model", "mlp:dim=8,depth=2", "--steps", "3", "--warmup", "0", "--checkpoint", "kept",
                            "--delay", "before=update,ms=60000"},
                           {SIGINT}, 0.7);
  EXPECT_EQ(ended.code, 130);
  EXPECT_EQ(ended.err, "baton: stopped in the middle of a step, after 0 of 3; nothing is saved\n");
  EXPECT_TRUE(fs::is_empty(folder_ / "kept"));
}

TEST_F(Signals, ThatComeWhileWeightsChangeSayHowManyStepsWereWhole) {
  // A device that has come to the sum that an update applies may have begun to change weights.
  const Ended ended = stop({"train", "--model", "mlp:dim=8,depth=2", "--steps", "9", "--warmup", "0", "--checkpoint", "kept",
                            "--strategy", "ddp", "--devices", "cpu:2", "--delay", "before=backward,device=1,ms=2000"},
                           {SIGINT}, 3.0);
  EXPECT_EQ(ended.code, 130);
  EXPECT_NE(ended.err.find("baton: stopped in the middle of a step, after 1 of 9; nothing is saved\n"), std::string::npos)
      << ended.err;
}

TEST_F(Signals, AReaderThatReadsNothingKeepsNoProcess) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const int reader = open((folder_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  // It comes to an end of its own or by the signal, and then writes more than a pipe holds.
  for (const char* steps : {"20000", "10000000"}) {
    const Ended ended = stop({"train", "--model", "mlp:dim=8,depth=2", "--steps", steps, "-q", "--json", "pipe"}, {SIGTERM}, 1.5);
    EXPECT_EQ(ended.code, 143) << ended.err;
    EXPECT_LT(ended.seconds, patience);
  }
  close(reader);
}

TEST_F(Signals, ASecondOneEndsAtOnce) {
  const Ended ended = stop(
      {"train", "--model", "mlp:dim=8,depth=2", "--steps", "3", "--warmup", "0", "--delay", "before=forward,ms=60000"},
      {SIGINT, SIGINT});
  EXPECT_EQ(ended.code, 130);
  EXPECT_LT(ended.seconds, 1.0);
}

TEST_F(Signals, ThatWereIgnoredStayIgnored) {
  const std::string command =
      "cd '" + folder_.string() +
      "' && (trap '' HUP; '" BATON_PROGRAM
      "' train --model mlp:dim=8,depth=2 --steps 20 --warmup 0 -q --delay before=forward,ms=100 >/dev/null & "
      "sleep 0.6; kill -HUP $!; wait $!)";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
