#include "baton/cuda/library.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"

namespace baton::cuda {
namespace {

TEST(Library, WhatIsNotThereIsNotFoundAndHasNoFunctions) {
  const Library none("libnothing_of_that_name.so.1");
  EXPECT_FALSE(none.found());
  double (*function)(double) = nullptr;
  none.look_up(function, "cos");
  EXPECT_EQ(function, nullptr);
}

TEST(Library, FindsFunctionsAndNamesTheOneThatItLacks) {
  const Library mathematics("libm.so.6");
  ASSERT_TRUE(mathematics.found());
  double (*cosine)(double) = nullptr;
  mathematics.find(cosine, "cos");
  EXPECT_EQ(cosine(0), 1);
  try {
    mathematics.find(cosine, "no_such_function");
    FAIL() << "found it";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "libm.so.6 lacks no_such_function");
  }
}

}  // namespace
}  // namespace baton::cuda
