#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton::data {

/// The character at a place of a text in UTF-8. A byte that begins no character there counts as one of its own,
/// `invalid_character`.
struct Character {
  char32_t point = 0;
  std::size_t length = 0;  // in bytes
};
inline constexpr char32_t invalid_character = 0xfffd0000;
Character character_at(std::string_view text, std::size_t at);
/// Appends a character in UTF-8.
void append_character(std::string& text, char32_t point);
/// The number of bytes at the end that begin a character and do not complete it: at most three.
std::size_t unfinished_at_end(std::string_view text);

/// Unicode's general categories L and N, and its property White_Space.
bool is_letter(char32_t point);
bool is_number(char32_t point);
bool is_space(char32_t point);

}  // namespace baton::data
