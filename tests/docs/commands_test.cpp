/// Every command of the documents is run, and what a document shows below a prompt is what the program
/// prints.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>

#include "baton/base/text.h"
#include "baton/lab/experiment.h"
#include "docs/documented.h"
#include "support/contents.h"
#include "support/own_folder.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

/// Small values for axes that make an experiment long; `memory` has cases that are not sizes.
const std::vector<std::pair<std::string, std::string>> small_values{
    {"model", "mlp:dim=64,depth=8"}, {"dim", "64"}, {"case", "64x2,128x2"}, {"size", "64"}, {"delay_ms", "0,5"}};

/// What Open MPI wants to be told where one is root, or has fewer cores than ranks. It keeps what it took until the end, which a
/// sanitizer would call a leak.
constexpr const char* for_ranks =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
    "OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0";

/// `./baton` and `baton` are one program.
std::string canonical_program(const std::string& command) { return command.starts_with("./") ? command.substr(2) : command; }

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  for (const std::string_view word : split(command, ' ')) {
    if (!word.empty()) {
      words.emplace_back(word);
    }
  }
  return words;
}

/// Few steps; a run that continues from a checkpoint does some more, so that it has done as many as it should.
std::string briefly_trained(const std::string& command) {
  static const std::regex length(" --(steps|epochs) ([0-9]+)[0-9.]*");
  std::smatch found;
  const bool known = std::regex_search(command, found, length);
  const bool goes_on = known && command.find(" --resume") != std::string::npos;
  const std::string few = fmt::format(" --steps {}", goes_on ? 7 + std::stoi(found[2]) / 50 : 7);
  return known ? std::regex_replace(command, length, few) : command + few;
}

/// The experiments that are named, for a short time and with small values.
std::string briefly_measured(const std::string& command) {
  const std::vector<std::string> words = words_of(command);
  static const std::regex sizes("(--set '?(model=mlp:dim|batch)=)[0-9]+");
  std::string quick = std::regex_replace(command, sizes, "$0164") + " --time-limit 1ms";
  for (std::size_t w = 3; w < words.size(); ++w) {
    if (words[w] == "full" && words[w - 1] == "--preset") {
      quick += " --preset quick";  // the last one counts
    }
    for (const lab::Experiment& experiment : lab::experiments()) {
      for (const lab::Axis& axis : experiment.axes) {
        for (const auto& [name, values] : small_values) {
          if (experiment.id == words[w] && experiment.id != "memory" && axis.name == name &&
              command.find(" " + name + "=") == std::string::npos) {
            quick += fmt::format(" --set '{}={}'", name, values);
          }
        }
      }
    }
  }
  return quick;
}

/// The command as the test runs it: few steps are trained, experiments are measured briefly and on small models. The laboratory as
/// a whole is measured an experiment at a time, for each has small values of its own; simulated, it is run as it stands. Where a
/// text only names a command that wants words of its own, that there is such a command is all it says.
std::string stand_in(const std::string& documented) {
  static const std::regex before_the_program("^(time +)?(\\S*/)?baton ");
  const std::string command = std::regex_replace(documented, before_the_program, "baton ");
  static const std::set<std::string> named{
      "baton launch", "baton report", "baton bench collectives", "baton export", "baton evaluate", "baton sample", "baton tokens"};
  if (named.contains(command)) {
    return command + " --help";
  }
  if (command == "baton lab") {
    std::string each;
    for (const lab::Experiment& experiment : lab::experiments()) {
      each += (each.empty() ? "" : " && ") + briefly_measured(command + " run " + experiment.id);
    }
    return each;
  }
  if (command.starts_with("baton lab run ")) {
    return briefly_measured(command);
  }
  const bool trains = command.starts_with("baton train ") ||
                      (is_for_ranks(command) && command.find(" train ") != std::string::npos);
  return trains ? briefly_trained(command) : command;
}

class Documents : public OwnFolder {
 protected:
  void SetUp() override {
    OwnFolder::SetUp();
    fs::create_symlink(BATON_PROGRAM, folder_ / "baton");
    fs::create_directory_symlink(fs::path(BATON_SOURCE) / "experiments", folder_ / "experiments");
    two_cores();
  }

