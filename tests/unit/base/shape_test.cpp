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

TEST(Shape, OfMoreAxesThanLieInItIsCopiedMovedAndCompared) {
  const Shape shape{2, 3, 4, 5, 6, 7};
  Shape copy = shape;
  EXPECT_EQ(copy, shape);
  EXPECT_EQ(copy.elements(), 5040);
  Shape moved = std::move(copy);
  EXPECT_EQ(moved, shape);
  moved = Shape{9};
  EXPECT_EQ(moved, Shape{9});
  moved = shape;
  EXPECT_EQ(moved, shape);
  EXPECT_EQ(moved.batched(1).rank(), 7U);
  EXPECT_NE((Shape{2, 3, 4, 5, 6, 8}), shape);
  EXPECT_NE((Shape{2, 3, 4, 5}), shape);
}

TEST(InlineVector, GrowsBeyondWhatLiesInIt) {
  InlineVector<int, 2> list;
  for (int i = 0; i < 9; ++i) {
    list.push_back(i == 0 ? 7 : list[0] + i);  // a value of its own, too
  }
  EXPECT_EQ(list, (InlineVector<int, 2>{7, 8, 9, 10, 11, 12, 13, 14, 15}));
  InlineVector<int, 2> other = list;
  other = std::move(list);
  EXPECT_EQ(other.size(), 9U);
  other = InlineVector<int, 2>{1};
  EXPECT_EQ(other, (InlineVector<int, 2>{1}));
  other.push_back(2);
  other.pop_back();
  EXPECT_EQ(other.back(), 1);
}

}  // namespace
}  // namespace baton
