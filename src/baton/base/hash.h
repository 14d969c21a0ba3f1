#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace baton {

/// FNV-1a over words of eight bytes, then over the remaining bytes, with the high bits mixed in. Not cryptographic: it does not
/// resist collisions made on purpose.
class Hash {
 public:
  Hash() = default;
  explicit Hash(std::string_view bytes) { add(bytes); }

  void add(std::string_view bytes) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      add(word);
    }
    for (; at < bytes.size(); ++at) {
      add(static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[at])));
    }
  }
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3ULL ^ value_ >> 47; }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace baton
