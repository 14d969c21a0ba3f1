#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace baton::test {

/// A command of a document: a code span or a line of a fenced block that calls the program, a build, a script or a launcher. A line
/// that begins with a prompt is a command whatever it calls.
struct Documented {
  std::string command;  // on one line, without comments
  int line = 0;
  std::vector<std::string> output;     // the lines after a prompt in a fenced block
  bool measured = false;               // marked <!-- measured -->: the output is of one run on one machine
  std::vector<std::string> not_run{};  // marked <!-- not run: GPU, bench -->: why the tests may leave it out
};

/// The commands of a Markdown document, in order. Markers are lines of their own above a block or a paragraph.
std::vector<Documented> documented(const std::string& markdown);

/// True if the command has a placeholder such as ID or FILE, or leaves something out with `…`.
bool is_form(const std::string& command);
/// True if the command is one of the launcher script (`test`, `python`, `playground`), not of the program.
bool is_launchers(const std::string& command);
/// True if a test can run the command: it calls the program, by itself or as ranks.
bool is_programs(const std::string& command);
/// True if the command starts ranks.
bool is_for_ranks(const std::string& command);

/// All reasons that a document may give for leaving a command out.
const std::vector<std::string>& reasons();
/// True if the reason fits this command: `GPU` fits commands that name cuda, and so on.
bool holds_for(const std::string& reason, const std::string& command);

/// Every document of the project.
std::vector<std::filesystem::path> documents();

}  // namespace baton::test
