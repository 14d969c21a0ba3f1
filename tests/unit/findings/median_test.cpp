#include "baton/findings/median.h"

#include <gtest/gtest.h>

namespace baton::findings {
namespace {

TEST(Median, IsTheOneInTheMiddleOrTheMeanOfTheTwoThatAre) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 10}), 3);
  EXPECT_EQ(median({7}), 7);
  EXPECT_EQ(median({}), 0);
}

}  // namespace
}  // namespace baton::findings