  /// The faults of the commands of a document, one sentence per fault. A command without output below it is run once, at its first
  /// place.
  std::vector<std::string> faults(const std::string& markdown) {
    std::vector<std::string> sentences;
    std::size_t slow = 0;
    std::set<std::string> known;
    const std::vector<Documented> all = documented(markdown);
    for (const Documented& one : all) {
      const std::string reason = why_not(one);
      if (!reason.empty()) {
        fmt::print("not run ({}), line {}: {}\n", reason, one.line, one.command);
        slow += reason == "slow" ? 1 : 0;
        continue;
      }
      if (!is_programs(one.command)) {
        sentences.push_back(fmt::format("line {}: {}\nis run by no test: above it say why, as in <!-- not run: bench --> (or {})",
                                        one.line, one.command, fmt::join(reasons(), ", ")));
        continue;
      }
      if (!known.insert(canonical_program(one.command)).second && one.output.empty()) {
        fmt::print("run before, line {}: {}\n", one.line, one.command);
        continue;
      }
      ++run_;
      const auto begin = std::chrono::steady_clock::now();
      const std::string fault = fault_of(one);
      fmt::print("{:.1f} s, line {}: {}\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                 one.line, one.command);
      if (!fault.empty()) {
        sentences.push_back(fmt::format("line {}: {}\n{}", one.line, one.command, fault));
      }
    }
    if (slow > 1 + all.size() / 10) {
      sentences.push_back(fmt::format("{} of {} commands are marked slow: too many to trust the rest", slow, all.size()));
    }
    return sentences;
  }

  std::size_t run_ = 0;

 private:
  /// Why the command is not run; empty: it is.
  static std::string why_not(const Documented& one) {
    if (is_form(one.command)) {
      return "a form";
    }
    if (is_launchers(one.command)) {
      return "the launcher's";
    }
    for (const std::string& reason : one.not_run) {
      if (holds_for(reason, one.command)) {
        return reason;
      }
    }
    return is_for_ranks(one.command) && !BATON_HAS_MPI ? "built without MPI" : "";
  }

  /// Output is compared as on two cores, by which workspaces is counted.
  void two_cores() {
    cpu_set_t allowed;
    cpu_set_t two;
    CPU_ZERO(&two);
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
      if (CPU_ISSET(core, &allowed)) {
        CPU_SET(core, &two);
      }
    }
    comparable_ = CPU_COUNT(&two) == 2;
    ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  }

  std::string fault_of(const Documented& one) const {
    const std::string command = fmt::format(
        "cd '{}' && export PATH=\"$PWD:$PATH\" XDG_CACHE_HOME=\"$PWD/cache\" {} && ({}) >out 2>&1 </dev/null", folder_.string(),
        for_ranks, stand_in(one.command));
    const int status = std::system(command.c_str());
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const std::string out = contents(folder_ / "out");
    const bool refused = !one.output.empty() && one.output.front().starts_with("baton: ");
    if (refused == (code == 0)) {
      return fmt::format("ended with {} where the document shows {}:\n{}", code, refused ? "a refusal" : "none", out);
    }
    std::size_t from = 0;
    for (const std::string& line : one.output) {
      if (!comparable_ || one.measured || line.empty() || line == "...") {
        continue;
      }
      const std::size_t found = ("\n" + out).find("\n" + line + "\n", from);
      if (found == std::string::npos) {
        return fmt::format("does not print (or not there) the line\n{}\nbut\n{}", line, out);
      }
      from = found + line.size();
    }
    return {};
  }

  bool comparable_ = false;
};

class EveryCommand : public Documents, public testing::WithParamInterface<fs::path> {};

TEST_P(EveryCommand, WorksOrSaysWhyItIsNotRun) {
  for (const std::string& sentence : faults(contents(GetParam()))) {
    ADD_FAILURE() << GetParam() << ", " << sentence;
  }
}

/// Documents without a command are left out, "docs/add-a-block.md" becomes docs_add_a_block.
std::vector<fs::path> with_commands() {
  std::vector<fs::path> list = documents();
  std::erase_if(list, [](const fs::path& path) { return documented(contents(path)).empty(); });
  return list;
}
INSTANTIATE_TEST_SUITE_P(Of, EveryCommand, testing::ValuesIn(with_commands()), [](const auto& document) {
  std::string name = document.param.lexically_relative(BATON_SOURCE).replace_extension();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char sign) { return std::isalnum(sign) == 0; }, '_');
  return name;
});

