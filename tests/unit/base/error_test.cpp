#include "baton/base/error.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

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
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("1 is not above 2"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace baton
