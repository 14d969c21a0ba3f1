#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "baton/base/error.h"

/// What libFuzzer and `replay.cpp` call for each input. Whatever is thrown out of it is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace baton::test {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// Does something with hostile input, which may end in an error that a user is told, and in nothing else.
template <typename Ask>
void tolerate(Ask&& ask) {
  try {
    ask();
  } catch (const Error& error) {
    if (error.what()[0] == '\0') {
      std::abort();  // a refusal says why
    }
  }
}

/// What must hold of whatever was accepted.
inline void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

}  // namespace baton::test
