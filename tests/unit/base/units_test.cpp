#include "baton/base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "baton/base/duration.h"
#include "support/usage_sentence.h"

namespace baton {
namespace {

using test::says;
using test::usage_sentence;

TEST(Units, TimesPrintThreeFiguresAndTheUnitThatSuits) {
  const std::map<std::int64_t, std::string> cases{
      {0, "0 ns"},         {1, "1 ns"},          {999, "999 ns"},        {1000, "1.00 µs"},
      {9994, "9.99 µs"},   {9999, "10.0 µs"},    {12345, "12.3 µs"},     {99960, "100 µs"},
      {123456, "123 µs"},  {9000000, "9.00 ms"}, {1500000000, "1.50 s"}, {-2500, "-2.50 µs"},
      {999700, "1.00 ms"}, {999999999, "1.00 s"}};
  for (const auto& [count, text] : cases) {
    EXPECT_EQ(to_text(Nanoseconds(count)), text) << count;
  }
}

TEST(Units, ATimeThatIsPrintedParsesBack) {
  for (const std::int64_t count : {1, 1000, 12300, 100000, 9000000, 1500000000}) {
    EXPECT_EQ(parse_time(to_text(Nanoseconds(count)), "t"), Nanoseconds(count));
  }
}

TEST(Units, BytesPrintInPowersOf1024) {
  EXPECT_EQ(to_text(Bytes(0)), "0 B");
  EXPECT_EQ(to_text(Bytes(1023)), "1023 B");
  EXPECT_EQ(to_text(Bytes(1024)), "1.00 KiB");
  EXPECT_EQ(to_text(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(to_text(Bytes(25 << 20)), "25.0 MiB");
  EXPECT_EQ(to_text(Bytes((1 << 20) - 1)), "1.00 MiB");
  EXPECT_EQ(to_text(Bytes(std::int64_t{3} << 29)), "1.50 GiB");
  EXPECT_EQ(to_text(Bytes(std::int64_t{5} << 40)), "5.00 TiB");
}

TEST(Units, FlopsPrintInPowersOf1000) {
  EXPECT_EQ(to_text(Flops(999)), "999 FLOP");
  EXPECT_EQ(to_text(Flops(1000)), "1.00 kFLOP");
  EXPECT_EQ(to_text(Flops(268435456)), "268 MFLOP");
  EXPECT_EQ(to_text(Flops(12300000000)), "12.3 GFLOP");
  EXPECT_EQ(to_text(Flops(4000000000000)), "4.00 TFLOP");
}

TEST(Units, QuantitiesAddSubtractAndCompare) {
  Bytes sum(3);
  sum += Bytes(4);
  sum -= Bytes(2);
  EXPECT_EQ(sum, Bytes(5));
  EXPECT_EQ(Bytes(3) + Bytes(4) - Bytes(1), Bytes(6));
  EXPECT_EQ(Bytes(3) * 4, Bytes(12));
  EXPECT_LT(Bytes(3), Bytes(4));
}

TEST(Units, SizesAreReadAsPeopleWriteThem) {
  const std::map<std::string, std::int64_t> cases{
      {"8", 8},           {"0", 0},          {"64K", 65536}, {"64k", 65536}, {"128M", 128 << 20},           {"1G", 1 << 30},
      {"25MB", 25 << 20}, {"1GiB", 1 << 30}, {"1.5K", 1536}, {"100B", 100},  {"2T", std::int64_t{2} << 40}, {"4 KiB", 4096}};
  for (const auto& [text, count] : cases) {
    EXPECT_EQ(parse_bytes(text, "the bucket"), Bytes(count)) << text;
  }
}

TEST(Units, WhatIsNoSizeIsRefusedByNameAndValue) {
  for (const std::string text :
       {"", "K", "-1", "1X", "1KK", "1KBs", "12 34", "inf", "nan", "1e30", "+5", "0x10", "9999999T", "1GBi"}) {
    const std::string sentence = usage_sentence([&] { parse_bytes(text, "the bucket"); });
    EXPECT_TRUE(says(sentence, "the bucket is '" + text + "'")) << text;
    EXPECT_TRUE(says(sentence, "64K")) << text;
  }
}

TEST(Units, TimesNeedAUnit) {
  EXPECT_EQ(parse_time("200ns", "t"), Nanoseconds(200));
  EXPECT_EQ(parse_time("50us", "t"), Nanoseconds(50000));
  EXPECT_EQ(parse_time("50\u00b5s", "t"), Nanoseconds(50000)) << "the micro sign";
  EXPECT_EQ(parse_time("50\u03bcs", "t"), Nanoseconds(50000)) << "the Greek letter mu";
  EXPECT_EQ(parse_time("10ms", "t"), Nanoseconds(10000000));
  EXPECT_EQ(parse_time("1.5s", "t"), Nanoseconds(1500000000));
  EXPECT_EQ(parse_time("0s", "t"), Nanoseconds(0));
  for (const std::string text : {"", "5", "ms", "-1ms", "1 minute", "1m", "1e300s", "nans", "1\u00b5", "1\u00b5\u00b5s"}) {
    const std::string sentence = usage_sentence([&] { parse_time(text, "the delay"); });
    EXPECT_TRUE(says(sentence, "the delay is '" + text + "'")) << text;
    EXPECT_TRUE(says(sentence, "10ms")) << text;
  }
}

TEST(Units, RatesAreFlopsPerSecondInPowersOfTen) {
  EXPECT_DOUBLE_EQ(parse_rate("19.5TFLOP/s", "r"), 19.5e12);
  EXPECT_DOUBLE_EQ(parse_rate("100 Gflop/s", "r"), 1e11);
  EXPECT_DOUBLE_EQ(parse_rate("3flop/s", "r"), 3);
  for (const char* text : {"", "3", "3T", "Tflop/s", "-1Tflop/s", "3Xflop/s", "3Tflops", "0flop/s"}) {
    EXPECT_NE(usage_sentence([&] { parse_rate(text, "the rate"); }).find("the rate"), std::string::npos) << text;
  }
}

TEST(Units, BandwidthsTellBitsFromBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("1GB/s", "b"), 1e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("500MB/s", "b"), 5e8);
  EXPECT_DOUBLE_EQ(parse_bandwidth("25Gb/s", "b"), 25e9 / 8);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1.5 TB/s", "b"), 1.5e12);
  EXPECT_DOUBLE_EQ(parse_bandwidth("64B/s", "b"), 64);
  for (const std::string text : {"", "1", "1GB", "0GB/s", "-1GB/s", "1XB/s", "/s", "1/s", "1G/s", "infGB/s"}) {
    const std::string sentence = usage_sentence([&] { parse_bandwidth(text, "the bandwidth"); });
    EXPECT_TRUE(says(sentence, "the bandwidth is '" + text + "'")) << text;
    EXPECT_TRUE(says(sentence, "25Gb/s")) << text;
  }
}

TEST(Units, WholeNumbersKeepWithinTheirBounds) {
  EXPECT_EQ(parse_integer("1", "n", 1, 8), 1);
  EXPECT_EQ(parse_integer("8", "n", 1, 8), 8);
  EXPECT_EQ(parse_integer("-3", "n", -4, 8), -3);
  for (const std::string text : {"", "0", "9", "1.5", "x", "1x", " 1", "1 ", "99999999999999999999"}) {
    const std::string sentence = usage_sentence([&] { parse_integer(text, "the depth", 1, 8); });
    EXPECT_TRUE(says(sentence, "the depth is '" + text + "'"));
    EXPECT_TRUE(says(sentence, "from 1 to 8"));
  }
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(says(usage_sentence([] { parse_integer("0", "the batch", 1, most); }), "at least 1"));
}

TEST(Units, NumbersAreFiniteAndKeepWithinTheirBounds) {
  EXPECT_DOUBLE_EQ(parse_number("0.5", "rate", 0, 1), 0.5);
  EXPECT_DOUBLE_EQ(parse_number("1e-3", "rate", 0, 1), 1e-3);
  for (const std::string text : {"", "x", "-0.1", "1.1", "0.5x", "nan", "inf", "0.5 "}) {
    EXPECT_TRUE(says(usage_sentence([&] { parse_number(text, "the rate", 0, 1); }), "the rate is '" + text + "'"));
  }
}

TEST(Units, ATimeThatWasComputedIsNoLongerThanSumsCanHold) {
  EXPECT_EQ(to_duration(0).count, 0);
  EXPECT_EQ(to_duration(1.5e9).count, 1'500'000'000);
  for (const double wrong : {1e18, 1e300, std::numeric_limits<double>::infinity(), std::nan(""), -1.0}) {
    EXPECT_TRUE(test::says(test::usage_sentence([&] { static_cast<void>(to_duration(wrong)); }), "longer than")) << wrong;
  }
  EXPECT_THROW(parse_bandwidth("1e308GB/s", "it"), Error);
  EXPECT_THROW(parse_rate("1e308Tflop/s", "it"), Error);
}

}  // namespace
}  // namespace baton
