#include "baton/op/traits.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <type_traits>

namespace baton::op {
namespace {

/// The op with every attribute of these names on, or at that number.
Op with(Op op, const std::set<std::string_view>& wanted, int number = 3) {
  attributes(op, [&](std::string_view attribute, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if (wanted.contains(attribute)) {
      field = std::is_same_v<Field, bool> ? Field(true) : Field(number);
    }
  });
  return op;
}

bool has(Op op, std::string_view wanted) {
  bool found = false;
  attributes(op, [&](std::string_view attribute, auto&) { found = found || attribute == wanted; });
  return found;
}

const std::set<std::string_view> changed_by_passes{"accumulate", "adds",  "copies", "first",    "of",
                                                   "overwrites", "parts", "scaled", "sgd_rate", "tf32"};

TEST(Traits, PlainTakesBackAllThatPassesChangeAndNothingElse) {
  for (const Op& op : all()) {
    EXPECT_EQ(plain(op), op) << name(op);
    EXPECT_EQ(plain(with(op, changed_by_passes)), op) << name(op);
  }
  const Linear model{.relu = true, .out_heads = true, .no_bias = true};
  EXPECT_EQ(plain(model), Op(model));
  EXPECT_EQ(plain(CrossEntropy{.rows = 7, .parts = 2, .first = 1, .of = 4, .smoothing = 0.1, .overwrites = true}),
            (Op(CrossEntropy{.rows = 7, .smoothing = 0.1})));
}

TEST(Traits, Tf32IsForEveryOpThatHasItAndForNoOther) {
  std::size_t products = 0;
  for (const Op& op : all()) {
    EXPECT_FALSE(rounds_to_tf32(op)) << name(op);
    EXPECT_EQ(rounds_to_tf32(with_tf32(op)), has(op, "tf32")) << name(op);
    EXPECT_EQ(with_tf32(op), with(op, {"tf32"})) << name(op);
    EXPECT_EQ(with_tf32(with_tf32(op)), with_tf32(op)) << name(op);
    EXPECT_EQ(has(op, "tf32"), is_product(op)) << name(op);
    products += has(op, "tf32") ? 1 : 0;
  }
  EXPECT_GT(products, 5U);
}

TEST(Traits, NormsAndTheirBackwardAreNorms) {
  for (const Op& op : all()) {
    EXPECT_EQ(is_norm(op), has(op, "epsilon")) << name(op);
  }
  EXPECT_TRUE(is_norm(RmsNormBackwardInput{}));
  EXPECT_FALSE(is_norm(TrackMoments{}));
}

TEST(Traits, TheRateOfAStepIsThatWhichWasGiven) {
  EXPECT_EQ(sgd_rate(*with_sgd(LinearBackwardWeight{}, 0.25)), 0.25);
  for (const Op& op : all()) {
    EXPECT_EQ(sgd_rate(op), 0) << name(op);
    EXPECT_EQ(takes_step(with(op, {"sgd_rate"})), has(op, "sgd_rate")) << name(op);
  }
}

TEST(Traits, OnlyALinearEndsWithARelu) {
  EXPECT_TRUE(ends_with_relu(Linear{.relu = true}));
  EXPECT_FALSE(ends_with_relu(Linear{}));
  EXPECT_FALSE(ends_with_relu(Relu{}));
  EXPECT_FALSE(ends_with_relu(LinearBackwardInput{.mask = true}));
}

TEST(Traits, ALinearProjectsToHeadsIfItsOutputsAreHeads) {
  for (const Op& op : all()) {
    EXPECT_FALSE(projects_to_heads(op)) << name(op);
    EXPECT_EQ(projects_to_heads(with(op, {"out_heads"})), has(op, "out_heads")) << name(op);
  }
  EXPECT_FALSE(projects_to_heads(Linear{.in_heads = true}));
}

}  // namespace
}  // namespace baton::op
