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
const fs::path root = fs::path(BATON_TEST_DATA) / "..";
const fs::path source = root / "src" / "baton";

std::set<std::string> every_key() {
  const std::string text = test::contents(source / "job" / "keys.h");
  const std::regex constant("inline constexpr [^;]*\\{\"(\\w+)\"\\};");
  std::set<std::string> names;
  std::size_t count = 0;
  for (std::sregex_iterator next(text.begin(), text.end(), constant); next != std::sregex_iterator(); ++next, ++count) {
    names.insert((*next)[1]);
  }
  EXPECT_EQ(names.size(), count) << "a name stands twice";
  const std::regex own("static constexpr [^;]*\\{\"(\\w+)\"\\};");  // a key of an object inside a record
  for (std::sregex_iterator next(text.begin(), text.end(), own); next != std::sregex_iterator(); ++next) {
    names.insert((*next)[1]);
  }
  return names;
}

TEST(Keys, StandNowhereElseAsText) {
  const std::set<std::string> names = every_key();
  ASSERT_GT(names.size(), 150U);
  // A name of one word may also be a heading; as an index, or asked for, it is a key. These are in other files too.
  const std::set<std::string> elsewhere{"command", "cores", "environment", "host", "run", "split"};
  const std::regex literal(R"re((\[|contains\(|has\(|value\(|erase\()?"(\w+)")re");
  std::size_t files = 0;
  for (const fs::path& folder : {source / "job", source / "training", source / "lab", source / "predict", source / "report",
                                 source / "sheet", root / "apps" / "baton"}) {
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(folder)) {
      const std::string name = file.path().filename();
      if ((file.path().extension() != ".h" && file.path().extension() != ".cpp") || name == "published.cpp" ||  // others' columns
          name == "keys.h") {
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

TEST(Keys, ANumberThatIsNotKnownIsNull) {
  using Line = job::key::LogLine;
  const job::Record line{Line::step(3), Line::loss(0.5), Line::eval_loss(std::nullopt), Line::eval_samples(std::nullopt)};
  EXPECT_EQ(line.json().dump(), R"({"step":3,"loss":0.5,"eval_loss":null,"eval_samples":null})");
  EXPECT_EQ(line[Line::loss], std::optional(0.5));
  EXPECT_EQ(line[Line::eval_samples], std::nullopt);
  EXPECT_EQ(job::Record{Line::eval_samples(10)}[Line::eval_samples], std::optional<std::int64_t>(10));
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
