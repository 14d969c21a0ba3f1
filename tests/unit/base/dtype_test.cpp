#include "baton/base/dtype.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

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

}  // namespace
}  // namespace baton
