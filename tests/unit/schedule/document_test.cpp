#include <gtest/gtest.h>

#include "baton/base/text.h"
#include "baton/schedule/schedule.h"
#include "support/contents.h"

namespace baton::schedule {
namespace {

std::string contents(const std::string& path) {
  const std::string text = test::contents(std::string(BATON_TEST_DATA) + "/../" + path);
  EXPECT_FALSE(text.empty()) << path;
  return text;
}

TEST(Document, GridsAndFiguresOfTheStrategiesAreWhatTheLessonPrints) {
  const std::string printed = contents("examples/expected/lesson_05.txt");
  const std::string page = contents("docs/strategies.md");
  std::string block;
  bool inside = false;
  int found = 0;
  for (const std::string_view line : split(page, '\n')) {
    if (!line.starts_with("```")) {
      block += inside ? std::string(line) + "\n" : "";
      continue;
    }
    inside = !inside;
    const bool grid = block.starts_with("device 0  ") && block.find(" ..") != std::string::npos;
    if (grid || block.starts_with("4 devices, 8 micro-batches")) {
      EXPECT_NE(printed.find(block), std::string::npos) << block;
      ++found;
    }
    block.clear();
  }
  EXPECT_GE(found, 9);
}

TEST(Document, HasAWordOnEverySchedule) {
  const std::string page = contents("docs/strategies.md");
  for (const Schedule& schedule : schedules()) {
    EXPECT_NE(page.find("`" + schedule.name + "`"), std::string::npos) << schedule.name;
  }
}

}  // namespace
}  // namespace baton::schedule
