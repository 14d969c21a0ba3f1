/// What the program reads and writes, under the names and on the disks that users have.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/program.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using baton::test::Cli;
using baton::test::contents;
using baton::test::Outcome;

const std::string small = "--model mlp:dim=8,depth=2 --batch 8 ";
const std::string trains = "train " + small + "--steps 3 --warmup 1 -q ";

std::size_t lines(const std::string& text) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST_F(Cli, WritesThroughSymbolicLinksAndIntoStandardOutputsFile) {
  std::ofstream(folder_ / "real.json") << "old";
  fs::create_symlink("real.json", folder_ / "link.json");
  ASSERT_EQ(run(trains + "--json link.json").code, 0);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(json::parse(contents(folder_ / "real.json"))["steps"], 3);
  // As /dev/stdout is: a link to a link to what standard output is.
  fs::create_symlink("/proc/self/fd/1", folder_ / "standard");
  for (const char* name : {"standard", "/dev/stdout", "/dev/fd/1"}) {
    const Outcome outcome = run(trains + "--json " + name);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(json::parse(outcome.out)["steps"], 3) << "nothing else is printed there, as with -";
  }
  EXPECT_TRUE(fs::is_symlink(folder_ / "standard"));
}

TEST_F(Cli, RefusesTwoResultsForOnePlace) {
  for (const char* paths : {"--json - --trace -", "--json x --trace x", "--json x --trace ./x", "--json - --trace /dev/stdout"}) {
    const Outcome outcome = run(trains + paths);
    EXPECT_EQ(outcome.code, 2) << paths;
    EXPECT_NE(outcome.err.find("two results are to be written to"), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(folder_ / "x"));
  }
  EXPECT_EQ(run(trains + "--json /dev/null --trace /dev/null").code, 0);
}

TEST_F(Cli, FindsBeforeTheFirstStepWhatCannotBeWritten) {
  fs::create_directories(folder_ / "folder");
  const std::string long_one = "train " + small + "--steps 10000000 -q ";
  for (const char* where : {"--json folder", "--trace folder", "--json none/r.json", "--checkpoint /proc/none"}) {
    const Outcome outcome = run(long_one + where);
    EXPECT_EQ(outcome.code, 1) << where;
    EXPECT_EQ(lines(outcome.err), 1U) << outcome.err;
  }
}

TEST_F(Cli, SaysBeforeTheFirstStepThatNobodyReadsAPipe) {
  ASSERT_EQ(std::system(("mkfifo '" + (folder_ / "pipe").string() + "'").c_str()), 0);
  const Outcome outcome = run("train --model mlp:dim=8,depth=2 --steps 10000000 -q --json pipe");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "baton: pipe cannot be written: it is a pipe that nobody reads\n");
  // A reader that comes a little later gets the whole.
  const std::string read = "cd '" + folder_.string() + "' && { sleep 0.2; cat pipe >read; } & ";
  ASSERT_EQ(std::system((read + "true").c_str()), 0);
  EXPECT_EQ(run(trains + "--json pipe").code, 0);
  for (int tries = 0; tries < 50 && contents(folder_ / "read").find("\n}\n") == std::string::npos; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_NE(contents(folder_ / "read").find("\n}\n"), std::string::npos);
}

TEST_F(Cli, SaysThatStandardOutputIsFull) {
  for (const std::string command : {"simulate --cluster pcie-5 --strategy ddp", "strategies", "clusters", "--help", "train --help",
                                    "man", "--version", "lab list", "devices", "plan --model mlp:dim=8,depth=2 --text"}) {
    const std::string line = "cd '" + folder_.string() + "' && '" BATON_PROGRAM "' " + command + " >/dev/full 2>err; echo $? >code";
    ASSERT_EQ(std::system(line.c_str()), 0);
    EXPECT_EQ(contents(folder_ / "code"), "1\n") << command;
    EXPECT_EQ(contents(folder_ / "err"), "baton: standard output cannot be written: No space left on device\n") << command;
  }
  const std::string cut = "cd '" + folder_.string() +
                          "' && '" BATON_PROGRAM "' plan --model mlp:dim=8,depth=400 --text 2>err | head -n 1 >/dev/null";
  ASSERT_EQ(std::system(cut.c_str()), 0);
  EXPECT_EQ(contents(folder_ / "err"), "") << "whoever has seen enough is not told so";
}

