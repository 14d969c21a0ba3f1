#include "baton/base/narrow.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace baton {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// The value of a 16-bit pattern by the formula of the format: sign, exponent, digits.
double by_formula(std::uint16_t bits, int exponent_bits) {
  const int digit_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> digit_bits & ((1 << exponent_bits) - 1);
  const int digits = bits & ((1 << digit_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return digits == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(digits, 1 - bias - digit_bits)
                       : sign * std::ldexp((1 << digit_bits) + digits, exponent - bias - digit_bits);
}

/// The nearest of all values of a format, found among the two neighbours of where a search ends; the even one
/// of two that are equally near. The value past the largest counts as infinity, as IEEE 754 says.
template <typename Narrow>
std::uint16_t nearest(float value, int exponent_bits, std::uint16_t infinite) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::abs(static_cast<double>(value));
  std::uint16_t low = 0;  // the largest pattern whose value is not above `size`
  for (std::uint16_t step = 0x4000; step > 0; step = static_cast<std::uint16_t>(step / 2)) {
    const auto next = static_cast<std::uint16_t>(low + step);
    if (next < infinite && by_formula(next, exponent_bits) <= size) {
      low = next;
    }
  }
  const double below = by_formula(low, exponent_bits);
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double above = high < infinite ? by_formula(high, exponent_bits)
                                       : 2 * below - by_formula(static_cast<std::uint16_t>(low - 1), exponent_bits);
  const bool up = size - below > above - size || (size - below == above - size && low % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

TEST(Narrow, EveryPatternHasTheValueOfItsFormat) {
  for (std::uint32_t i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    F16 half;
    half.bits = bits;
    Bf16 brain;
    brain.bits = bits;
    const double expected_half = by_formula(bits, 5);
    const double expected_brain = by_formula(bits, 8);
    const auto actual_half = static_cast<double>(static_cast<float>(half));
    const auto actual_brain = static_cast<double>(static_cast<float>(brain));
    ASSERT_TRUE(std::isnan(expected_half) ? std::isnan(actual_half) : expected_half == actual_half) << i;
    ASSERT_TRUE(std::isnan(expected_brain) ? std::isnan(actual_brain) : expected_brain == actual_brain) << i;
    ASSERT_EQ(std::signbit(actual_half), (bits & 0x8000) != 0) << i;
  }
}

TEST(Narrow, EveryValueGoesThereAndBackUnchanged) {
  for (std::uint32_t i = 0; i <= 0xffff; ++i) {
    F16 half;
    half.bits = static_cast<std::uint16_t>(i);
    if (!std::isnan(static_cast<float>(half))) {
      ASSERT_EQ(F16(static_cast<float>(half)).bits, half.bits);
    }
    Bf16 brain;
    brain.bits = static_cast<std::uint16_t>(i);
    if (!std::isnan(static_cast<float>(brain))) {
      ASSERT_EQ(Bf16(static_cast<float>(brain)).bits, brain.bits);
    }
  }
}

TEST(Narrow, AnyFloatIsRoundedToTheNearestAndATieToTheEven) {
  std::mt19937 random(7);
  const auto hold = [](float value) {
    ASSERT_EQ(F16(value).bits, nearest<F16>(value, 5, 0x7c00)) << value;
    ASSERT_EQ(Bf16(value).bits, nearest<Bf16>(value, 8, 0x7f80)) << value;
  };
  for (int i = 0; i < 300000; ++i) {
    const float value = float_of(static_cast<std::uint32_t>(random()));
    if (std::isfinite(value)) {
      hold(value);
    }
    // Where binary16 has its numbers.
    hold(std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 50) - 58));
  }
  // Exactly between two neighbours, and a hair to each side.
  for (std::uint32_t i = 0; i < 0x7bff; ++i) {
    F16 low;
    low.bits = static_cast<std::uint16_t>(i);
    F16 high;
    high.bits = static_cast<std::uint16_t>(i + 1);
    const float middle = (static_cast<float>(low) + static_cast<float>(high)) / 2;
    for (const float value : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, infinity), -middle}) {
      hold(value);
    }
  }
}

TEST(Narrow, WhatIsTooLargeBecomesInfiniteAndANanStaysOne) {
  EXPECT_EQ(F16(65504.0F).bits, 0x7bff);
  EXPECT_EQ(F16(65519.996F).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(F16(1e30F).bits, 0x7c00);
  EXPECT_EQ(F16(-infinity).bits, 0xfc00);
  EXPECT_EQ(Bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(Bf16(infinity).bits, 0x7f80);
  for (const std::uint32_t bits : {0x7fc00000U, 0x7f800001U, 0xff800001U, 0x7fffffffU}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(F16(float_of(bits))))) << bits;
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(float_of(bits))))) << bits;
  }
}

TEST(Narrow, WhatIsTooSmallForBinary16BecomesZeroAndNotForBfloat16) {
  EXPECT_EQ(F16(0x1p-24F).bits, 1);
  EXPECT_EQ(F16(0x1p-25F).bits, 0);  // a tie, and zero is even
  EXPECT_EQ(F16(std::nextafter(0x1p-25F, 1.0F)).bits, 1);
  EXPECT_EQ(F16(-1e-9F).bits, 0x8000);
  EXPECT_EQ(static_cast<float>(Bf16(0x1p-100F)), 0x1p-100F);
}

}  // namespace
}  // namespace baton
