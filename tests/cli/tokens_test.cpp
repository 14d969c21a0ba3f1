/// `tokens` makes files that `--data` takes.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>

#include "cli/program.h"

namespace baton::test {
namespace {

std::vector<std::uint16_t> tokens_in(const std::filesystem::path& path) {
  const std::string bytes = contents(path);
  std::vector<std::uint16_t> tokens((bytes.size() - 1024) / 2);
  std::memcpy(tokens.data(), bytes.data() + 1024, tokens.size() * 2);
  return tokens;
}

TEST_F(Cli, MakesTokenFilesOfTexts) {
  std::ofstream(folder_ / "a.txt") << "hello\nworld";
  std::ofstream(folder_ / "b.txt") << "hello";
  const Outcome made = run("tokens a.txt b.txt --tokenizer chars --out ab.bin");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("ab.bin: 16 tokens of a vocabulary of 8"), std::string::npos) << made.out;
  // \n d e h l o r w
  EXPECT_EQ(tokens_in(folder_ / "ab.bin"), (std::vector<std::uint16_t>{3, 2, 4, 4, 5, 0, 7, 5, 6, 4, 1, 3, 2, 4, 4, 5}));
  // Another text with the same tokenizer.
  EXPECT_EQ(run("tokens b.txt --tokenizer ab.tokenizer --out b.bin").code, 0);
  EXPECT_EQ(tokens_in(folder_ / "b.bin"), (std::vector<std::uint16_t>{3, 2, 4, 4, 5}));
  std::ofstream(folder_ / "c.txt") << "xyz";
  const Outcome refused = run("tokens c.txt --tokenizer ab.tokenizer --out c.bin");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("'x'"), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c.bin"));
}

TEST_F(Cli, NeverWritesTokensOverTheirText) {
  std::ofstream(folder_ / "a.bin") << "hello";
  const Outcome outcome = run("tokens a.bin --out ./a.bin");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(contents(folder_ / "a.bin"), "hello");
}

TEST_F(Cli, KeepsTheEndOfATextForValidation) {
  std::string text;
  for (int i = 0; i < 1000; ++i) {
    text += "0123456789";
  }
  std::ofstream(folder_ / "a.txt") << text;
  const Outcome made = run("tokens a.txt --val 0.1 --out both");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(tokens_in(folder_ / "both/train.bin").size(), 9000U);
  EXPECT_EQ(tokens_in(folder_ / "both/val.bin").size(), 1000U);
}

TEST_F(Cli, RefusesTextsThatAreNotThereAndPlacesThatCannotBeWritten) {
  std::ofstream(folder_ / "a.txt") << "hello";
  std::ofstream(folder_ / "empty.txt") << "";
  for (const char* wrong :
       {"tokens none.txt --out a.bin", "tokens a.txt --out none/a.bin", "tokens a.txt --tokenizer gpt2 --out a.bin", "tokens a.txt",
        "tokens . --out a.bin", "tokens empty.txt --out a.bin", "tokens empty.txt --tokenizer chars --out a.bin",
        "tokens a.txt --val 2 --out a", "tokens a.txt --out /dev/stdout", "tokens a.txt --out a.txt"}) {
    const Outcome outcome = run(wrong);
    EXPECT_NE(outcome.code, 0) << wrong;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << wrong << ": " << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "a.bin")) << wrong;
  }
}

}  // namespace
}  // namespace baton::test
