#include "baton/exec/rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "baton/base/narrow.h"

namespace baton::exec {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<std::uint16_t> narrowed(DType type, const std::vector<float>& values, Rounding* rounding = nullptr) {
  std::vector<std::uint16_t> bits(values.size());
  const Rounding done = narrow(type, values.data(), reinterpret_cast<std::byte*>(bits.data()),
                               static_cast<std::int64_t>(values.size()));
  if (rounding != nullptr) {
    *rounding = done;
  }
  return bits;
}

TEST(Rounding, WidensEveryPatternToTheBitsOfThePlainConversion) {
  std::vector<std::uint16_t> bits(0x10000);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(i);
  }
  // In several lengths, so that the last few of a run are reached too.
  for (const std::size_t begin : {0U, 3U, 65529U}) {
    const std::size_t count = bits.size() - begin;
    for (const DType type : {DType::bf16, DType::f16}) {
      std::vector<float> wide(count);
      widen(type, reinterpret_cast<const std::byte*>(bits.data() + begin), wide.data(), static_cast<std::int64_t>(count));
      for (std::size_t i = 0; i < count; ++i) {
        Bf16 brain;
        brain.bits = bits[begin + i];
        F16 half;
        half.bits = bits[begin + i];
        const float expected = type == DType::bf16 ? static_cast<float>(brain) : static_cast<float>(half);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected))
            << to_text(type) << " " << bits[begin + i];
      }
    }
  }
}

TEST(Rounding, NarrowsAnyFloatToTheBitsOfThePlainConversion) {
  std::mt19937 random(3);
  std::vector<float> values{0.0F, -0.0F, infinity, -infinity, 65504, 65519.996F, 65520, 0x1p-24F, 0x1p-25F, 0x1.000002p-25F};
  for (int i = 0; i < 1'000'003; ++i) {
    // All patterns, NaNs among them, and again those where binary16 has its numbers.
    const auto word = static_cast<std::uint32_t>(random());
    values.push_back(std::bit_cast<float>(word));
    values.push_back(std::bit_cast<float>((word & 0x807fffffU) | (0x65U + word % 44U) << 23));
  }
  const std::vector<std::uint16_t> brain = narrowed(DType::bf16, values);
  const std::vector<std::uint16_t> half = narrowed(DType::f16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(brain[i], Bf16(values[i]).bits) << values[i];
    ASSERT_EQ(half[i], F16(values[i]).bits) << values[i];
  }
}

TEST(Rounding, CountsWhatVanishesAndWhatBecomesInfinite) {
  Rounding half;
  narrowed(DType::f16, {0.0F, -0.0F, 1.0F, 1e-8F, -1e-9F, 6e-8F, 7e4F, -1e20F, infinity, std::nanf(""), 65504}, &half);
  EXPECT_EQ(half, (Rounding{.values = 9, .underflows = 2, .overflows = 2}));
  Rounding brain;
  narrowed(DType::bf16, {0.0F, -0.0F, 1.0F, 1e-8F, -1e-9F, 6e-8F, 7e4F, -1e20F, infinity, std::nanf(""), 65504}, &brain);
  EXPECT_EQ(brain, (Rounding{.values = 9, .underflows = 0, .overflows = 0}));
  narrowed(DType::bf16, {std::numeric_limits<float>::max(), 1e-45F}, &brain);
  EXPECT_EQ(brain, (Rounding{.values = 2, .underflows = 1, .overflows = 1}));
}

TEST(Rounding, CountsTheSameHoweverLongTheRun) {
  std::vector<float> values(10000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 3 == 0 ? 1e-10F : i % 3 == 1 ? 1e10F : 0.0F;
  }
  Rounding rounding;
  narrowed(DType::f16, values, &rounding);
  EXPECT_EQ(rounding, (Rounding{.values = 6667, .underflows = 3334, .overflows = 3333}));
}

}  // namespace
}  // namespace baton::exec