TEST_F(Cli, SaysThatALogOfATrainingCannotBeWritten) {
  for (const std::string flag : {"--csv", "--json-lines"}) {
    const Outcome outcome = run("train --model mlp:4-3 --steps 3 --warmup 0 -q " + flag + " /dev/full");
    EXPECT_EQ(outcome.code, 1) << flag;
    EXPECT_NE(outcome.err.find("cannot write /dev/full"), std::string::npos) << outcome.err;
    EXPECT_EQ(lines(outcome.err), 1U) << outcome.err;
  }
}

TEST_F(Cli, KeepNeedsAFolder) {
  const Outcome outcome = run("train --model mlp:4-3 --steps 3 --warmup 0 -q --keep 3");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("--keep"), std::string::npos) << outcome.err;
}

TEST_F(Cli, AFileThatMayNotGrowIsAnErrorLikeAnyOther) {
  const std::string command = "cd '" + folder_.string() + "' && (ulimit -f 1; '" BATON_PROGRAM "' " + trains +
                              "--checkpoint kept --model mlp:dim=64,depth=2 2>err >/dev/null); echo $? >code";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(contents(folder_ / "code"), "1\n");
  EXPECT_NE(contents(folder_ / "err").find("File too large"), std::string::npos) << contents(folder_ / "err");
  EXPECT_TRUE(fs::is_empty(folder_ / "kept"));
}

TEST_F(Cli, RefusesArgumentsThatAreNoTextBeforeItWorks) {
  for (const char* flag : {"--checkpoint", "--json", "--trace"}) {
    const Outcome outcome = run("train --steps 100000000 " + std::string(flag) + " $(printf '\\377')");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "baton: '\\xff' is not UTF-8 text, but names and paths must be\n");
  }
  EXPECT_EQ(run(trains + "--json 'ä ö.json'").code, 0);
}

TEST_F(Cli, AnEmptyValueIsAnErrorAndNotADefault) {
  for (const char* flag : {"--checkpoint", "--json", "--dp", "--link", "--steps"}) {
    const Outcome outcome = run(trains + flag + " ''");
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_NE(outcome.err.find(std::string(flag) + ": is given, but empty"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run(trains + "--keep nan").code, 2) << "without --checkpoint too";
}

TEST_F(Cli, AFlagNeverTakesAnotherWordForItsMissingValue) {
  const auto refused = [&](const std::string& words, const std::string& sentence) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_EQ(outcome.err, "baton: " + sentence + "\n");
  };
  refused(trains + "--checkpoint= --keep 1", "--checkpoint is given, but empty");
  refused(trains + "--json=", "--json is given, but empty");
  refused("simulate --cluster= pcie-5", "--cluster is given, but empty");
  refused("lab --out= run all-devices", "--out is given, but empty");
  refused("bench collectives --sizes=", "--sizes is given, but empty");
  refused(trains + "--checkpoint -q", "--checkpoint needs a value, but -q follows: write --checkpoint=-q if that is the value");
  refused(trains + "--checkpoint --steps 3",
          "--checkpoint needs a value, but --steps follows: write --checkpoint=--steps if that is the value");
  refused(trains + "--json", "--json needs a value (FILE)");
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(run(trains + "--checkpoint=--keep").code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "--keep"));
}

TEST_F(Cli, NeedsNoFolderOfItsOwn) {
  for (const char* settings : {"HOME=/dev/null XDG_CACHE_HOME=/dev/null/cache", "HOME= XDG_CACHE_HOME= TMPDIR=/dev/null"}) {
    const Outcome outcome = run_with(settings, "simulate --model mlp:4-3 --batch 4");
    EXPECT_EQ(outcome.code, 0) << settings << ": " << outcome.err;
    const Outcome calibrated = run_with(settings, "calibrate --model mlp:4-3 --batch 4");
    EXPECT_EQ(calibrated.code, 0) << calibrated.err;
    EXPECT_NE(calibrated.out.find("none can be kept: "), std::string::npos) << calibrated.out;
  }
}

