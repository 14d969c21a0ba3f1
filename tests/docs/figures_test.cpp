/// The figures in the README and in the citation also stand in the document they come from.

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>

#include "support/contents.h"

namespace baton::test {
namespace {

/// The text below a heading, up to the next one.
std::string section(const std::string& markdown, const std::string& heading) {
  const std::size_t begin = markdown.find("\n## " + heading + "\n");
  return begin == std::string::npos ? "" : markdown.substr(begin, markdown.find("\n## ", begin + 1) - begin);
}

/// Every figure with a decimal point of the section must stand in the document, and there must be some.
void expect_figures_from(const std::string& heading, const std::string& document) {
  const std::string shown = section(contents(BATON_SOURCE "/README.md"), heading);
  const std::string from = contents(BATON_SOURCE "/" + document);
  const std::regex figure(R"(\b\d+\.\d+\b)");
  int figures = 0;
  for (std::sregex_iterator next(shown.begin(), shown.end(), figure); next != std::sregex_iterator(); ++next, ++figures) {
    EXPECT_TRUE(std::regex_search(
        from, std::regex("(^|[^\\d.])" + std::regex_replace((*next)[0].str(), std::regex("\\."), "\\.") + "($|[^\\d])")))
        << (*next)[0] << " does not stand in " << document;
  }
  EXPECT_GT(figures, 3) << heading;
}

TEST(Figures, OfTheReadmeOnSpeedStandInTheDocumentOnPerformance) { expect_figures_from("How fast it is", "docs/performance.md"); }

TEST(Figures, OfTheReadmeOnPredictionStandInTheDocumentOnPrediction) {
  expect_figures_from("How well it predicts", "docs/prediction.md");
}

TEST(Readme, IsReadInThreeMinutes) {
  const std::string readme = contents(BATON_SOURCE "/README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 120);
}

TEST(Citation, NamesTheVersionOfTheBuildAndTheLicence) {
  const std::string citation = contents(BATON_SOURCE "/CITATION.cff");
  const std::string build = contents(BATON_SOURCE "/CMakeLists.txt");
  std::smatch version;
  ASSERT_TRUE(std::regex_search(build, version, std::regex(R"(project\(baton VERSION ([\d.]+))")));
  EXPECT_NE(citation.find("\nversion: " + version[1].str() + "\n"), std::string::npos);
  EXPECT_NE(citation.find("\nlicense: Apache-2.0\n"), std::string::npos);
}

}  // namespace
}  // namespace baton::test
