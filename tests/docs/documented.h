#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace baton::test {

/// A command of a document: a line of a fenced block, with or without a prompt, or a code span, that calls the program, a build, a
/// script or a launcher. What stands below a prompt is a command whatever it calls.
struct Documented {
  std::string command;  // one line, comments taken off
  int line = 0;
  std::vector<std::string> output;     // what a fenced block shows below a prompt
  bool measured = false;               // <!-- measured --> stands above: the output is of one run on one machine
  std::vector<std::string> not_run{};  // <!-- not run: GPU, bench --> stands above: why the tests may leave it out
};

/// The commands of a Markdown document, in order. Markers are lines of their own above a block or a paragraph.
std::vector<Documented> documented(const std::string& markdown);

/// Whether the command has a word to be replaced, as ID or FILE, or something left out.
bool is_form(const std::string& command);
/// Whether the command is the launcher's own and not the program's.
bool is_launchers(const std::string& command);
/// Whether a test can run the command: it calls the program, by itself or as ranks.
bool is_programs(const std::string& command);
/// Whether the command starts ranks.
bool is_for_ranks(const std::string& command);

/// The reasons there are to leave a command out.
const std::vector<std::string>& reasons();
/// Whether the reason is one for this command: a GPU for what names cuda, and so on.
bool holds_for(const std::string& reason, const std::string& command);

/// Every document of the project.
std::vector<std::filesystem::path> documents();

}  // namespace baton::test
