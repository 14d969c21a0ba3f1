#include "baton/exec/rounding.h"

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

template <typename Narrow>
void narrow_each(const float* __restrict from, Narrow* __restrict to, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < count; ++i) {
    to[i] = Narrow(from[i]);
  }
}

/// Counts from the bits, so that the loop has no branches.
Rounding compare(const float* from, const std::byte* to, std::uint32_t infinity, std::int64_t count) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(from);
  const auto* rounded = reinterpret_cast<const std::uint16_t*>(to);
  Rounding total;
  constexpr std::int64_t strip = 4096;  // its counts fit in 32 bits, which vectors hold more of
  for (std::int64_t begin = 0; begin < count; begin += strip) {
    const std::int64_t end = begin + strip < count ? begin + strip : count;
    std::uint32_t values = 0;
    std::uint32_t zeros = 0;
    std::uint32_t infinities = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t before = words[i] & 0x7fffffffU;
      const std::uint32_t after = rounded[i] & 0x7fffU;
      values += before != 0 ? 1U : 0U;
      zeros += before != 0 && after == 0 ? 1U : 0U;
      infinities += before < 0x7f800000U && after == infinity ? 1U : 0U;
    }
    total += {values, zeros, infinities};
  }
  return total;
}

constexpr std::uint32_t infinity_of(DType type) { return type == DType::f16 ? 0x7c00U : 0x7f80U; }

}  // namespace

void widen(DType type, const std::byte* from, float* to, std::int64_t count) {
  check(is_narrow(type), "{} is no 16-bit type", to_text(type));
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
  check(is_narrow(type), "{} is no 16-bit type", to_text(type));
  if (type == DType::bf16) {
    narrow_each(from, reinterpret_cast<Bf16*>(to), 0, count);
    return compare(from, to, infinity_of(type), count);
  }
  std::int64_t done = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; done + 8 <= count; done += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + done * 2),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + done), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#endif
  narrow_each(from, reinterpret_cast<F16*>(to), done, count);
  return compare(from, to, infinity_of(type), count);
}

}  // namespace baton::exec
