#pragma once

#include <string>
#include <vector>

namespace baton::test {

/// A phrase that readers had to decode, found in a text.
struct Wording {
  int line = 0;
  std::string found;
  std::string instead;  // what to write
};

/// The phrases of a text that plain English does without, in order. Whitespace and ends of lines are the same. C++ code in a
/// Markdown document is left out.
std::vector<Wording> unclear(const std::string& text);

}  // namespace baton::test
