#include "baton/base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/usage_sentence.h"

namespace baton {
namespace {

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

TEST(UnknownName, SaysWhatWasMeantAndWhatThereIs) {
  const std::string said = test::usage_sentence([] { throw unknown_name("fruit", "aple", {"apple", "pear", "plum"}); });
  EXPECT_EQ(said, "unknown fruit 'aple' (did you mean apple?): choose apple, pear or plum");
}

TEST(IndexOfName, FindsAWordHoweverItIsSpelt) {
  const std::vector<std::string> names{"none", "cross-entropy"};
  EXPECT_EQ(index_of_name(names, "Cross_Entropy", "loss"), 1U);
  EXPECT_EQ(test::usage_sentence([&] { index_of_name(names, "non", "loss"); }),
            "unknown loss 'non' (did you mean none?): choose none or cross-entropy");
}

TEST(ForEachSetting, GivesEachAsItIsWrittenItsKeyAndItsValue) {
  std::vector<std::string> seen;
  for_each_setting("Some_Key=1=2,bare,,x=", [&](std::string_view setting, const std::string& key, std::string_view value) {
    seen.push_back(std::string(setting) + "|" + key + "|" + std::string(value));
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"Some_Key=1=2|some-key|1=2", "bare|bare|", "||", "x=|x|"}));
}

TEST(ForEachSetting, RefusesAKeyThatComesAgain) {
  const auto none = [](std::string_view, const std::string&, std::string_view) {};
  EXPECT_TRUE(
      test::says(test::usage_sentence([&] { for_each_setting("core=0.2,core=0.3", none); }), "'core=0.2,core=0.3' has core twice"));
  EXPECT_TRUE(test::says(test::usage_sentence([&] { for_each_setting("a=1,b=2,A=1", none); }), "a twice"));
  EXPECT_NO_THROW(for_each_setting("a=1,b=1", none));
}

TEST(TimeText, IsADayAndAMinute) {
  const std::string now = time_text();
  ASSERT_EQ(now.size(), 16U) << now;
  EXPECT_EQ(now[4], '-');
  EXPECT_EQ(now[13], ':');
}

TEST(DisplayWidth, CountsCharactersAndNotBytes) {
  EXPECT_EQ(display_width("1.70×"), 5U);
  EXPECT_EQ(display_width("p−1"), 3U);
  EXPECT_EQ(display_width(""), 0U);
}

TEST(Text, IsUtf8OnlyWithoutOverlongFormsAndSurrogates) {
  for (const char* good : {"", "abc", "\u00e4", "\u20ac", "\U0001f600", "a\u00e4b\u20acc"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\xff", "\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                          "\xf4\x90\x80\x80", "a\xe2\x82", "\xf5\x80\x80\x80", "\xe2\x82z"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace baton
