#include "baton/base/ids.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace baton {
namespace {

TEST(Ids, AreInvalidUntilTheyAreGivenAndHashByValue) {
  EXPECT_FALSE(TaskId().valid());
  EXPECT_TRUE(TaskId(0).valid());
  EXPECT_LT(TaskId(1), TaskId(2));
  std::unordered_set<TaskId> seen{TaskId(1), TaskId(1), TaskId(2)};
  EXPECT_EQ(seen.size(), 2U);
}

}  // namespace
}  // namespace baton
