#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class Error;

/// The pieces of `text` between separators; an empty text has one empty piece.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const std::size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return pieces;
    }
    text.remove_prefix(end + 1);
  }
}

/// Calls `visit(number, piece)` for each piece of the text, numbered from 0, without making a list of them.
template <typename Visit>
void for_each_part(std::string_view text, char separator, Visit visit) {
  for (std::size_t number = 0;; ++number) {
    const std::size_t end = text.find(separator);
    visit(number, text.substr(0, end));
    if (end == std::string_view::npos) {
      return;
    }
    text.remove_prefix(end + 1);
  }
}

/// "a, b or c".
inline std::string either(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

/// Names are compared without regard to case, and with dashes for underscores.
inline std::string canonical(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  return text;
}

/// The settings of `key=value,key=value`, one after the other: visit(setting, key, value) gets each as it is written, its key in
/// its `canonical` form, and its value, empty if there is none. A repeated key is a usage error.
void for_each_setting(std::string_view text,
                      const std::function<void(std::string_view setting, const std::string& key, std::string_view value)>& visit);

/// " (did you mean ddp?)": the name that is nearest to an unknown word; empty if no name is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names);
/// "unknown strategy 'dpp' (did you mean dp?): choose single, dp or ddp": the usage error for an unknown name.
Error unknown_name(std::string_view what, std::string_view name, const std::vector<std::string>& names);
/// The index of a word among the names, compared as `canonical` writes them; throws unknown_name if it is not among them.
std::size_t index_of_name(const std::vector<std::string>& names, std::string_view name, std::string_view what);

/// "2026-11-15 19:02": the local time.
std::string time_text();

/// True if the bytes are UTF-8, without overlong forms and surrogates.
bool is_utf8(std::string_view text);

/// The number of columns a terminal takes to show text in UTF-8.
std::size_t display_width(std::string_view text);

}  // namespace baton
