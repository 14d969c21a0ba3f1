#include "baton/base/hash.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Hash, TellsContentsApartHoweverTheyAreAdded) {
  Hash parts;
  parts.add("eight by");
  parts.add("tes and");
  EXPECT_EQ(parts.value(), Hash("eight bytes and").value()) << "words of eight bytes are the same";
  EXPECT_NE(Hash("a").value(), Hash("b").value());
  EXPECT_NE(Hash("").value(), Hash(std::string_view("\0", 1)).value());
}

}  // namespace
}  // namespace baton
