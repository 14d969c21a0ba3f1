#include "baton/base/preparation.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/usage_sentence.h"

namespace baton {
namespace {

TEST(PixelScale, IsWrittenAsItIsRead) {
  for (const char* text : {"none", "mnist", "imagenet", "0.5/0.25", "0.49,0.48,0.45/0.25,0.24,0.26"}) {
    EXPECT_EQ(to_text(parse_pixel_scale(text)), text);
    EXPECT_EQ(parse_pixel_scale(to_text(parse_pixel_scale(text))), parse_pixel_scale(text));
  }
  EXPECT_EQ(to_text(parse_pixel_scale("CIFAR10")), "cifar10");
  EXPECT_EQ(to_text(PixelScale()), "0.5/0.5");
}

TEST(PixelScale, HasADeviationForEachMean) {
  EXPECT_TRUE(test::says(test::usage_sentence([] { parse_pixel_scale("0.5,1/1"); }), "2 means and 1"));
  EXPECT_TRUE(test::says(test::usage_sentence([] { parse_pixel_scale("0.5/0"); }), "a deviation of --normalize"));
}

TEST(Augmentation, IsWrittenAsItIsRead) {
  for (const char* text : {"none", "flip", "crop=4", "crop=4,flip"}) {
    EXPECT_EQ(to_text(parse_augmentation(text)), text);
  }
  EXPECT_EQ(to_text(parse_augmentation("flip,crop=4")), "crop=4,flip");
}

TEST(Augmentation, OfNoneHasNothingBesideIt) {
  EXPECT_EQ(test::usage_sentence([] { parse_augmentation("none,flip"); }),
            "--augment has 'none' and other changes: leave out one or the others");
}

TEST(TokenTypes, AreNamedInTheOrderOfTheirValues) {
  EXPECT_EQ(to_text(TokenType::uint16), "uint16");
  EXPECT_EQ(to_text(TokenType::uint32), "uint32");
}

TEST(PixelScale, IsInRangeIfNormalizeTakesIt) {
  EXPECT_TRUE(is_in_range(parse_pixel_scale("imagenet")));
  EXPECT_TRUE(is_in_range({{-1000}, {1e-6}}));
  EXPECT_FALSE(is_in_range({{0}, {3.9e-7}}));
  EXPECT_FALSE(is_in_range({{0, 1001}, {1, 1}}));
  EXPECT_FALSE(is_in_range({{0}, {std::numeric_limits<double>::quiet_NaN()}}));
}

}  // namespace
}  // namespace baton
