#include "baton/data/unicode.h"

#include <algorithm>

#include "baton/base/text.h"

namespace baton::data {

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return {first, 1};
  }
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (at + length > text.size() || !is_utf8(text.substr(at, length))) {
    return {invalid_character, 1};
  }
  char32_t point = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    point = point << 6 | (byte(i) & 0x3fU);
  }
  return {point, length};
}

void append_character(std::string& text, char32_t point) {
  if (point < 0x80) {
    text += static_cast<char>(point);
    return;
  }
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  text += static_cast<char>((0xff00U >> (more + 1) & 0xffU) | point >> (6 * more));
  for (int i = more - 1; i >= 0; --i) {
    text += static_cast<char>(0x80U | (point >> (6 * i) & 0x3fU));
  }
}

std::size_t unfinished_at_end(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte >= 0xc0) {
      const std::size_t length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
      return length > back ? back : 0;
    }
    if (byte < 0x80) {
      return 0;
    }
  }
  return 0;
}

bool is_space(char32_t point) {
  return (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200a) || point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f ||
         point == 0x3000;
}

}  // namespace baton::data
