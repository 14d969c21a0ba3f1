#include "baton/ranks/pack.h"

#include <gtest/gtest.h>

namespace baton::ranks {
namespace {

TEST(Pack, ValuesAreReadBackAsTheyWereWritten) {
  const std::string bytes = Packer().add(std::int64_t{-7}).add_text("rank").add_text("").add(2.5).bytes();
  Unpacker unpacker(bytes);
  EXPECT_EQ(unpacker.take<std::int64_t>(), -7);
  EXPECT_EQ(unpacker.take_text(), "rank");
  EXPECT_EQ(unpacker.take_text(), "");
  EXPECT_EQ(unpacker.take<double>(), 2.5);
  EXPECT_TRUE(unpacker.good());
}

TEST(Pack, WhatIsCutShortGivesZerosAndIsTold) {
  const std::string bytes = Packer().add(std::int64_t{-1}).add_text("rank").bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    Unpacker unpacker(std::string_view(bytes).substr(0, length));
    const auto number = unpacker.take<std::int64_t>();
    EXPECT_EQ(number, length < sizeof number ? 0 : -1);
    EXPECT_EQ(unpacker.take_text(), "");
    EXPECT_FALSE(unpacker.good()) << length;
  }
}

TEST(Pack, WhatOneRankSendsAnotherReadsFromItsBlob) {
  const Packer packer = Packer().add(std::uint8_t{3}).add_text("rank");
  const Blob blob(packer.span().begin(), packer.span().end());
  Unpacker unpacker(blob);
  EXPECT_EQ(unpacker.take<std::uint8_t>(), 3);
  EXPECT_FALSE(unpacker.empty());
  EXPECT_EQ(unpacker.take_text(), "rank");
  EXPECT_TRUE(unpacker.empty());
  EXPECT_TRUE(unpacker.good());
}

}  // namespace
}  // namespace baton::ranks
