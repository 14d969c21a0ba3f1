#pragma once

#include <bit>
#include <cstdint>

/// The two 16-bit floating formats. Rounding is to the nearest, ties to even; subnormals are kept; values that
/// are too large become infinite; a NaN stays one. The bits are those of the hardware instructions, if the
/// hardware has them.
namespace baton {

/// Float's range with 8 bits of precision: its upper half.
struct Bf16 {
  std::uint16_t bits = 0;

  constexpr Bf16() = default;
  constexpr explicit Bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffU) > 0x7f800000U) {
      bits = static_cast<std::uint16_t>(word >> 16 | 0x40U);  // quiet, so that cutting cannot make it infinite
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
    }
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// IEEE 754's binary16: 11 bits of precision, up to 65504, down to 2⁻²⁴ (with full precision to 2⁻¹⁴).
struct F16 {
  std::uint16_t bits = 0;

  constexpr F16() = default;
  constexpr explicit F16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = word >> 16 & 0x8000U;
    const std::uint32_t magnitude = word & 0x7fffffffU;
    std::uint32_t rounded = 0;
    if (magnitude > 0x7f800000U) {
      rounded = 0x7e00U | (magnitude >> 13 & 0x3ffU);
    } else if (magnitude >= 0x47800000U) {  // 65536 and more; what rounds up to it gets there below
      rounded = 0x7c00U;
    } else if (magnitude >= 0x38800000U) {  // 2⁻¹⁴: the exponent is rebased, the rest rounded
      rounded = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
    } else if (magnitude >= 0x33000000U) {  // 2⁻²⁵: in units of 2⁻²⁴
      const std::uint32_t shift = 126U - (magnitude >> 23);
      const std::uint32_t digits = (magnitude & 0x7fffffU) | 0x800000U;
      const std::uint32_t kept = digits >> shift;
      const std::uint32_t rest = digits & ((1U << shift) - 1U);
      const std::uint32_t half = 1U << (shift - 1U);
      rounded = kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U);
    }
    bits = static_cast<std::uint16_t>(sign | rounded);
  }
  constexpr explicit operator float() const {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1fU;
    const std::uint32_t digits = bits & 0x3ffU;
    if (exponent == 0) {
      const float size = static_cast<float>(digits) * 0x1p-24F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(size));
    }
    const std::uint32_t quiet = digits != 0 ? 0x400000U : 0;
    return std::bit_cast<float>(exponent == 31 ? sign | 0x7f800000U | digits << 13 | quiet
                                               : sign | (exponent + 112U) << 23 | digits << 13);
  }
};

}  // namespace baton
