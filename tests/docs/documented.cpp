#include "docs/documented.h"

#include <algorithm>
#include <regex>
#include <sstream>

namespace baton::test {
namespace {

bool is_command(const std::string& text) { return text.starts_with("./baton ") || text.starts_with("baton "); }

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
  std::vector<Documented> all;
  std::istringstream lines(markdown);
  std::string line;
  std::string paragraph;
  Documented markers;  // of the block or paragraph under way
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
      if (is_command(text) && (prompt || !answers)) {
        all.push_back({text, number, {}, markers.measured, markers.slow});
        answers = prompt;
      } else if (prompt) {
        answers = false;
      } else if (answers) {
        all.back().output.push_back(line);
      }
    } else if (line == "<!-- slow -->" || line == "<!-- measured -->") {
      finish();
      (line == "<!-- slow -->" ? markers.slow : markers.measured) = true;
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
  static const std::regex capitals("(^|[ =/:,+])[A-Z]{2,}($|[ =/:,.+])");
  return std::regex_search(command, capitals);
}

bool is_launchers(const std::string& command) {
  static const std::regex test("^(\\./)?baton +test( |$)");
  return std::regex_search(command, test);
}

}  // namespace baton::test
