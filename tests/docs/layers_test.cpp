/// What the documents say of the layers is what the build files say.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "docs/documented.h"
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

struct Layer {
  std::string name;
  std::vector<std::string> uses;
};

/// Every layer with those it names, in the order of the build.
std::vector<Layer> layers_in_order() {
  std::vector<Layer> layers;
  const std::string build = read_source("CMakeLists.txt");
  const std::regex call(R"(baton_layer\((\w+)([^)]*)\))");
  for (std::sregex_iterator next(build.begin(), build.end(), call); next != std::sregex_iterator(); ++next) {
    Layer& layer = layers.emplace_back(Layer{(*next)[1], {}});
    bool uses = false;
    for (const std::string& word : words((*next)[2])) {
      if (word == "USES" || word == "SOURCES" || word == "LINKS" || word == "PRIVATE_LINKS") {
        uses = word == "USES";
      } else if (uses) {
        layer.uses.push_back(word);
      }
    }
  }
  return layers;
}

std::map<std::string, Names> layers_of_the_build() {
  std::map<std::string, Names> layers;
  for (const Layer& layer : layers_in_order()) {
    layers[layer.name] = Names(layer.uses.begin(), layer.uses.end());
  }
  return layers;
}

/// The layers in a sentence and as a picture, in which "op --> base" says that the first may use the second.
std::string drawn(const std::vector<Layer>& layers) {
  std::string order;
  std::string picture;
  for (const Layer& layer : layers) {
    order += fmt::format("{}`{}`", order.empty() ? "" : ", ", layer.name);
    for (const std::string& used : layer.uses) {
      picture += fmt::format("  {} --> {}\n", layer.name, used);
    }
  }
  return fmt::format("From the bottom up: {}.\n\n```mermaid\ngraph BT\n{}```\n", order, picture);
}

/// The document with what stands between the two markers replaced; as it is if they are missing.
std::string with_picture(const std::string& document, const std::string& picture) {
  const std::string begin = "<!-- from the build files: ./baton test --bless -->\n";
  const std::size_t from = document.find(begin);
  const std::size_t to = document.find("<!-- end -->\n", from);
  return to == std::string::npos ? document : document.substr(0, from + begin.size()) + picture + document.substr(to);
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
  const std::vector<Layer> layers = layers_in_order();
  ASSERT_GT(layers.size(), 10U);
  const std::string design = read_source("docs/design.md");
  const std::string current = with_picture(design, drawn(layers));
  ASSERT_NE(current, with_picture(design, "")) << "docs/design.md has no markers for the picture";
  if (const char* bless = std::getenv("BATON_BLESS"); bless != nullptr && std::string_view(bless) == "1") {
    std::ofstream(BATON_SOURCE "/docs/design.md", std::ios::binary) << current;
    return;
  }
  EXPECT_EQ(design, current) << "draw the layers again with ./baton test --bless";
}

TEST(Layers, UseOnlyThoseBeforeThem) {
  Names before;
  for (const Layer& layer : layers_in_order()) {
    for (const std::string& used : layer.uses) {
      EXPECT_TRUE(before.contains(used)) << layer.name << " uses " << used;
    }
    before.insert(layer.name);
  }
}

/// By folder of src/baton, the other folders of the same layer that its files include.
std::map<std::string, Names> folders_within_layers() {
  std::map<std::string, Names> uses;
  const fs::path root = BATON_SOURCE "/src/baton";
  const std::regex include(R"re(#include "baton/(\w+)/([^"]*)")re");
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(root)) {
    const std::string kind = file.path().extension();
    if (kind != ".h" && kind != ".cpp" && kind != ".cu" && kind != ".cuh") {
      continue;
    }
    const std::string folder = fs::relative(file.path().parent_path(), root);
    const std::string text = contents(file.path());
    for (std::sregex_iterator next(text.begin(), text.end(), include); next != std::sregex_iterator(); ++next) {
      const fs::path used = fs::path((*next)[1].str()) / (*next)[2].str();
      const bool same_layer = folder == (*next)[1].str() || folder.starts_with((*next)[1].str() + "/");
      if (same_layer && used.parent_path() != folder) {
        uses[folder].insert(used.parent_path());
      }
    }
  }
  return uses;
}

TEST(Layers, HaveFoldersThatIncludeEachOtherInOneDirection) {
  const std::map<std::string, Names> uses = folders_within_layers();
  ASSERT_GT(uses.size(), 5U);
  for (const auto& [folder, first] : uses) {
    Names reached = first;
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const std::string& one : Names(reached)) {
        if (const auto further = uses.find(one); further != uses.end()) {
          reached.insert(further->second.begin(), further->second.end());
        }
      }
    }
    EXPECT_FALSE(reached.contains(folder)) << folder << " includes, by way of other folders, itself";
  }
}

TEST(Layers, StandInTheMapOfTheCodeWithWhatTheyMayUse) {
  const std::string map = read_source("CONTRIBUTING.md");
  std::map<std::string, Names> told;
  const std::regex row(R"(\n\| `src/baton/(\w+)` \|[^|\n]*\| ([^|\n]*) \|)");
  for (std::sregex_iterator next(map.begin(), map.end(), row); next != std::sregex_iterator(); ++next) {
    told[(*next)[1]] = listed((*next)[2]);
  }
  EXPECT_EQ(told, layers_of_the_build());
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

TEST(Tables, AreNotCutByABlankLine) {
  std::size_t tables = 0;
  for (const fs::path& path : documents()) {
    std::istringstream lines(prose(contents(path)));
    std::string before;
    std::string line;
    while (std::getline(lines, line)) {
      if (line.starts_with("|") && !before.starts_with("|")) {
        std::string rule;
        std::getline(lines, rule);
        EXPECT_TRUE(rule.starts_with("|--") || rule.starts_with("|:-")) << path << ": no table begins with " << line;
        line = rule;
        ++tables;
      }
      before = line;
    }
  }
  EXPECT_GT(tables, 30U);
}

}  // namespace
}  // namespace baton::test