TEST_F(Documents, ACommandThatFailsIsAFault) {
  EXPECT_EQ(faults("See `./baton lab run alchemy`.").size(), 1U);
  EXPECT_EQ(faults("```\n./baton train --stepz 3\n```\n").size(), 1U);
  EXPECT_EQ(faults("```\n$ ./baton devices --devices tpu\n```\n").size(), 1U);
  EXPECT_EQ(faults("```\n$ ./baton devices\n```\nand `baton lab list`").size(), 0U);
  EXPECT_EQ(run_, 5U);
}

TEST_F(Documents, OutputThatIsNotPrintedIsAFaultUnlessItIsOfOneRun) {
  const std::string right = "```\n$ ./baton devices --devices cpu:2 --json -\n{\n  \"devices\": [\n...\n}\n```\n";
  EXPECT_EQ(faults(right).size(), 0U);
  const std::string wrong = "```\n$ ./baton devices --devices cpu:2 --json -\n  \"devices\": [\n{\n```\n";
  EXPECT_EQ(faults(wrong).size(), 1U) << "these lines are printed in another order";
  EXPECT_EQ(faults("<!-- measured -->\n" + wrong).size(), 0U);
}

TEST_F(Documents, ACommandThatStandsThereAgainIsRunAgainOnlyForItsOutput) {
  EXPECT_EQ(faults("`./baton lab list`, `baton lab list` and\n\n```\n./baton lab list\n```\n").size(), 0U);
  EXPECT_EQ(run_, 1U);
  EXPECT_EQ(faults("`baton lab list`\n\n```\n$ baton lab list\nno such line\n```\n").size(), 1U);
  EXPECT_EQ(run_, 3U);
}

TEST_F(Documents, ARefusalThatIsShownMustHappen) {
  EXPECT_EQ(
      faults("```\n$ ./baton plan --file nowhere\nbaton: the plan nowhere cannot be read: No such file or directory\n```\n").size(),
      0U);
  EXPECT_EQ(faults("```\n$ ./baton devices\nbaton: no\n```\n").size(), 1U);
  EXPECT_EQ(faults("```\n$ ./baton plan --file nowhere\nbaton: something else\n```\n").size(), 1U);
}

TEST_F(Documents, AreNotRunWhereTheyAreFormsOrSlowOrTheLaunchers) {
  EXPECT_EQ(faults("`./baton lab run ID`, `./baton test`\n\n<!-- not run: slow -->\n`./baton lab run alchemy`\n").size(), 0U);
  EXPECT_EQ(run_, 0U);
  EXPECT_EQ(faults("<!-- not run: slow -->\n`./baton x`, `./baton y`, `./baton z`\n").size(), 1U) << "nearly all is left out";
}

TEST_F(Documents, AnUnmarkedCommandThatNoTestRunsIsAFault) {
  for (const char* command : {"python3 bench/cuda.py --rounds 2", "bench/prediction.py --rounds 2", "/usr/bin/python3 bench/cpu.py",
                              "build/release/bench/linear --rows 32", "cmake --preset release", "srun -n 4 ./baton train",
                              "tests/ranks/hosts.sh --rate 1000mbit mpirun baton train", "CXX=clang++ cmake --preset fuzz"}) {
    EXPECT_EQ(faults(fmt::format("See `{}`.", command)).size(), 1U) << command;
    EXPECT_EQ(faults(fmt::format("```\n{}   # here\n```\n", command)).size(), 1U) << command;
    EXPECT_EQ(faults(fmt::format("<!-- not run: bench, build, Slurm, hosts -->\nSee `{}`.", command)).size(), 0U) << command;
  }
  EXPECT_EQ(faults("```\n$ ls\n```\n").size(), 1U) << "what stands below a prompt is a command";
  EXPECT_EQ(run_, 0U);
}

