/// The manual page and the completion are made from the program's own list of commands and flags.

#include <regex>

#include "cli/program.h"

namespace baton::test {
namespace {

class Manual : public Cli {
 protected:
  /// What bash offers for the last of these words.
  std::string completed(const std::string& words) {
    return answer("bash", "source <('" BATON_PROGRAM "' completion bash)\nCOMP_WORDS=(" + words +
                              ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_baton\necho \"${COMPREPLY[@]}\"\n");
  }

  /// Whether zsh, told so at its start, makes the second line of the first by the key for completion.
  bool zsh_completes(const std::string& start, const std::string& line, const std::string& whole) {
    return answer("zsh -f", "start=\"" + start + "\" line='" + line + "' whole='" + whole + "' HOME='" + folder_.string() + R"('
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; cd '$HOME'; $start; echo re''ady"
zpty -r shell seen '*ready*'
zpty -n -w shell "$line"$'\t'
zpty -r -m shell seen "*$whole*" && echo done
zpty -d shell
)") == "done\n";
  }

 private:
  std::string answer(const std::string& shell, const std::string& script) {
    std::ofstream(folder_ / "ask.sh") << script;
    const std::string command = "timeout 30 " + shell + " '" + (folder_ / "ask.sh").string() + "' >'" +
                                (folder_ / "offered").string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return contents(folder_ / "offered");
  }
};

TEST_F(Manual, BashCompletesCommandsFlagsAndNames) {
  EXPECT_EQ(completed("baton tra"), "train\n");
  EXPECT_EQ(completed("baton train --micro"), "--micro-batches\n");
  EXPECT_EQ(completed("baton train --strategy zero-"), "zero-1 zero-2 zero-3\n");
  EXPECT_EQ(completed("baton train --devices cpu:2 --schedule 1f"), "1f1b\n");
  EXPECT_EQ(completed("baton lab run dp-"), "dp-vs-ddp\n");
  EXPECT_EQ(completed("baton handin pra"), "practical8\n");
  EXPECT_EQ(completed("baton simulate --cluster dgx-h1"), "dgx-h100\n");
  EXPECT_EQ(completed("baton simulate --fold a"), "auto always\n");
  EXPECT_EQ(completed("baton plan --steps"), "\n") << "a flag of another command";
}

TEST_F(Manual, ZshCompletesThemToo) {
  if (std::system("command -v zsh >/dev/null") != 0) {
    GTEST_SKIP() << "there is no zsh";
  }
  const std::string sourced = "source <('" BATON_PROGRAM "' completion zsh)";
  EXPECT_TRUE(zsh_completes(sourced, "baton tra", "baton train"));
  EXPECT_TRUE(zsh_completes(sourced, "baton train --strategy zer", "--strategy zero-"));
  std::ofstream(folder_ / "_baton") << run("completion zsh").out;
  EXPECT_TRUE(zsh_completes("fpath=(\\$HOME \\$fpath); autoload -U compinit; compinit -u", "baton lab run dp-", "dp-vs-ddp"))
      << "where it was installed";
}

TEST_F(Manual, AShellThatIsNotKnownIsRefused) {
  const Outcome outcome = run("completion fish");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "baton: there is no completion for 'fish': choose bash or zsh\n");
}

TEST_F(Manual, ThePageTellsOfEveryCommandThatHelpShows) {
  const std::string page = run("man").out;
  const std::string help = run("--help").out;
  std::istringstream lines(help.substr(help.find("\nThe laboratory:"), help.find("Examples:") - help.find("\nThe laboratory:")));
  int commands = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) {
      const std::string name = line.substr(2, line.find(' ', 2) - 2);
      EXPECT_NE(page.find(".SS baton " + std::regex_replace(name, std::regex("-"), "\\-") + "\n"), std::string::npos) << name;
      ++commands;
    } else if (!line.empty()) {
      EXPECT_NE(page.find(".SH " + line.substr(0, line.size() - 1) + "\n"), std::string::npos) << line;
    }
  }
  EXPECT_GT(commands, 10);
  EXPECT_NE(page.find(".B \\-n,\\-\\-steps"), std::string::npos) << "flags with their dashes";
}

TEST_F(Manual, WhatACommandRefusesItDoesNotOffer) {
  for (const std::string command : {"train", "predict"}) {
    for (const std::string flag : {"--cluster", "--what-if", "--fold"}) {
      EXPECT_EQ(run(command + " --help").out.find("  " + flag), std::string::npos) << command << " " << flag;
      EXPECT_EQ(completed("baton " + command + " " + flag), "\n") << command;
    }
    const Outcome outcome = run(command + " --cluster pcie-4");
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("--cluster, --what-if and --fold"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(completed("baton simulate --what"), "--what-if\n");
}

TEST_F(Manual, HelpIsATableOfContentsThatBeginsWithTheLaboratory) {
  const std::string help = run("--help").out;
  std::size_t from = 0;
  for (const char* heading : {"\nThe laboratory:\n  lab ", "\nOne training:\n  train ", "\nPlans and simulation:\n",
                              "\nSeveral processes and machines:\n  launch ", "\nHelp:\n"}) {
    const std::size_t found = help.find(heading, from);
    ASSERT_NE(found, std::string::npos) << heading << help;
    from = found;
  }
  EXPECT_EQ(help.find("Subcommands:"), std::string::npos) << "every command stands under a heading";
}

TEST_F(Manual, ThePageTellsOfTheProgramsOwnOptionsAndOfTheEnvironment) {
  const std::string page = run("man").out;
  EXPECT_NE(page.find(".SH OPTIONS\n.TP\n.B \\-h,\\-\\-help"), std::string::npos);
  EXPECT_NE(page.find("\\-\\-version"), std::string::npos);
  for (const char* name : {"BATON_AMX", "BATON_CUDA_CACHE", "BATON_CUDA_ENQUEUE", "BATON_CUDA_RANKS", "XDG_CACHE_HOME",
                           "BATON_BUILD_JOBS", "BATON_NO_INSTALL"}) {
    EXPECT_NE(page.find(std::string("\n.TP\n.B ") + name + "\n"), std::string::npos) << name;
  }
}

TEST_F(Manual, ThePageTellsOfEveryExitCode) {
  const std::string page = run("man").out;
  for (const char* code : {"0", "1", "2", "75", "129, 130, 143"}) {
    EXPECT_NE(page.find(std::string("\n.TP\n") + code + "\n"), std::string::npos) << code;
  }
}

}  // namespace
}  // namespace baton::test