TEST_F(Cli, SavesAndResumesInTheMemoryOfTheLargestTensorBeyondThePlan) {
  // The largest tensor has 64 MiB.
  const std::string words = "train --model mlp:4096-4096 --batch 8 --warmup 0 -q --checkpoint kept ";
  const auto peak = [&](const std::string& arguments) {  // MiB
    const std::string command = "cd '" + folder_.string() + "' && exec '" BATON_PROGRAM "' " + arguments + " >out 2>err </dev/null";
    const pid_t child = fork();
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    rusage usage{};
    wait4(child, &status, 0, &usage);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << contents(folder_ / "err");
    return usage.ru_maxrss / 1024;
  };
  const long without = peak("train --model mlp:4096-4096 --batch 8 --warmup 0 -q --steps 2");
  EXPECT_LT(peak(words + "--steps 2"), without + 64 + 16);
  EXPECT_LT(peak(words + "--steps 4 --resume"), without + 64 + 16);
  EXPECT_EQ(fs::file_size(folder_ / "kept" / "step-000000000004.safetensors") >> 20, 64U);
  const Outcome limited = run("train --model mlp:4096-4096 --batch 8 --steps 100000 --checkpoint other --memory 100M");
  EXPECT_EQ(limited.code, 2);
  EXPECT_NE(limited.err.find("more to save checkpoints, but has 100 MiB"), std::string::npos) << limited.err;
}

TEST_F(Cli, RefusesABenchThatDoesNotFitBeforeItMeasures) {
  const Outcome outcome = run("bench collectives --sizes 8:1T --time-limit 1ms");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find(" but has "), std::string::npos) << outcome.err;
}

TEST_F(Cli, KeepsRunsOfOneFolderApart) {
  const std::string command = "cd '" + folder_.string() +
                              "' && for i in 1 2 3; do ('" BATON_PROGRAM
                              "' train --model mlp:dim=64,depth=2 --steps 400 --seed $i -q "
                              "--checkpoint kept --every 10 --keep 1 >/dev/null 2>>err; echo $? >>codes) & done; wait";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream codes(folder_ / "codes");
  int zeros = 0;
  for (int code = 0; codes >> code;) {
    EXPECT_TRUE(code == 0 || code == 2) << code;
    zeros += code == 0 ? 1 : 0;
  }
  EXPECT_GE(zeros, 1) << contents(folder_ / "err");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "kept"), fs::directory_iterator()), 1);
}

TEST_F(Cli, ShowsModelsWhoseNormsTakeSamplesTogetherAsThoseOfOneSample) {
  const Outcome alone = run("models resnet:18,image=32,classes=3,width=4");
  const Outcome grouped = run("models resnet:18,image=32,classes=3,width=4,group=4");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(grouped.code, 0) << grouped.err;
}

TEST_F(Cli, OneRunOfTheLaboratoryAtATimeWritesToAFolder) {
  const std::string sweep = "lab run strong-scaling --out o --time-limit 60s";
  const std::string command = "cd '" + folder_.string() + "' && { '" BATON_PROGRAM "' " + sweep +
                              " >/dev/null 2>&1 & run=$!; while [ -z \"$(ls o/*/*.spec.json 2>/dev/null)\" ]; do sleep 0.1; done; "
                              "timeout 20 '" BATON_PROGRAM "' " +
                              sweep + " --resume >out 2>err; code=$?; kill -9 $run; wait $run; exit $code; }";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(contents(folder_ / "err").find("another run writes its results to o/"), std::string::npos) << contents(folder_ / "err");
}

TEST_F(Cli, SaysWhatDiffersFromTheRunThatIsGoneOnFrom) {
  ASSERT_EQ(run(trains + "--optimizer adam --checkpoint kept").code, 0);
  const std::string again = "train --model mlp:dim=8,depth=2 --steps 5 --warmup 1 -q --checkpoint kept --resume ";
  const Outcome refused = run(again + "--batch 8 --optimizer adamw");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("trained with --optimizer adam, but this run has adamw"), std::string::npos) << refused.err;
  const Outcome outcome = run(again + "--batch 4 --optimizer adam --lr 0.5 --samples 12");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* words :
       {"note: --batch was 8 and is 4 since that checkpoint", "--lr was its default and is 0.5", "--samples was 0 and is 12"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << outcome.out;
  }
}

TEST_F(Cli, TakesFlagsOfTheLaboratoryBeforeRunToo) {
  const Outcome outcome = run("lab --cluster pcie-5 --out elsewhere run all-devices");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere"));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
  EXPECT_EQ(run("lab --cluster pcie-5 list").code, 2);
  const Outcome both = run("lab --cluster pcie-5 --set devices=1,3 run strong-scaling --set batch=48");
  EXPECT_NE(both.out.find("2 points"), std::string::npos) << both.out << "a --set before run counts together with one after it";
  EXPECT_NE(both.out.find("global batch 48"), std::string::npos) << both.out;
}

