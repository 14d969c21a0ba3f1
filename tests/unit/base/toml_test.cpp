#include "baton/base/toml.h"

#include <gtest/gtest.h>

#include <string>

#include "baton/base/memory.h"
#include "support/usage_sentence.h"

namespace baton {
namespace {

using test::says;
using test::usage_sentence;

std::string refused(const std::string& text) {
  return usage_sentence([&] { parse_toml(text, "the file"); });
}

TEST(Toml, GivesTheRootOfWhatIsOne) {
  const toml::table root = parse_toml("a.b = 1\n[c]\nd = [0.1, 0.2]\ntext = '..........'", "the file");
  EXPECT_EQ(root["a"]["b"].value<int>(), 1);
  EXPECT_EQ(root["c"]["d"][1].value<double>(), 0.2);
}

TEST(Toml, NamesTheLineOfWhatIsNone) { EXPECT_TRUE(says(refused("a = 1\nb ="), "line 2 of the file is not valid TOML")); }

TEST(Toml, RefusesWhatItsParserTakesForGranted) {
  // Found by fuzzing: behind [ the parser expects the first sign of a key.
  EXPECT_TRUE(says(refused("[@device]\n"), "the file is not valid TOML"));
}

TEST(Toml, RefusesKeysThatWouldTakeAllOfTheStack) {
  std::string parts;
  for (int i = 0; i < 30'000; ++i) {
    parts += "a.";
  }
  for (const std::string& text : {parts + "a = 1", "[" + parts + "a]", "[[" + parts + "a]]", "x = {" + parts + "a = 1}"}) {
    EXPECT_TRUE(says(refused(text), "key of more than 64 parts"));
  }
  EXPECT_TRUE(says(refused("a = " + std::string(60'000, '[')), "not valid TOML"));
}

TEST(Toml, RefusesMoreThanAnyoneWrites) { EXPECT_TRUE(says(refused(std::string(70'000, '\n')), "larger than 64.0 KiB")); }

TEST(Memory, IsRequiredBeforeItIsTaken) {
  EXPECT_NO_THROW(require_memory(Bytes(1 << 20)));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_THROW(require_memory(Bytes(std::int64_t{1} << 60)), std::bad_alloc);
#endif
}

TEST(Toml, LettersOutsideQuotesAreRefusedAndInsideTaken) {
  EXPECT_TRUE(says(refused("mem\xc7\x86ory = 1"), "expected '='"));
  EXPECT_TRUE(says(refused("a = 1 \xc3\xa9"), "saw"));
  EXPECT_EQ(parse_toml("a = \"\"\"x\\\n  \xc7\x86\"\"\"", "the file")["a"].value<std::string>(), "x\xc7\x86");
}

}  // namespace
}  // namespace baton
