/// What users read is plain English: neither the program's output nor a document uses phrases that readers had to decode.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "docs/documented.h"
#include "docs/prose.h"
#include "docs/wording.h"
#include "support/contents.h"
#include "support/own_folder.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;

void expect_plain(const std::string& text, const std::string& source) {
  for (const Wording& one : unclear(text)) {
    ADD_FAILURE() << source << ":" << one.line << ": '" << one.found << "'; write: " << one.instead;
  }
}

class Words : public OwnFolder {
 protected:
  std::string output(const std::string& arguments) {
    const fs::path out = folder_ / "out";
    const std::string command = fmt::format("cd '{}' && XDG_CACHE_HOME=\"$PWD/cache\" '{}' {} >out 2>&1 </dev/null",
                                            folder_.string(), BATON_PROGRAM, arguments);
    EXPECT_EQ(std::system(command.c_str()), 0) << arguments;
    return contents(out);
  }

  /// The names that stand first on the lines below a heading of the help of a command.
  std::vector<std::string> commands_of(const std::string& command) {
    static const std::regex line("\n  ([a-z]+) {2,}[A-Z]");
    const std::string help = output(command + " --help");
    std::vector<std::string> names;
    for (std::sregex_iterator next(help.begin(), help.end(), line), none; next != none; ++next) {
      names.push_back((command.empty() ? "" : command + " ") + (*next)[1].str());
    }
    return names;
  }

  std::size_t expect_plain_help(const std::string& command) {
    expect_plain(output(command + " --help"), "baton " + command + " --help");
    std::size_t count = 1;
    for (const std::string& below : commands_of(command)) {
      count += expect_plain_help(below);
    }
    return count;
  }
};

TEST_F(Words, OfEveryHelpTextArePlain) { EXPECT_GE(expect_plain_help(""), 18U) << "commands are found in the help"; }

TEST_F(Words, OfTheManualPageArePlain) { expect_plain(output("man"), "baton man"); }

TEST_F(Words, OfWhatCommandsPrintArePlain) {
  for (const char* arguments :
       {"strategies", "clusters", "clusters dgx-a100+ethernet-100", "devices", "lab list", "plan --strategy ddp --devices cpu:2",
        "plan --strategy 1f1b --devices cpu:2 --model mlp:dim=64,depth=4 --grid", "plan --strategy zero-2 --devices cpu:2 --verify",
        "train -q --model mlp:dim=64,depth=2 --steps 7 --strategy layers --devices cpu:2",
        "train --model mlp:dim=64,depth=2 --steps 7 --precision bf16",
        "simulate --strategy ddp --cluster dgx-a100 --devices 128 --batch 4096 --fold always",
        "search --model mlp:dim=1024,depth=8 --cluster pcie-4 --batch 64", "calibrate --model mlp:dim=64,depth=2",
        "bench collectives --devices cpu:2 --sizes 8:1K --time-limit 1ms"}) {
    expect_plain(output(arguments), fmt::format("baton {}", arguments));
  }
}

class WordsOf : public testing::TestWithParam<fs::path> {};

TEST_P(WordsOf, ArePlain) { expect_plain(contents(GetParam()), GetParam().lexically_relative(BATON_SOURCE)); }

INSTANTIATE_TEST_SUITE_P(Document, WordsOf, testing::ValuesIn(documents()), [](const auto& document) {
  std::string name = document.param.lexically_relative(BATON_SOURCE).replace_extension();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char sign) { return std::isalnum(sign) == 0; }, '_');
  return name;
});

/// The source files of a folder, and of those in it.
std::vector<fs::path> sources(const std::string& folder) {
  std::vector<fs::path> list;
  for (fs::recursive_directory_iterator next(fs::path(BATON_SOURCE) / folder), end; next != end; ++next) {
    if (next->path().filename() == "node_modules" || next->path().filename() == "corpus") {
      next.disable_recursion_pending();
    } else if (next->is_regular_file() && has_prose(next->path())) {
      list.push_back(next->path());
    }
  }
  return list;
}

class CommentsOf : public testing::TestWithParam<const char*> {};

