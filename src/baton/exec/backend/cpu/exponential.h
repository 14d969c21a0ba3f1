#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
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

/// Zero instead of a number above zero that is so small that arithmetic with it may take a hundred times as long.
inline float without_denormals(float x) { return x < 1e-30F ? 0 : x; }

/// The error function to within 2e-7, without branches: near zero an odd series, elsewhere 1 − e^q with q a series for ln erfc.
/// Both are least-squares fits towards the smallest largest error, 1.5e-8 and 1.5e-9 of erf.
inline float error_function(float x) {
  const float u = x * x;
  float small = -6.02180662e-4F;
  small = small * u + 4.99960175e-3F;
  small = small * u - 2.67712846e-2F;
  small = small * u + 1.12819552e-1F;
  small = small * u - 3.76125067e-1F;
  small = small * u + 1.12837911F;
  const float t = std::min(std::abs(x), 3.95F);  // from there on erf rounds to 1
  float q = 1.95938498e-4F;
  q = q * t - 3.04322899e-3F;
  q = q * t + 2.22269651e-2F;
  q = q * t - 1.03931680e-1F;
  q = q * t - 6.37182176e-1F;
  q = q * t - 1.12767565F;
  q = q * t - 1.95663262e-4F;
  return t < 0.92F ? x * small : std::copysign(1 - exponential(q), x);
}

inline float sigmoid(float x) { return 1 / (1 + exponential(-x)); }

}  // namespace baton::exec::cpu
