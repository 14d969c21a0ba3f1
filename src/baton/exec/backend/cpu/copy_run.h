#pragma once

#include <cstdint>
#include <cstring>

namespace baton::exec::cpu {

/// Copies this many floats that there are at least, by two copies that may overlap.
template <std::int64_t least>
void copy_twice(const float* from, float* to, std::int64_t count) {
  std::memcpy(to, from, least * sizeof(float));
  std::memcpy(to + count - least, from + count - least, least * sizeof(float));
}

/// Runs are short as a rule, so that a call would take longer than the copy.
inline void copy_run(const float* from, float* to, std::int64_t count) {
  for (; count > 32; count -= 16, from += 16, to += 16) {
    std::memcpy(to, from, 16 * sizeof(float));
  }
  if (count >= 16) {
    copy_twice<16>(from, to, count);
  } else if (count >= 8) {
    copy_twice<8>(from, to, count);
  } else if (count >= 4) {
    copy_twice<4>(from, to, count);
  } else {
    for (std::int64_t j = 0; j < count; ++j) {
      to[j] = from[j];
    }
  }
}

}  // namespace baton::exec::cpu
