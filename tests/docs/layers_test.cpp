/// The picture of the layers in the design is what the build files say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "support/contents.h"

namespace baton::test {
namespace {

std::string read_source(const std::string& name) { return contents(BATON_SOURCE "/" + name); }

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// "op --> base": the first may use the second.
std::set<std::string> edges_of_the_build() {
  std::set<std::string> edges;
  const std::string build = read_source("CMakeLists.txt");
  const std::regex layer(R"(baton_layer\((\w+)([^)]*)\))");
  for (std::sregex_iterator next(build.begin(), build.end(), layer); next != std::sregex_iterator(); ++next) {
    bool uses = false;
    for (const std::string& word : words((*next)[2])) {
      if (word == "USES" || word == "SOURCES" || word == "LINKS" || word == "PRIVATE_LINKS") {
        uses = word == "USES";
      } else if (uses) {
        edges.insert(fmt::format("{} --> {}", (*next)[1].str(), word));
      }
    }
  }
  return edges;
}

std::set<std::string> edges_of_the_picture() {
  std::set<std::string> edges;
  const std::string design = read_source("docs/design.md");
  const std::size_t begin = design.find("```mermaid");
  const std::regex edge(R"((\w+) --> (\w+))");
  const std::string picture = begin == std::string::npos ? "" : design.substr(begin, design.find("```", begin + 3) - begin);
  for (std::sregex_iterator next(picture.begin(), picture.end(), edge); next != std::sregex_iterator(); ++next) {
    edges.insert((*next)[0]);
  }
  return edges;
}

TEST(Layers, AreDrawnInTheDesignAsTheBuildHasThem) {
  const std::set<std::string> built = edges_of_the_build();
  EXPECT_GT(built.size(), 15U);
  EXPECT_EQ(edges_of_the_picture(), built);
}

TEST(Layers, StandInTheMapOfTheCodeWithWhatTheyMayUse) {
  const std::string map = read_source("CONTRIBUTING.md");
  const std::string build = read_source("CMakeLists.txt");
  const std::regex layer(R"(baton_layer\((\w+))");
  for (std::sregex_iterator next(build.begin(), build.end(), layer); next != std::sregex_iterator(); ++next) {
    EXPECT_NE(map.find("| `src/baton/" + (*next)[1].str() + "` |"), std::string::npos) << (*next)[1];
  }
}

}  // namespace
}  // namespace baton::test
