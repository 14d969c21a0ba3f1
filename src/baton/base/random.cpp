#include "baton/base/random.h"

#include <cmath>
#include <numbers>

#include "baton/base/philox.h"

namespace baton {
namespace {

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  const FourWords words = philox_words({counter[0], counter[1], counter[2], counter[3]}, key[0], key[1]);
  return {words.a, words.b, words.c, words.d};
}

RandomStream::RandomStream(std::uint64_t seed, Domain domain, std::uint64_t index)
    : key_{low(seed), high(seed)}, upper_{low(index), (static_cast<std::uint32_t>(domain) << 24) | high(index)} {}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t number) const {
  return philox({low(number), high(number), upper_[0], upper_[1]}, key_);
}

std::uint32_t RandomStream::word(std::uint64_t position) const { return block(position / 4)[0]; }

template <typename Real>
void RandomStream::uniform(std::span<Real> out, std::uint64_t position, double bound) const {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t at = position + i;
    if (i == 0 || at % 4 == 0) {
      words = block(at / 4);
    }
    const double unit = static_cast<double>(words[at % 4] >> 8) * 0x1p-24;
    out[i] = static_cast<Real>((2 * unit - 1) * bound);
  }
}

template <typename Real>
void RandomStream::normal(std::span<Real> out, std::uint64_t position) const {
  std::array<double, 4> values{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t at = position + i;
    if (i == 0 || at % 4 == 0) {
      const std::array<std::uint32_t, 4> words = block(at / 4);
      for (std::size_t pair = 0; pair < 4; pair += 2) {  // Box and Muller: two words give two normals
        const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[pair]) + 1) * 0x1p-32));
        const double angle = 2 * std::numbers::pi * (static_cast<double>(words[pair + 1]) * 0x1p-32);
        values[pair] = radius * std::cos(angle);
        values[pair + 1] = radius * std::sin(angle);
      }
    }
    out[i] = static_cast<Real>(values[at % 4]);
  }
}

template void RandomStream::uniform(std::span<float>, std::uint64_t, double) const;
template void RandomStream::uniform(std::span<double>, std::uint64_t, double) const;
template void RandomStream::normal(std::span<float>, std::uint64_t) const;
template void RandomStream::normal(std::span<double>, std::uint64_t) const;

}  // namespace baton
