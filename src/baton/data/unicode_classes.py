#!/usr/bin/env python3
"""Writes unicode_classes.cpp: the code points that are letters and those that are numbers.

  python3 src/baton/data/unicode_classes.py | clang-format-14 > src/baton/data/unicode_classes.cpp
"""
import sys
import unicodedata


def ranges(kind):
    found = []
    for point in range(0x80, sys.maxunicode + 1):
        if unicodedata.category(chr(point)).startswith(kind):
            if found and found[-1][1] == point - 1:
                found[-1][1] = point
            else:
                found.append([point, point])
    return found


print(f"""// Written by unicode_classes.py from Unicode {unicodedata.unidata_version}. Do not edit.
#include "baton/data/unicode.h"

#include <algorithm>
#include <array>

namespace baton::data {{
namespace {{

/// From the first to the last, in order; without ASCII.
struct CodePoints {{
  char32_t first;
  char32_t last;
}};
""")
for name, kind in (("letters", "L"), ("numbers", "N")):
    listed = ranges(kind)
    print(f"constexpr std::array<CodePoints, {len(listed)}> {name}{{{{")
    print(", ".join(f"{{{first:#x}, {last:#x}}}" for first, last in listed))
    print("}};\n")
print("""template <typename Ranges>
bool holds(const Ranges& ranges, char32_t point) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), point, [](char32_t wanted, const CodePoints& range) { return wanted < range.first; });
  return after != ranges.begin() && point <= std::prev(after)->last;
}

}  // namespace

bool is_letter(char32_t point) {
  return point < 0x80 ? (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z') : holds(letters, point);
}

bool is_number(char32_t point) { return point < 0x80 ? point >= '0' && point <= '9' : holds(numbers, point); }

}  // namespace baton::data""")
