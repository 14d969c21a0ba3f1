#pragma once

#include <string>
#include <string_view>

namespace baton::sheet {

/// Text escaped for HTML.
std::string html_text(std::string_view text);
/// Text escaped for Markdown, so that none of its signs mark anything: a name, as a user gave it, at the beginning of a line.
std::string markdown_text(std::string_view text);
/// Text escaped for LaTeX: its own signs escaped, and those beyond ASCII that pdflatex does not know written with what it knows.
std::string latex_text(std::string_view text);

/// Text whose numbers do not break over lines: the spaces within "3 145 728", "3 · 10^-8" and "12 MiB" are non-breaking ones.
std::string unbroken(std::string_view text);

/// Text in which `…` marks code, for the writers of documents: `code` and `plain` write one stretch each.
template <typename Code, typename Plain>
std::string with_code(std::string_view text, Code code, Plain plain) {
  std::string out;
  bool inside = false;
  while (true) {
    const std::size_t end = text.find('`');
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) {
      out += inside ? code(part) : plain(part);
    }
    if (end == std::string_view::npos) {
      return out;
    }
    text.remove_prefix(end + 1);
    inside = !inside;
  }
}

}  // namespace baton::sheet