TEST_P(CommentsOf, ArePlain) {
  const std::vector<fs::path> files = sources(GetParam());
  for (const fs::path& file : files) {
    expect_plain(prose_of(file).comments, file.lexically_relative(BATON_SOURCE));
  }
  EXPECT_GE(files.size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Folder, CommentsOf,
                         testing::Values("src", "apps", "python", "playground", "web", "exercises", "examples", "bench", "handin",
                                         "tests", "clusters", "profiles", "experiments", "cmake"),
                         [](const auto& folder) { return std::string(folder.param); });

/// "The fields that the spec sets" is read at once, "What its points share" only with the declaration.
TEST(Headers, CommentsNameTheThingInsteadOfOpeningWithAClause) {
  static const std::regex comment("^ *//");
  static const std::regex clause("^ *///? (What|Where|Whether|How|Who|Whose|Which|When) ");
  for (const std::string folder : {"src", "apps", "exercises", "handin", "examples"}) {
    for (const fs::path& file : sources(folder)) {
      // Students read the checks of exercises too.
      std::istringstream lines(file.extension() == ".h" || folder == "exercises" ? contents(file) : "");
      bool within = false;
      for (std::string line; std::getline(lines, line);) {
        EXPECT_FALSE(!within && std::regex_search(line, clause)) << file.lexically_relative(BATON_SOURCE) << ": " << line;
        within = std::regex_search(line, comment);
      }
    }
  }
}

/// Findings, errors and help are sentences of the code.
class SentencesOf : public testing::TestWithParam<const char*> {};

TEST_P(SentencesOf, ArePlain) {
  const std::vector<fs::path> files = sources(GetParam());
  for (const fs::path& file : files) {
    expect_plain(prose_of(file).literals, file.lexically_relative(BATON_SOURCE));
  }
  EXPECT_GE(files.size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(Folder, SentencesOf,
                         testing::Values("src", "apps", "python", "playground", "web", "exercises", "examples", "bench", "handin",
                                         "clusters", "profiles", "experiments", "cmake", "tests/web", "tests/playground"),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

TEST(SentencesAndComments, OfTheFilesAtTheRootArePlain) {
  for (const char* file : {"baton", "CMakeLists.txt"}) {
    const Prose prose = prose_of(fs::path(BATON_SOURCE) / file);
    expect_plain(prose.comments, file);
    expect_plain(prose.literals, file);
  }
}

TEST_F(Words, OfSourceFilesAreCommentsAndLongLiterals) {
  const fs::path file = folder_ / "code.cpp";
  std::ofstream(file) << "int a = 10'000;  // first \"comment\"\nchar b = '\"';\n/// second\nauto c = \"one two \" // between\n"
                         "  \"three four five\";\nauto d = {\"too short\", R\"(six seven // eight\nnine ten)\"};\n";
  const Prose prose = prose_of(file);
  EXPECT_EQ(prose.comments, " first \"comment\"\n\n second\n between\n\n\n\n");
  EXPECT_EQ(prose.literals, "\n\n\none two \nthree four five|\nsix seven // eight\nnine ten|\n");
}

TEST_F(Words, OfShellScriptsAreCommentsLiteralsAndDocuments) {
  const fs::path file = folder_ / "script.sh";
  std::ofstream(file) << "say \"one two $# three 'four' five\" # first \\\ncat <<'END'\nno \"quote and\\\nmore of it\nEND\n"
                         "a=${#b} \\\n  'six # seven\neight nine ten'\n";
  const Prose prose = prose_of(file);
  EXPECT_EQ(prose.comments, " first \\\n\n\n\n\n\n\n\n");
  EXPECT_EQ(prose.literals, "one two $# three 'four' five\n|\nno \"quote and\\\nmore of it\n\n|\nsix # seven\neight nine ten\n|");
}

TEST_F(Words, OfBuildFilesStylesAndPagesAreRead) {
  const fs::path build = folder_ / "CMakeLists.txt";
  std::ofstream(build) << "# the toolkit's folder\nmessage(\"one two three\nfour five\")\n";
  EXPECT_EQ(prose_of(build).comments, " the toolkit's folder\n\n\n");
  EXPECT_EQ(prose_of(build).literals, "\none two three\nfour five|\n");
  const fs::path style = folder_ / "page.css";
  std::ofstream(style) << "a { background: url(http://b); } /* the frame */\n";
  EXPECT_EQ(prose_of(style).comments, " the frame \n");
  const fs::path page = folder_ / "page.html";
  std::ofstream(page) << "<p>text</p>\n";
  EXPECT_EQ(prose_of(page).comments, "<p>text</p>\n");
}

TEST(Wording, FindsPhrasesThatReadersHadToDecode) {
  for (const char* phrase : {"a thread a rank",
                             "takes 13.0 ms a step",
                             "bytes a flop",
                             "no line a step",
                             "two stages a device",
                             "16 bytes\na parameter",
                             "Again: baton lab",
                             "activations let go and",
                             "made anew",
                             "held against it",
                             "none where there is none",
                             "checks the law",
                             "12 GF/s",
                             "0.3 Tflop/s",
                             "12 us",
                             "behind two dashes",
                             "every so many steps",
                             "goes on from there",
                             "the judge of all others",
                             "an experiment of one's own",
                             "Hold predictions against tables",
                             "the batch is worked off",
                             "as evenly as can be",
                             "One thread a rank",
                             "Empty where there",
                             "zero where it is null",
                             "skipped where there is no GPU",
                             "communication that nothing hides",
                             "So many devices",
                             "Goes on from a checkpoint",
                             "'x' is no file",
                             "These targets are no numbers",
                             "Of a pipeline: its idle share",
                             "few. Of the rows, the first",
                             "a number as JSON\nhas it",
                             "As data sheets have them",
                             "counted in no time",
                             "tensors, none included",
                             "no number where one belongs",
                             "timed beside every point",
                             "Beside the plan there is"}) {
    EXPECT_FALSE(unclear(phrase).empty()) << phrase;
  }
}

TEST(Wording, LeavesPlainSentencesAlone) {
  for (const char* sentence : {"one thread per rank",
                               "the work a device does",
                               "the time a step takes",
                               "Amdahl's law",
                               "12 µs at 0.3 TFLOP/s",
                               "50us",
                               "give a device",
                               "two devices, a link",
                               "```cpp\n// once a step\n```\n",
                               "a batch of samples",
                               "try again: one",
                               "there is no file",
                               "There are no rows",
                               "it is no longer there",
                               "zero if it is null",
                               "a place where there is room",
                               "Of 18 pairs, 16 are in order",
                               "the times of a pipeline: two",
                               "`beside` in the record",
                               "next to it"}) {
    EXPECT_TRUE(unclear(sentence).empty()) << sentence;
  }
  EXPECT_EQ(unclear("one\n\ntwo lines\na step\n").at(0).line, 3);
}

/// The third column of the glossary names a word of the code and the header that has it.
TEST(Glossary, NamesWhatTheCodeHas) {
  const std::string glossary = contents(BATON_SOURCE "/docs/glossary.md");
  const std::regex row("\n\\| ([^|]+) \\| [^|]+ \\|([^|]*)\\|(?=\n)");
  const std::regex place(" `(\\w+)` in \\[([\\w.]+)\\]\\(\\.\\./(src/[\\w./]+)\\) ");
  int words = 0;
  int in_code = 0;
  std::string before;
  for (std::sregex_iterator next(glossary.begin(), glossary.end(), row), none; next != none; ++next) {
    const std::string word = (*next)[1];
    if (word == "word") {
      continue;
    }
    ++words;
    EXPECT_LT(before, word) << "in alphabetical order";
    before = word;
    const std::string code = (*next)[2];
    std::smatch parts;
    if (code == " ") {
      continue;
    }
    ASSERT_TRUE(std::regex_match(code, parts, place)) << word << ":" << code;
    ++in_code;
    EXPECT_TRUE(parts[3].str().ends_with("/" + parts[2].str())) << word;
    const fs::path header = fs::path(BATON_SOURCE) / parts[3].str();
    ASSERT_TRUE(fs::exists(header)) << word << ": " << header;
    EXPECT_TRUE(std::regex_search(contents(header), std::regex("\\b" + parts[1].str() + "\\b"))) << word << ": " << code;
  }
  EXPECT_GT(words, 60);
  EXPECT_GE(in_code * 10, words * 9) << "nine words of ten are in the code";
}

}  // namespace
}  // namespace baton::test
