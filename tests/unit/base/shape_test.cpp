#include "baton/base/shape.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace baton
