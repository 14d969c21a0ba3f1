/// What the documents say of the layers is what the build files say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "support/contents.h"

namespace baton::test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

std::string read_source(const std::string& name) { return contents(BATON_SOURCE "/" + name); }

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// Every layer with those it names.
std::map<std::string, Names> layers_of_the_build() {
  std::map<std::string, Names> layers;
  const std::string build = read_source("CMakeLists.txt");
  const std::regex layer(R"(baton_layer\((\w+)([^)]*)\))");
  for (std::sregex_iterator next(build.begin(), build.end(), layer); next != std::sregex_iterator(); ++next) {
    Names& used = layers[(*next)[1]];
    bool uses = false;
    for (const std::string& word : words((*next)[2])) {
      if (word == "USES" || word == "SOURCES" || word == "LINKS" || word == "PRIVATE_LINKS") {
        uses = word == "USES";
      } else if (uses) {
        used.insert(word);
      }
    }
  }
  return layers;
}

/// "op --> base": the first may use the second.
Names edges_of_the_picture() {
  Names edges;
  const std::string design = read_source("docs/design.md");
  const std::size_t begin = design.find("```mermaid");
  const std::regex edge(R"((\w+) --> (\w+))");
  const std::string picture = begin == std::string::npos ? "" : design.substr(begin, design.find("```", begin + 3) - begin);
  for (std::sregex_iterator next(picture.begin(), picture.end(), edge); next != std::sregex_iterator(); ++next) {
    edges.insert((*next)[0]);
  }
  return edges;
}

/// The layers that a list in words names: "`op`, `cost`" or "nothing".
Names listed(const std::string& list) {
  Names names;
  const std::regex name(R"(\w+)");
  for (std::sregex_iterator next(list.begin(), list.end(), name); next != std::sregex_iterator(); ++next) {
    names.insert((*next)[0]);
  }
  names.erase("nothing");
  return names;
}

TEST(Layers, AreDrawnInTheDesignAsTheBuildHasThem) {
  Names built;
  for (const auto& [layer, uses] : layers_of_the_build()) {
    for (const std::string& used : uses) {
      built.insert(fmt::format("{} --> {}", layer, used));
    }
  }
  EXPECT_GT(built.size(), 15U);
  EXPECT_EQ(edges_of_the_picture(), built);
}

TEST(Layers, StandInTheMapOfTheCodeWithWhatTheyMayUse) {
  const std::string map = read_source("CONTRIBUTING.md");
  std::map<std::string, Names> drawn;
  const std::regex row(R"(\n\| `src/baton/(\w+)` \|[^|\n]*\| ([^|\n]*) \|)");
  for (std::sregex_iterator next(map.begin(), map.end(), row); next != std::sregex_iterator(); ++next) {
    drawn[(*next)[1]] = listed((*next)[2]);
  }
  EXPECT_EQ(drawn, layers_of_the_build());
}

TEST(Layers, OpenWithWhatLivesThere) {
  std::map<std::string, Names> told;
  for (const fs::directory_entry& folder : fs::directory_iterator(BATON_SOURCE "/src/baton")) {
    const std::string name = folder.path().filename();
    const std::string text = read_source("src/baton/" + name + "/README.md");
    EXPECT_TRUE(text.starts_with("# " + name + "\n\n")) << name << " has no README.md that begins with its name";
    EXPECT_NE(text.find("\nRead first: "), std::string::npos) << name;
    EXPECT_NE(text.find("\nNever here: "), std::string::npos) << name;
    std::smatch uses;
    ASSERT_TRUE(std::regex_search(text, uses, std::regex(R"(\nMay use: ([^.\n]*?)(, and what those may use)?\.\n)"))) << name;
    told[name] = listed(uses[1]);
  }
  EXPECT_EQ(told, layers_of_the_build());
}

/// Every document but those of packages that were fetched.
std::vector<fs::path> documents() {
  std::vector<fs::path> list;
  for (const char* folder :
       {"", "apps/baton", "bench", "clusters", "docs", "examples", "experiments", "tests", "tests/oracle", "web"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(BATON_SOURCE) / folder)) {
      if (entry.path().extension() == ".md") {
        list.push_back(entry.path());
      }
    }
  }
  for (const auto& [layer, uses] : layers_of_the_build()) {
    list.push_back(fs::path(BATON_SOURCE) / "src/baton" / layer / "README.md");
  }
  return list;
}

/// Without its blocks of code.
std::string prose(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string text;
  bool fenced = false;
  for (std::string line; std::getline(lines, line);) {
    fenced = fenced != line.starts_with("```");
    text += fenced ? "" : line + "\n";
  }
  return text;
}

TEST(Links, OfTheDocumentsLeadToWhatIsThere) {
  std::size_t links = 0;
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  for (const fs::path& path : documents()) {
    const std::string text = prose(contents(path));
    for (std::sregex_iterator next(text.begin(), text.end(), link); next != std::sregex_iterator(); ++next) {
      const std::string to = (*next)[1];
      if (!to.starts_with("http")) {
        EXPECT_TRUE(fs::exists(path.parent_path() / to)) << path << " leads to " << to;
        ++links;
      }
    }
  }
  EXPECT_GT(links, 100U);
}

}  // namespace
}  // namespace baton::test