bool has_browser() { return std::system("command -v chromium >/dev/null || command -v google-chrome >/dev/null") == 0; }

TEST_F(Cli, PrintsWithoutAHomeAndLeavesNothingBehind) {
  if (!has_browser()) {
    GTEST_SKIP() << "there is no Chromium";
  }
  ASSERT_EQ(run("lab run strong-scaling --cluster pcie-5 --set devices=1 --out A").code, 0);
  const fs::path a = fs::directory_iterator(folder_ / "A")->path();
  fs::create_directory(folder_ / "tmp");
  const std::string temporary = "TMPDIR=" + (folder_ / "tmp").string();
  for (const std::string& settings : {"HOME=/dev/null XDG_CONFIG_HOME= " + temporary, "HOME=/proc " + temporary, temporary}) {
    fs::remove(a / "report.pdf");
    const Outcome outcome = run_with(settings, "report --pdf " + a.string());
    EXPECT_EQ(outcome.code, 0) << settings << ": " << outcome.err;
    EXPECT_TRUE(contents(a / "report.pdf").starts_with("%PDF")) << settings;
    EXPECT_TRUE(fs::is_empty(folder_ / "tmp"));
  }
}

TEST_F(Cli, TheArchiveOfAHandInIsWrittenThoughPrintingFails) {
  fs::create_directory(folder_ / "bin");
  std::ofstream(folder_ / "bin/chromium") << "#!/bin/sh\nexit 3\n";
  fs::permissions(folder_ / "bin/chromium", fs::perms::owner_all);
  const Outcome outcome = run_with("PATH=" + (folder_ / "bin").string() + ":$PATH", "handin practical8 --cluster pcie-5 --out H");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("There is no handin.pdf: chromium could not print H/handin.html as PDF"), std::string::npos)
      << outcome.out;
  EXPECT_TRUE(fs::exists(folder_ / "H/practical8.tar.gz"));
  EXPECT_FALSE(fs::exists(folder_ / "H/handin.pdf"));
}

TEST_F(Cli, AHandInIsNotContinuedAsThatOfAnotherSheet) {
  fs::create_directories(folder_ / "H/records");
  std::ofstream(folder_ / "H/records/sheet.txt") << "hw1 C\n";
  std::ofstream(folder_ / "H/handin.md") << "mine";
  EXPECT_EQ(run("handin practical8 --cluster pcie-5 --out H --resume").err,
            "baton: H holds the hand-in of hw1 C: give another folder with --out\n");
  const Outcome outcome = run("handin hw1 --cluster pcie-5 --option B --out H --resume");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "baton: H holds the hand-in of hw1 C: give --option C, or give another folder with --out\n");
  EXPECT_EQ(contents(folder_ / "H/handin.md"), "mine");
  EXPECT_EQ(run("handin").err.find("see baton handin --help") == std::string::npos, false);
}

TEST_F(Cli, AReportAndAComparisonSayWhichRecordsAreLeftOut) {
  for (const char* out : {"A", "B"}) {
    ASSERT_EQ(run(std::string("lab run strong-scaling --cluster pcie-5 --set devices=1,2 --out ") + out).code, 0);
  }
  const fs::path a = fs::directory_iterator(folder_ / "A")->path();
  const fs::path b = fs::directory_iterator(folder_ / "B")->path();
  const std::string name = fs::relative(a, folder_).string();
  const std::string compare = "compare " + a.string() + " " + b.string();
  EXPECT_EQ(run("report " + name).code, 0);
  EXPECT_EQ(run(compare).code, 0);
  std::string lines = contents(a / "strong-scaling.jsonl");
  const std::string left_out = "baton: 1 record of " + name + "/strong-scaling.jsonl is left out: line 1 is cut off or damaged\n";
  std::ofstream(a / "strong-scaling.jsonl", std::ios::trunc) << "{cut" << lines.substr(lines.find('\n'));
  const Outcome report = run("report " + name);
  EXPECT_EQ(report.code, 1);
  EXPECT_EQ(report.err, left_out);
  EXPECT_NE(report.out.find("1 of 2 points has no result: model=mlp:dim=1024,depth=2 batch=64 devices=1."), std::string::npos)
      << report.out;
  EXPECT_NE(contents(a / "report.md").find("line 1 is cut off or damaged"), std::string::npos) << "the report says so itself";
  EXPECT_EQ(run(compare).code, 1);
  const Outcome resumed = run("lab run strong-scaling --cluster pcie-5 --set devices=1,2 --resume --out A");
  EXPECT_EQ(resumed.code, 0);
  EXPECT_NE(resumed.out.find("line 1 is cut off or damaged; points without a record are measured again"), std::string::npos)
      << resumed.out;
  const Outcome again = run("report " + name);
  EXPECT_EQ(again.code, 0) << "no point is without a result";
  EXPECT_EQ(again.err, left_out);
  fs::remove(a / "strong-scaling.spec.json");
  std::ofstream(a / "split.spec.json") << R"({"points":[]})";
  const Outcome without = run("report " + name);
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.err.find("strong-scaling.jsonl is left out: strong-scaling.spec.json"), std::string::npos) << without.err;
}

