#include "docs/documented.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "baton/base/text.h"

namespace baton::test {
namespace {

/// Without variables that are set for it alone, and without `time`.
std::string bare(const std::string& command) {
  static const std::regex prefix("^((\\w+=\\S* +)|(time +))+");
  return std::regex_replace(command, prefix, "");
}

bool is_command(const std::string& text) {
  static const std::regex of_baton("^(\\S*/)?baton [^ ]*[^: ]( |$)");
  static const std::regex of_others(
      "^(((/usr/bin/)?(python3|cmake|ctest|npm|node|srun|mpirun)|(\\./)?(bench|tests)/\\S+) .*|build/\\S+/\\S+/\\S+.*)$");
  const std::string command = bare(text);
  return std::regex_search(command, of_baton) ||
         (std::regex_search(command, of_others) && (!is_for_ranks(command) || is_programs(command)));
}

/// Without what the shell would take for a comment, and without space around.
std::string trimmed(std::string text) {
  text = text.substr(0, text.find(" #"));
  const std::size_t first = text.find_first_not_of(" \t");
  const std::size_t last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// The code spans of a paragraph, which may run over the end of a line.
void add_spans(const std::string& paragraph, const Documented& markers, std::vector<Documented>& all) {
  static const std::regex span("`([^`]+)`");
  for (std::sregex_iterator found(paragraph.begin(), paragraph.end(), span), end; found != end; ++found) {
    Documented one = markers;
    one.command = (*found)[1].str();
    one.line += static_cast<int>(std::count(paragraph.begin(), paragraph.begin() + found->position(), '\n'));
    std::replace(one.command.begin(), one.command.end(), '\n', ' ');
    one.command = trimmed(one.command);
    if (is_command(one.command)) {
      all.push_back(std::move(one));
    }
  }
}

}  // namespace

std::vector<Documented> documented(const std::string& markdown) {
  static const std::regex marks("<!-- (measured|not run: (.*)) -->");
  std::vector<Documented> all;
  std::istringstream lines(markdown);
  std::string line;
  std::string paragraph;
  Documented markers;  // markers of the current block or paragraph
  bool fenced = false;
  bool answers = false;  // what follows is output of the last command
  const auto finish = [&] {
    add_spans(paragraph, markers, all);
    paragraph.clear();
    markers = {};
  };
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.starts_with("```")) {
      if (fenced) {
        markers = {};
      } else if (!paragraph.empty()) {
        finish();
      }
      fenced = !fenced;
      answers = false;
    } else if (fenced) {
      const bool prompt = line.starts_with("$ ");
      const std::string text = trimmed(prompt ? line.substr(2) : line);
      if (prompt || (is_command(text) && !answers)) {
        all.push_back({text, number, {}, markers.measured, markers.not_run});
        answers = prompt;
      } else if (answers) {
        all.back().output.push_back(line);
      }
    } else if (std::smatch marker; std::regex_match(line, marker, marks)) {
      if (!paragraph.empty()) {
        finish();
      }
      if (!marker[2].matched) {
        markers.measured = true;
        continue;
      }
      const std::string reasons = marker[2];
      for (const std::string_view reason : split(reasons, ',')) {
        markers.not_run.push_back(trimmed(std::string(reason)));
      }
    } else if (line.empty()) {
      finish();
    } else {
      markers.line = paragraph.empty() ? number : markers.line;
      paragraph += line + "\n";
    }
  }
  finish();
  return all;
}

bool is_form(const std::string& command) {
  static const std::regex replaced("(^|[ =/:,+])[A-Z]{2,}($|[ =/:,.+])|--strategy S$|…");
  return std::regex_search(bare(command), replaced);
}

bool is_launchers(const std::string& command) {
  static const std::regex test("^(\\./)?baton +(test|python|playground)( |$)");
  return std::regex_search(command, test);
}

bool is_programs(const std::string& command) {
  static const std::regex program("^((/usr/bin/)?mpirun .* )?(\\S*/)?baton ");
  return std::regex_search(bare(command), program);
}

bool is_for_ranks(const std::string& command) {
  static const std::regex launcher("^(/usr/bin/)?mpirun |baton launch .*-- ");
  return std::regex_search(bare(command), launcher);
}

namespace {

const std::vector<std::pair<std::string, std::regex>>& reasons_with_signs() {
  static const std::vector<std::pair<std::string, std::regex>> list{{"GPU", std::regex("cuda")},
                                                                    {"hosts", std::regex("--host|hosts\\.sh")},
                                                                    {"Slurm", std::regex("^srun ")},
                                                                    {"bench", std::regex("(^|[ /])bench/")},
                                                                    {"build", std::regex("^(cmake|ctest|npm|build/)")},
                                                                    {"slow", std::regex("")}};
  return list;
}

}  // namespace

const std::vector<std::string>& reasons() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, sign] : reasons_with_signs()) {
      list.push_back(name);
    }
    return list;
  }();
  return names;
}

bool holds_for(const std::string& reason, const std::string& command) {
  return std::any_of(reasons_with_signs().begin(), reasons_with_signs().end(),
                     [&](const auto& one) { return one.first == reason && std::regex_search(bare(command), one.second); });
}

std::vector<std::filesystem::path> documents() {
  namespace fs = std::filesystem;
  const fs::path root = BATON_SOURCE;
  std::vector<fs::path> list;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".md") {
      list.push_back(entry.path());
    }
  }
  for (const char* folder : {"apps", "bench", "clusters", "docs", "examples", "exercises", "experiments", "handin", "playground",
                             "profiles", "python", "src", "tests", "web"}) {
    for (fs::recursive_directory_iterator next(root / folder), end; next != end; ++next) {
      if (next->path().filename() == "node_modules") {
        next.disable_recursion_pending();
      } else if (next->path().extension() == ".md") {
        list.push_back(next->path());
      }
    }
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace baton::test
