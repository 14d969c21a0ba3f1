#include "baton/lab/stack_size.h"

#include <gtest/gtest.h>

#include "support/usage_sentence.h"

namespace baton::lab {
namespace {

TEST(StackSize, IsReadFromWidthAndDepth) {
  EXPECT_EQ(StackSize::parse("1024x2"), (StackSize{1024, 2}));
  EXPECT_EQ(StackSize::parse("512"), (StackSize{512, 2}));
  EXPECT_EQ(StackSize::parse("8192x8")->model().text(), "mlp:dim=8192,depth=8");
}

TEST(StackSize, IsNotInTheNameOfAModel) {
  for (const char* other : {"", "gpt2", "mlp:dim=8,depth=2", "bigxdeep", "8 x 2"}) {
    EXPECT_EQ(StackSize::parse(other), std::nullopt) << other;
  }
}

TEST(StackSize, NamesTheNumberThatIsOutOfRange) {
  EXPECT_TRUE(test::says(test::usage_sentence([] { StackSize::parse("4x0"); }), "DEPTH of the case 4x0 is '0'"));
  EXPECT_TRUE(test::says(test::usage_sentence([] { StackSize::parse("x2"); }), "DIM of the case x2 is ''"));
  EXPECT_TRUE(test::says(test::usage_sentence([] { StackSize::parse("4x2x2"); }), "DEPTH of the case 4x2x2 is '2x2'"));
}

}  // namespace
}  // namespace baton::lab
