#include <gtest/gtest.h>

#include <unordered_set>

#include "baton/base/dtype.h"
#include "baton/base/error.h"
#include "baton/base/hash.h"
#include "baton/base/ids.h"
#include "baton/base/shape.h"
#include "baton/base/text.h"

namespace baton {
namespace {

TEST(Shape, CountsItsElementsAndPrints) {
  const Shape shape{64, 1024};
  EXPECT_EQ(shape.rank(), 2U);
  EXPECT_EQ(shape[1], 1024);
  EXPECT_EQ(shape.elements(), 65536);
  EXPECT_EQ(to_text(shape), "64x1024");
  EXPECT_EQ(to_text(Shape{7}), "7");
  EXPECT_EQ(Shape{}.elements(), 1);
}

TEST(Shape, GetsItsBatchInFront) {
  EXPECT_EQ((Shape{3, 4}.batched(8)), (Shape{8, 3, 4}));
  EXPECT_EQ((Shape{5}.batched(1)), (Shape{1, 5}));
}

TEST(Shape, EqualOnlyWhenEveryExtentIs) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{6}), (Shape{2, 3}));
}

TEST(DTypes, HaveTheirSizeAndName) {
  EXPECT_EQ(size_of(DType::f32), 4);
  EXPECT_EQ(size_of(DType::f64), 8);
  EXPECT_EQ(size_of(DType::i32), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::f16), 2);
  EXPECT_EQ(to_text(DType::f32), "f32");
  EXPECT_EQ(to_text(DType::f64), "f64");
  EXPECT_EQ(to_text(DType::i32), "i32");
  EXPECT_EQ(to_text(DType::bf16), "bf16");
  EXPECT_EQ(to_text(DType::f16), "f16");
  for (const DType type : all_dtypes) {
    EXPECT_EQ(dtype_by_name(to_text(type)), type);
  }
  EXPECT_FALSE(dtype_by_name("f8").has_value());
}

TEST(Text, SplitsAtEverySeparator) {
  using Pieces = std::vector<std::string_view>;
  EXPECT_EQ(split("a,b,c", ','), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(split("", ','), (Pieces{""}));
  EXPECT_EQ(split("a,", ','), (Pieces{"a", ""}));
  EXPECT_EQ(split(",,", ','), (Pieces{"", "", ""}));
}

TEST(Text, ListsChoicesAsASentenceWould) {
  EXPECT_EQ(either({"a"}), "a");
  EXPECT_EQ(either({"a", "b"}), "a or b");
  EXPECT_EQ(either({"a", "b", "c"}), "a, b or c");
}

TEST(Text, NamesDoNotCareForCaseOrUnderscores) {
  EXPECT_EQ(canonical("Cross_Entropy"), "cross-entropy");
  EXPECT_EQ(canonical("zero-1"), "zero-1");
}

TEST(Ids, AreInvalidUntilTheyAreGivenAndHashByValue) {
  EXPECT_FALSE(TaskId().valid());
  EXPECT_TRUE(TaskId(0).valid());
  EXPECT_LT(TaskId(1), TaskId(2));
  std::unordered_set<TaskId> seen{TaskId(1), TaskId(1), TaskId(2)};
  EXPECT_EQ(seen.size(), 2U);
}

TEST(Errors, CarryTheirKindAndSentence) {
  const Error bad = usage_error("batch is {}", 0);
  EXPECT_EQ(bad.kind(), Error::Kind::usage);
  EXPECT_STREQ(bad.what(), "batch is 0");
  EXPECT_EQ(failure("gone").kind(), Error::Kind::failure);
}

TEST(Errors, ABugNamesItsPlaceAndItsValues) {
  EXPECT_NO_THROW(check(true, "never said"));
  try {
    check(1 > 2, "{} is not above {}", 1, 2);
    FAIL() << "held";
  } catch (const BugError& bug) {
    const std::string text = bug.what();
    EXPECT_NE(text.find("shape_and_text_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("1 is not above 2"), std::string::npos) << text;
  }
}

TEST(DidYouMean, TheNearestNameIsOffered) {
  const std::vector<std::string> names{"single", "dp", "ddp", "strong-scaling", "timing"};
  EXPECT_EQ(did_you_mean("singel", names), " (did you mean single?)") << "two letters swapped are one slip";
  EXPECT_EQ(did_you_mean("dpd", names), " (did you mean dp?)");
  EXPECT_EQ(did_you_mean("Strong_Scalin", names), " (did you mean strong-scaling?)");
  EXPECT_EQ(did_you_mean("stro", names), " (did you mean strong-scaling?)") << "it begins so";
}

TEST(DidYouMean, NothingIsOfferedWhereNoneIsNear) {
  EXPECT_EQ(did_you_mean("magic", {"single", "dp", "ddp"}), "");
  EXPECT_EQ(did_you_mean("x", {"y"}), "") << "all of it would have to change";
  EXPECT_EQ(did_you_mean("", {"dp"}), "");
  EXPECT_EQ(did_you_mean("dp", {}), "");
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'a'), {"ddp"}), "");
}

TEST(ForEachSetting, GivesEachAsItIsWrittenItsKeyAndItsValue) {
  std::vector<std::string> seen;
  for_each_setting("Some_Key=1=2,bare,,x=", [&](std::string_view setting, const std::string& key, std::string_view value) {
    seen.push_back(std::string(setting) + "|" + key + "|" + std::string(value));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"Some_Key=1=2|some-key|1=2", "bare|bare|", "||", "x=|x|"}));
}

TEST(TimeText, IsADayAndAMinute) {
  const std::string now = time_text();
  ASSERT_EQ(now.size(), 16U) << now;
  EXPECT_EQ(now[4], '-');
  EXPECT_EQ(now[13], ':');
}

TEST(Hash, TellsContentsApartHoweverTheyAreAdded) {
  Hash parts;
  parts.add("eight by");
  parts.add("tes and");
  EXPECT_EQ(parts.value(), Hash("eight bytes and").value()) << "words of eight bytes are the same";
  EXPECT_NE(Hash("a").value(), Hash("b").value());
  EXPECT_NE(Hash("").value(), Hash(std::string_view("\0", 1)).value());
}

TEST(DisplayWidth, CountsCharactersAndNotBytes) {
  EXPECT_EQ(display_width("1.70×"), 5U);
  EXPECT_EQ(display_width("p−1"), 3U);
  EXPECT_EQ(display_width(""), 0U);
}

}  // namespace
}  // namespace baton
