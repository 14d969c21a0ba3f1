/// Keys of records stand once, in job/keys.h.

#include "baton/job/keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "support/contents.h"

namespace baton::lab {
namespace {

namespace fs = std::filesystem;
const fs::path source = fs::path(BATON_TEST_DATA) / ".." / "src" / "baton";

std::set<std::string> every_key() {
  const std::string text = test::contents(source / "job" / "keys.h");
  const std::regex constant("inline constexpr [^;]*\\{\"(\\w+)\"\\};");
  std::set<std::string> names;
  std::size_t count = 0;
  for (std::sregex_iterator next(text.begin(), text.end(), constant); next != std::sregex_iterator(); ++next, ++count) {
    names.insert((*next)[1]);
  }
  EXPECT_EQ(names.size(), count) << "a name stands twice";
  return names;
}

TEST(Keys, StandNowhereElseAsText) {
  const std::set<std::string> names = every_key();
  ASSERT_GT(names.size(), 150U);
  // Of one word, a name may also be a heading; as an index, or asked for, it is a key. These are in other files too.
  const std::set<std::string> elsewhere{"command", "cores", "environment", "split"};
  const std::regex literal(R"re((\[|contains\(|has\(|value\(|erase\()?"(\w+)")re");
  std::size_t files = 0;
  for (const char* layer : {"training", "lab", "predict", "report", "sheet"}) {
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(source / layer)) {
      const std::string name = file.path().filename();
      if ((file.path().extension() != ".h" && file.path().extension() != ".cpp") || name == "published.cpp") {  // others' columns
        continue;
      }
      ++files;
      const std::string text = test::contents(file.path());
      for (std::sregex_iterator next(text.begin(), text.end(), literal); next != std::sregex_iterator(); ++next) {
        const std::string word = (*next)[2];
        const bool is_key = names.contains(word) &&
                            (((*next)[1].matched && !elsewhere.contains(word)) || word.find('_') != std::string::npos);
        EXPECT_FALSE(is_key) << file.path() << " has \"" << word << "\", which is job::key::" << word;
      }
    }
  }
  EXPECT_GT(files, 60U);
}

TEST(Keys, GiveAndTakeValuesOfTheirType) {
  const job::Record record{job::key::time_per_step_ns(Nanoseconds(5)), job::key::origin("measured"),
                           job::key::interval_level(std::nullopt), job::key::trained({job::key::batch(64)})};
  EXPECT_EQ(record.json().dump(), R"({"time_per_step_ns":5,"origin":"measured","interval_level":null,"trained":{"batch":64}})");
  EXPECT_EQ(record[job::key::time_per_step_ns], Nanoseconds(5));
  EXPECT_EQ(record[job::key::trained][job::key::batch], 64);
  EXPECT_EQ(record.value(job::key::efficiency, 0.5), 0.5);
  EXPECT_THROW(record[job::key::efficiency], BugError);
  EXPECT_EQ(number(record, job::key::time_per_step_ns), 5);
}

}  // namespace
}  // namespace baton::lab
