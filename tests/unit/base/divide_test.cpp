#include "baton/base/divide.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Divide, GivesTheRemainderToTheFirstOrSpreadsIt) {
  EXPECT_EQ(divide(7, 3, Remainder::first), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(divide(7, 3, Remainder::spread), (std::vector<std::int64_t>{2, 2, 3}));
  EXPECT_EQ(divide(13, 5, Remainder::first), (std::vector<std::int64_t>{3, 3, 3, 2, 2}));
  EXPECT_EQ(divide(13, 5, Remainder::spread), (std::vector<std::int64_t>{2, 3, 2, 3, 3}));
  EXPECT_EQ(divide(1, 2, Remainder::first), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(divide(1, 2, Remainder::spread), (std::vector<std::int64_t>{0, 1}));
}

TEST(Divide, PartsFollowEachOtherAndDifferByOneAtMost) {
  for (const Remainder rule : {Remainder::first, Remainder::spread}) {
    for (std::int64_t count = 0; count <= 40; ++count) {
      for (std::int64_t parts = 1; parts <= 12; ++parts) {
        std::int64_t end = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
          const Range range = divide(count, parts, part, rule);
          EXPECT_EQ(range.begin, end);
          EXPECT_TRUE(range.size() == count / parts || range.size() == count / parts + 1);
          end = range.end;
        }
        EXPECT_EQ(end, count);
      }
    }
  }
}

}  // namespace
}  // namespace baton