TEST_F(Documents, AReasonHoldsOnlyForWhatItIsAReasonOf) {
  EXPECT_EQ(faults("<!-- not run: GPU -->\n`baton train --devices cuda` and `baton lab run alchemy`\n").size(), 1U);
  EXPECT_EQ(faults("<!-- not run: GPU -->\n`python3 bench/cpu.py`\n").size(), 1U);
  EXPECT_EQ(faults("<!-- not run: no time -->\n`python3 bench/cpu.py`\n").size(), 1U);
  EXPECT_EQ(run_, 1U);
}

TEST_F(Documents, RanksAreStarted) {
  if (!BATON_HAS_MPI) {
    GTEST_SKIP() << "built without MPI";
  }
  EXPECT_EQ(faults("`mpirun -n 2 ./baton train --model mlp:dim=16,depth=2 --strategy ddp --batch 4`").size(), 0U);
  EXPECT_EQ(faults("`mpirun -n 2 ./baton train --model mlp:dim=16,depth=2 --strategy alchemy --batch 4`").size(), 1U);
  EXPECT_EQ(run_, 2U);
}

TEST(Documented, CommandsAreFoundInBlocksAndInSpansThatRunOverALine) {
  const std::vector<Documented> all = documented(
      "Text with `./baton plan\n--help` and `plan` and\n`baton lab  list` in it.\n```\n./baton devices   # a "
      "comment\nnothing\n```\n"
      "<!-- measured -->\n\n```\n$ baton train\nstep\n$ ls\nfiles\nbaton launch: done\n```\n`baton devices`\n");
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].command, "./baton plan --help");
  EXPECT_EQ(all[0].line, 1);
  EXPECT_EQ(all[1].command, "baton lab  list");
  EXPECT_EQ(all[1].line, 3);
  EXPECT_EQ(all[2].command, "./baton devices");
  EXPECT_EQ(all[2].line, 5);
  EXPECT_TRUE(all[2].output.empty());
  EXPECT_EQ(all[3].command, "baton train");
  EXPECT_EQ(all[3].output, (std::vector<std::string>{"step"}));
  EXPECT_FALSE(all[3].measured) << "an empty line ends what a marker stands above";
  EXPECT_EQ(all[4].command, "ls");
  EXPECT_EQ(all[5].command, "baton devices");
}

TEST(Documented, FilesFoldersAndPartsOfCommandsAreNoCommands) {
  EXPECT_TRUE(documented("`bench/cpu.py`, `tests/ranks/hosts.sh`, `build/release/examples`, `mpirun --bind-to core`, `cmake`, "
                         "`baton`, `baton launch: "
                         "done`\n")
                  .empty());
}

TEST(Documented, MarkersHoldForTheBlockOrParagraphBelow) {
  const std::vector<Documented> all = documented(
      "<!-- not run: GPU, bench -->\n```\nbaton a\nbaton b\n```\n`baton c`\n\n<!-- measured -->\n`baton d`\n\n`baton e`\n"
      "<!-- not run: slow -->\n<!-- measured -->\n`baton f`\n");
  ASSERT_EQ(all.size(), 6U);
  EXPECT_EQ(all[0].not_run, (std::vector<std::string>{"GPU", "bench"}));
  EXPECT_EQ(all[1].not_run, all[0].not_run);
  EXPECT_TRUE(all[2].not_run.empty() && !all[2].measured);
  EXPECT_TRUE(all[5].measured && all[5].not_run.size() == 1) << "several markers may stand above each other";
  EXPECT_TRUE(all[3].measured);
  EXPECT_FALSE(all[4].measured);
}

TEST(Documented, WordsOfCapitalsMakeAForm) {
  for (const char* form : {"baton lab run ID", "baton train --trace FILE", "baton COMMAND --help", "baton clusters NAME+NETWORK",
                           "mpirun -n 2 … --devices cpu:2", "baton report runs/FOLDER"}) {
    EXPECT_TRUE(is_form(form)) << form;
  }
  for (const char* command : {"baton lab run timing", "baton train --memory 8G", "baton train --link bandwidth=1GB/s,latency=50us",
                              "baton plan --schedule 1F1B", "baton plan --memory 96M"}) {
    EXPECT_FALSE(is_form(command)) << command;
  }
}

}  // namespace
}  // namespace baton::test
