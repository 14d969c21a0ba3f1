#include "baton/exec/rounding.h"

#include <algorithm>
#include <bit>

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

#include "baton/base/error.h"
#include "baton/base/narrow.h"

namespace baton::exec {
namespace {

template <typename Narrow>
void widen_each(const Narrow* __restrict from, float* __restrict to, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < count; ++i) {
    to[i] = static_cast<float>(from[i]);
  }
}

constexpr std::int64_t rounded_together =
    4096;  // its counts fit in 32 bits, which vectors hold more of, and its floats in the nearest cache

/// The bits of `Bf16(value)`, both cases computed and one chosen, so that a loop over them has no branches.
std::uint16_t bf16_bits(std::uint32_t word) {
  const std::uint32_t quiet = word >> 16 | 0x40U;
  const std::uint32_t nearest = (word + 0x7fffU + (word >> 16 & 1U)) >> 16;
  return static_cast<std::uint16_t>((word & 0x7fffffffU) > 0x7f800000U ? quiet : nearest);
}

void narrow_bf16(const float* __restrict from, std::uint16_t* __restrict to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = bf16_bits(std::bit_cast<std::uint32_t>(from[i]));
  }
}

void narrow_f16(const float* __restrict from, std::uint16_t* __restrict to, std::int64_t count) {
  std::int64_t done = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; done + 8 <= count; done += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + done),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + done), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  for (; done < count; ++done) {
    to[done] = F16(from[done]).bits;
  }
}

/// Counts from the bits and with `&` instead of `&&`: no branches, so that the compiler uses vectors and the time does not depend
/// on the values.
Rounding compare(const float* __restrict from, const std::uint16_t* __restrict rounded, std::uint32_t infinity,
                 std::int64_t count) {
  std::uint32_t values = 0;
  std::uint32_t zeros = 0;
  std::uint32_t infinities = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t before = std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffU;
    const std::uint32_t after = rounded[i] & 0x7fffU;
    const std::uint32_t given = before != 0 ? 1U : 0U;
    const std::uint32_t zero = after == 0 ? 1U : 0U;
    const std::uint32_t finite = before < 0x7f800000U ? 1U : 0U;
    const std::uint32_t infinite = after == infinity ? 1U : 0U;
    values += given;
    zeros += given & zero;
    infinities += finite & infinite;
  }
  return {values, zeros, infinities};
}

constexpr std::uint32_t infinity_of(DType type) { return type == DType::f16 ? 0x7c00U : 0x7f80U; }

}  // namespace

void widen(DType type, const std::byte* from, float* to, std::int64_t count) {
  check(is_narrow(type), "{} is not a 16-bit type", to_text(type));
  if (type == DType::bf16) {
    widen_each(reinterpret_cast<const Bf16*>(from), to, 0, count);
    return;
  }
  std::int64_t done = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; done + 8 <= count; done += 8) {
    _mm256_storeu_ps(to + done, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done * 2))));
  }
#endif
  widen_each(reinterpret_cast<const F16*>(from), to, done, count);
}

Rounding narrow(DType type, const float* from, std::byte* to, std::int64_t count) {
  check(is_narrow(type), "{} is not a 16-bit type", to_text(type));
  Rounding total;
  for (std::int64_t begin = 0; begin < count; begin += rounded_together) {
    const std::int64_t length = std::min(rounded_together, count - begin);
    auto* rounded = reinterpret_cast<std::uint16_t*>(to + begin * 2);
    if (type == DType::bf16) {
      narrow_bf16(from + begin, rounded, length);
    } else {
      narrow_f16(from + begin, rounded, length);
    }
    total += compare(from + begin, rounded, infinity_of(type), length);
  }
  return total;
}

}  // namespace baton::exec
