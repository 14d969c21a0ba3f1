/// The manual page and the completion are made from the program's own list of commands and flags.

#include "cli/program.h"

namespace baton::test {
namespace {

class Manual : public Cli {
 protected:
  /// What bash offers for the last of these words.
  std::string completed(const std::string& words, const std::string& shell = "bash") {
    std::ofstream(folder_ / "ask.sh") << "source <('" BATON_PROGRAM "' completion " + shell + ")\nCOMP_WORDS=(" + words +
                                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_baton\necho \"${COMPREPLY[@]}\"\n";
    const std::string command = "bash '" + (folder_ / "ask.sh").string() + "' >'" + (folder_ / "offered").string() + "'";
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
  EXPECT_EQ(completed("baton simulate --cluster dgx-a"), "dgx-a100\n");
  EXPECT_EQ(completed("baton plan --steps"), "\n") << "a flag of another command";
}

TEST_F(Manual, AShellThatIsNotKnownIsRefused) {
  const Outcome outcome = run("completion fish");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "baton: there is no completion for 'fish': choose bash or zsh\n");
}

TEST_F(Manual, ThePageTellsOfEveryCommandThatHelpShows) {
  const std::string page = run("man").out;
  const std::string help = run("--help").out;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::string line;
  std::getline(lines, line);
  int commands = 0;
  while (std::getline(lines, line) && line.starts_with("  ")) {
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    EXPECT_NE(page.find(".SS baton " + name + "\n"), std::string::npos) << name;
    ++commands;
  }
  EXPECT_GT(commands, 10);
  EXPECT_NE(page.find(".B \\-n,\\-\\-steps"), std::string::npos) << "flags with their dashes";
}

TEST_F(Manual, ThePageTellsOfEveryExitCode) {
  const std::string page = run("man").out;
  for (const char* code : {"0", "1", "2", "75", "130"}) {
    EXPECT_NE(page.find(std::string("\n.TP\n") + code + "\n"), std::string::npos) << code;
  }
}

}  // namespace
}  // namespace baton::test