TEST_F(Cli, SaysTheLimitOnRecordsBeforeALargeSweepIsMeasured) {
  std::ofstream spec(folder_ / "s.toml");
  spec << "[job]\nmodel=\"mlp:dim=8,depth=1\"\n[axes]\nseed=[1";
  for (int seed = 2; seed <= 2100; ++seed) {
    spec << "," << seed;
  }
  spec << "]\n";
  spec.close();
  const Outcome outcome = run("lab run --spec s.toml --cluster pcie-5 --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("at most 256 MiB of records: 125 KiB for each of the 2100 points of s"), std::string::npos)
      << outcome.err;
}

TEST_F(Cli, TakesFlagsOfABenchBeforeItsNameToo) {
  const Outcome outcome = run("bench --json - --sizes 8:8 collectives --time-limit 1ms --operations broadcast");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("{")) << outcome.out;
}

TEST_F(Cli, SaysWhereAFlagBeforeItsCommandBelongs) {
  EXPECT_EQ(run("--json - train").err, "baton: --json belongs after the command: baton train --json\n");
  EXPECT_EQ(run("-q train").err, "baton: -q belongs after the command: baton train -q\n");
}

TEST_F(Cli, RefusesFlagsThatAListWouldNotHeed) {
  EXPECT_EQ(run("models --parameters").err, "baton: --parameters shows those of one model: name it\n");
  EXPECT_EQ(run("handin list --cluster pcie-5").err, "baton: handin list takes no --cluster: leave it out\n");
  EXPECT_EQ(run("handin list").code, 0);
}

TEST_F(Cli, ChecksNothingWithoutAnAnswerOnlyIfNothingElseIsAsked) {
  for (const char* words : {"--json -", "--json marks.json", "--seed 3", "--csv marks.csv", "--exercise 01-spread-layers"}) {
    const Outcome outcome = run(std::string("check ") + words);
    EXPECT_EQ(outcome.code, 2) << words;
    EXPECT_NE(outcome.err.find("no answer to check"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run("check").code, 0);
  std::ofstream(folder_ / "answer.cpp") << "";
  EXPECT_NE(run("check answer.cpp --jobs 2").err.find("--jobs works only with --class"), std::string::npos);
}

TEST_F(Cli, AnswersFlagsOfOtherProgramsWithItsOwn) {
  EXPECT_EQ(run("train --model mlp:dim=8,depth=2 --batch-size 8 --steps 3 --warmup 1 -q").code, 0);
  EXPECT_EQ(run("plan --model mlp:dim=8,depth=2 --strategy mp --devices cpu:2").code, 0);
  EXPECT_NE(run("train --epochs 3").err.find("--steps"), std::string::npos);
  EXPECT_NE(run("train --nproc_per_node=2").err.find("baton launch -n 2"), std::string::npos);
  EXPECT_NE(run("train --devices gpu").err.find("GPUs are called cuda"), std::string::npos);
  EXPECT_NE(run("simulate --cluster dgx-a100 --devices 4").out.find("note: single uses"), std::string::npos);
  EXPECT_NE(run("train --help").out.find("0.01 for adamw"), std::string::npos);
}

TEST_F(Cli, TakesNamesOfDevicesAsTheyAreAndRefusesThoseThatSteerTerminals) {
  const auto cluster = [&](const std::string& name) {
    std::ofstream(folder_ / "c.toml")
        << "[device]\nname = " << name
        << "\ncount = 2\nmemory = \"1GiB\"\n[device.rates]\nf32 = \"1Tflop/s\"\n[port]\nbandwidth = \"1GB/s\"\n";
  };
  for (const char* name : {"'RTX 3090'", "'my \"gpu\" = 100 %'"}) {
    cluster(name);
    const Outcome text = run("plan " + small + "--cluster ./c.toml --devices 2 --strategy ddp --text");
    ASSERT_EQ(text.code, 0) << text.err;
    std::ofstream(folder_ / "p.plan") << text.out;
    EXPECT_EQ(run("plan --file p.plan --text").out, text.out);
    ASSERT_EQ(run("simulate " + small + "--cluster ./c.toml --devices 2 --strategy ddp --trace t.json").code, 0);
    EXPECT_TRUE(json::accept(contents(folder_ / "t.json"))) << name;
  }
  cluster("\"\\u001b[31mred\"");
  const Outcome refused = run("clusters ./c.toml");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ((refused.out + refused.err).find('\x1b'), std::string::npos);
}

TEST_F(Cli, RefusesRatesOfNoTypeAndRatesThatNothingEndsWith) {
  const auto rates = [&](const std::string& line) {
    std::ofstream(folder_ / "c.toml") << "[device]\ncount = 2\nmemory = \"1GiB\"\n[device.rates]\n"
                                      << line << "\n[port]\nbandwidth = \"1GB/s\"\n";
    return run("simulate " + small + "--cluster ./c.toml --devices 2 --strategy ddp");
  };
  EXPECT_EQ(rates("f32 = \"1Tflop/s\"").code, 0);
  const Outcome misspelt = rates("fp32 = \"1Tflop/s\"");
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_NE(misspelt.err.find("'fp32'"), std::string::npos) << misspelt.err;
  for (const Outcome& outcome :
       {rates("f32 = \"1e-20flop/s\""), run("simulate " + small + "--cluster pcie-4 --strategy ddp --link bandwidth=1e-17GB/s"),
        run(trains + "--strategy ddp --devices cpu:2 --link bandwidth=1e-18GB/s")}) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("would take longer than"), std::string::npos) << outcome.err;
  }
}

