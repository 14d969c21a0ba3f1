/// Every command of the documents is run, and what a document shows below a prompt is what the program
/// prints.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "baton/base/text.h"
#include "baton/lab/experiment.h"
#include "docs/documented.h"
#include "support/contents.h"
#include "support/own_folder.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

/// Small values for axes that make an experiment long; `memory` has cases that are no sizes.
const std::vector<std::pair<std::string, std::string>> small_values{
    {"model", "mlp:dim=64,depth=8"}, {"dim", "64"}, {"case", "64x2,128x2"}, {"size", "64"}, {"delay_ms", "0,5"}};

/// `./baton` and `baton` are one program.
std::string canonical_program(const std::string& command) { return command.starts_with("./") ? command.substr(2) : command; }

/// The command as the test runs it: few steps are trained, experiments are measured briefly and on small models. The laboratory as
/// a whole is measured an experiment at a time, for each has small values of its own; simulated, it is run as it stands.
std::string stand_in(const std::string& command) {
  std::vector<std::string> words;
  for (const std::string_view word : split(command, ' ')) {
    if (!word.empty()) {
      words.emplace_back(word);
    }
  }
  if (words.size() > 1 && words[1] == "train" && command.find(" --steps ") == std::string::npos) {
    return command + " --steps 7";
  }
  if (command == "baton lab" || command == "./baton lab") {
    std::string each;
    for (const lab::Experiment& experiment : lab::experiments()) {
      each += (each.empty() ? "" : " && ") + stand_in(command + " run " + experiment.id);
    }
    return each;
  }
  if (words.size() < 3 || words[1] != "lab" || words[2] != "run") {
    return command;
  }
  std::string quick = command + " --time-limit 1ms";
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

class Documents : public OwnFolder {
 protected:
  void SetUp() override {
    OwnFolder::SetUp();
    fs::create_symlink(BATON_PROGRAM, folder_ / "baton");
    fs::create_directory_symlink(fs::path(BATON_SOURCE) / "experiments", folder_ / "experiments");
    two_cores();
  }

  /// What is wrong with the commands of a document, a sentence each. A command that only stands there, with no output below, is run
  /// where it stands first.
  std::vector<std::string> faults(const std::string& markdown) {
    std::vector<std::string> sentences;
    std::size_t slow = 0;
    std::set<std::string> known;
    const std::vector<Documented> all = documented(markdown);
    for (const Documented& one : all) {
      const char* skipped = is_form(one.command)        ? "a form"
                            : is_launchers(one.command) ? "the launcher's"
                            : one.slow                  ? "slow"
                                                        : nullptr;
      if (skipped != nullptr) {
        fmt::print("not run ({}), line {}: {}\n", skipped, one.line, one.command);
        slow += one.slow ? 1 : 0;
        continue;
      }
      if (!known.insert(canonical_program(one.command)).second && one.output.empty()) {
        fmt::print("run before, line {}: {}\n", one.line, one.command);
        continue;
      }
      ++run_;
      const std::string fault = fault_of(one);
      if (!fault.empty()) {
        sentences.push_back(fmt::format("line {}: {}\n{}", one.line, one.command, fault));
      }
    }
    if (slow > 1 + all.size() / 10) {
      sentences.push_back(fmt::format("{} of {} commands are marked slow: too many to trust the rest", slow, all.size()));
    }
    return sentences;
  }

  void expect_no_faults(const char* document) {
    for (const std::string& sentence : faults(contents(fs::path(BATON_SOURCE) / document))) {
      ADD_FAILURE() << document << ", " << sentence;
    }
    EXPECT_GT(run_, 0) << document << " has no command that can be run";
  }

  std::size_t run_ = 0;

 private:
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
        "cd '{}' && export PATH=\"$PWD:$PATH\" XDG_CACHE_HOME=\"$PWD/cache\" && ({}) >out 2>&1 </dev/null", folder_.string(),
        stand_in(one.command));
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

TEST_F(Documents, EveryCommandOfTheReadmeWorks) { expect_no_faults("README.md"); }
TEST_F(Documents, EveryCommandOfTheCompanionWorks) { expect_no_faults("docs/companion.md"); }
TEST_F(Documents, EveryCommandOnStrategiesWorks) { expect_no_faults("docs/strategies.md"); }
TEST_F(Documents, EveryCommandOnSchedulesOfOnesOwnWorks) { expect_no_faults("docs/add-a-schedule.md"); }
TEST_F(Documents, EveryCommandOnMeasuringWorks) { expect_no_faults("docs/measuring.md"); }
TEST_F(Documents, EveryCommandOnPredictionWorks) { expect_no_faults("docs/prediction.md"); }
TEST_F(Documents, EveryCommandOnSweepsWorks) { expect_no_faults("experiments/README.md"); }

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
  EXPECT_EQ(faults("`./baton lab run ID`, `./baton test`\n\n<!-- slow -->\n`./baton lab run alchemy`\n").size(), 0U);
  EXPECT_EQ(run_, 0U);
  EXPECT_EQ(faults("<!-- slow -->\n`./baton x`, `./baton y`, `./baton z`\n").size(), 1U) << "nearly all is left out";
}

TEST(Documented, CommandsAreFoundInBlocksAndInSpansThatRunOverALine) {
  const std::vector<Documented> all = documented(
      "Text with `./baton plan\n--help` and `plan` and\n`baton lab  list` in it.\n```\n./baton devices   # a "
      "comment\nnothing\n```\n"
      "<!-- measured -->\n\n```\n$ baton train\nstep\n$ ls\nfiles\n```\n`baton devices`\n");
  ASSERT_EQ(all.size(), 5U);
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
  EXPECT_EQ(all[4].command, "baton devices");
}

TEST(Documented, MarkersHoldForTheBlockOrParagraphBelow) {
  const std::vector<Documented> all = documented(
      "<!-- slow -->\n```\nbaton a\nbaton b\n```\n`baton c`\n\n<!-- measured -->\n`baton d`\n\n`baton e`\n");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_TRUE(all[0].slow && all[1].slow);
  EXPECT_FALSE(all[2].slow || all[2].measured);
  EXPECT_TRUE(all[3].measured);
  EXPECT_FALSE(all[4].measured);
}

TEST(Documented, WordsOfCapitalsMakeAForm) {
  for (const char* form : {"baton lab run ID", "baton train --trace FILE", "baton COMMAND --help", "baton clusters NAME+NETWORK",
                           "baton report runs/FOLDER"}) {
    EXPECT_TRUE(is_form(form)) << form;
  }
  for (const char* command : {"baton lab run timing", "baton train --memory 8G", "baton train --link bandwidth=1GB/s,latency=50us",
                              "baton plan --schedule 1F1B", "baton plan --memory 96M"}) {
    EXPECT_FALSE(is_form(command)) << command;
  }
}

}  // namespace
}  // namespace baton::test
