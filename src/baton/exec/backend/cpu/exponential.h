#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace baton::exec::cpu {

/// e^x to within two units in the last place, without branches, so that loops of it become vector instructions. Below −87 it is
/// about 1e-38 and not less.
inline float exponential(float x) {
  x = std::min(std::max(x, -87.0F), 88.0F);
  constexpr float shift = 12582912.0F;  // 1.5 · 2²³: adding it rounds to a whole number
  const float n = (x * 1.44269504F + shift) - shift;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  float series = 1.9875691500e-4F;
  series = series * r + 1.3981999507e-3F;
  series = series * r + 8.3334519073e-3F;
  series = series * r + 4.1665795894e-2F;
  series = series * r + 1.6666665459e-1F;
  series = series * r + 5.0000001201e-1F;
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23U;
  return (series * r * r + r + 1) * std::bit_cast<float>(exponent);
}

inline float sigmoid(float x) { return 1 / (1 + exponential(-x)); }

}  // namespace baton::exec::cpu
