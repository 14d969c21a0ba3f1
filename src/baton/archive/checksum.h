#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace baton::archive {

/// FNV-1a over words of eight bytes, and over single bytes at the end: enough to tell damage from contents.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    begin(bytes.size());
    go_on(bytes);
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

  /// Adds bytes that come in several runs, as one `add` of all of them would: `begin` takes their number, `go_on` each run. Every
  /// run but the last is a multiple of eight bytes.
  void begin(std::uint64_t size) { mix(size); }
  void go_on(std::span<const std::byte> bytes) {
    while (bytes.size() >= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      mix(word);
      bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes) {
      mix(std::to_integer<std::uint64_t>(byte));
    }
  }

  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  void mix(std::uint64_t word) {
    sum_ = (sum_ ^ word) * 0x100000001b3ULL;
    sum_ ^= sum_ >> 29;  // so that high bits of a word reach low bits of the sum
  }
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

}  // namespace baton::archive
