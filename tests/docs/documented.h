#pragma once

#include <string>
#include <vector>

namespace baton::test {

/// A command of a document: a line of a fenced block, with or without a prompt, or a code span, that begins
/// with `./baton` or `baton`.
struct Documented {
  std::string command;  // one line, comments taken off
  int line = 0;
  std::vector<std::string> output;  // what a fenced block shows below a prompt
  bool measured = false;            // <!-- measured --> stands above: the output is of one run on one machine
  bool slow = false;                // <!-- slow --> stands above: not run by the tests
};

/// The commands of a Markdown document, in order. A marker is a line of its own above a block or a paragraph.
std::vector<Documented> documented(const std::string& markdown);

/// Whether the command has a word to be replaced, as ID or FILE.
bool is_form(const std::string& command);
/// Whether the command is the launcher's own and not the program's.
bool is_launchers(const std::string& command);

}  // namespace baton::test
