#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace baton::test {

/// Draws from a seed, the same on every machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}

  /// A number from low to high.
  std::int64_t from(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// In one of n cases.
  bool one_of(std::int64_t n) { return from(1, n) == 1; }
  const char* of(const std::vector<const char*>& list) {
    return list[static_cast<std::size_t>(from(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace baton::test