TEST_F(Cli, NamesTheRateThatAClusterLacks) {
  std::ofstream(folder_ / "c.toml")
      << "[device]\ncount = 2\nmemory = \"1GiB\"\n[device.rates]\nf16 = \"1Tflop/s\"\n[port]\nbandwidth = \"1GB/s\"\n";
  std::ofstream(folder_ / "none.toml") << "[device]\ncount = 2\nmemory = \"1GiB\"\n[port]\nbandwidth = \"1GB/s\"\n";
  for (const std::string& command :
       {"simulate " + small + "--strategy ddp --cluster ./c.toml", "search " + small + "--cluster ./c.toml",
        "simulate " + small + "--precision fp16 --cluster ./c.toml", "simulate " + small + "--cluster ./none.toml"}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 2) << command;
    EXPECT_NE(outcome.err.find("gives no rate for f32, in which a step in fp"), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(run("simulate " + small + "--cluster pcie-4 --precision fp64").err,
            "baton: the cluster pcie-4 gives no rate for f64, in which a step in fp64 computes: add f64 = \"...FLOP/s\" to "
            "[device.rates]\n");
  EXPECT_NE(run("simulate " + small + "--cluster dgx-v100 --precision bf16").err.find("no rate for bf16"), std::string::npos);
  EXPECT_NE(run("simulate --model gpt:depth=1,heads=2,dim=32,context=16,vocab=50 --batch 8 --precision bf16 --cluster dgx-a100 "
                "--software megatron-core+fp8")
                .err.find("no rate for f8"),
            std::string::npos);
  for (const char* precision : {"fp64", "fp32", "bf16", "fp16"}) {
    EXPECT_EQ(run("simulate " + small + "--cluster ideal --precision " + precision).code, 0) << precision;
  }
  EXPECT_EQ(run("plan " + small + "--cluster ./none.toml").code, 0) << "which needs no rates";
}

TEST_F(Cli, StopsAtTheStepWhoseLossIsNotFinite) {
  const Outcome outcome = run("train --model mlp:dim=16,depth=4 --lr 1000000 --steps 5000 --warmup 0 -q --json r.json");
  EXPECT_EQ(outcome.code, 1);
  const json losses = json::parse(contents(folder_ / "r.json"))["losses"];
  ASSERT_FALSE(losses.empty());
  EXPECT_TRUE(losses.back().is_null()) << "the last one is the first that is none";
  EXPECT_EQ(std::count(losses.begin(), losses.end(), nullptr), 1);
}

}  // namespace
