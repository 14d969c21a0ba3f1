#include "baton/cuda/kept_choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "baton/base/file.h"
#include "baton/base/hash.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "support/variable.h"

namespace baton::cuda {
namespace {

using test::Variable;

constexpr const char* kind = "NVIDIA H200, compute capability 9.0, 132 multiprocessors";

ChoiceKey key(std::int64_t m) {
  return {.shape = {.transpose_a = true,
                    .m = m,
                    .n = 64,
                    .k = 8192,
                    .operands = DType::bf16,
                    .result = DType::f32,
                    .tf32 = true,
                    .bias = true,
                    .relu = true,
                    .gelu = true,
                    .alpha = -0.1F,
                    .beta = 1},
          .workspace = 33554688};
}

Choice choice(std::uint64_t first, bool turned = false) {
  return {.algorithm = {first, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}, .turned = turned};
}

Choices some() {
  return {{key(8192), choice(1)}, {key(1024), choice(9, true)}, {ChoiceKey{.shape = {.m = 1, .n = 1, .k = 1}}, choice(0)}};
}

/// With the line that says that it is whole.
std::string ended(const std::string& before) { return before + fmt::format("end {:016x}\n", Hash(before).value()); }

std::string without_end(const std::string& text) { return text.substr(0, text.rfind("end ")); }

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ChoicesFile : public test::OwnFolder {};

TEST(ChoicesText, IsReadBackAsItWasWritten) {
  EXPECT_EQ(parse_choices(format_choices(some(), kind), kind), some());
  EXPECT_EQ(parse_choices(format_choices({}, kind), kind), Choices());
}

TEST(ChoicesText, OfAnotherKindOfGpuHoldsNothing) {
  const std::string text = format_choices(some(), kind);
  EXPECT_TRUE(parse_choices(text, "NVIDIA H200, compute capability 9.0, 66 multiprocessors").empty());
  EXPECT_TRUE(parse_choices(text, "").empty());
}

TEST(ChoicesText, CutOffAnywhereHoldsNothing) {
  const std::string text = format_choices(some(), kind);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_TRUE(parse_choices(text.substr(0, size), kind).empty()) << size;
  }
}

TEST(ChoicesText, WithAnyByteChangedHoldsNothing) {
  const std::string text = format_choices(some(), kind);
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_TRUE(parse_choices(changed, kind).empty()) << at;
  }
  EXPECT_TRUE(parse_choices(text + "\n", kind).empty());
}

TEST(ChoicesText, ALineThatIsNoChoiceIsNotReadEvenWhereTheFileIsWhole) {
  const std::string none = without_end(format_choices({}, kind));
  const std::string good = "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8";
  ASSERT_EQ(parse_choices(ended(none + good + "\n"), kind).size(), 1U);
  for (const char* bad : {"", "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7",
                          "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8 9",
                          "2 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 0 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 -8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 99999999999999999999 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 i32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 f32 f99 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 f32 f32 0 0 0 0 7fc00000 00000000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 7f800000 256 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 -1 0 1 2 3 4 5 6 7 8",
                          "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 8g",
                          "1 0 8 64 8 f32 f32 0 0 0 0 3f800000 00000000 256 0 1 2 3 4 5 6 7 10000000000000000"}) {
    EXPECT_TRUE(parse_choices(ended(none + bad + "\n"), kind).empty()) << bad;
    EXPECT_TRUE(parse_choices(ended(none + good + "\n" + bad + "\n"), kind).empty()) << bad;
  }
  EXPECT_TRUE(parse_choices(ended(none + good + "\n" + good + "\n"), kind).empty()) << "the same twice";
}

TEST_F(ChoicesFile, AreThereForTheNextOneThatLooks) {
  KeptChoices first(folder_ / "deep" / "down", kind);
  EXPECT_EQ(first.find(key(8)), nullptr);
  first.keep(key(8), choice(1));
  first.keep(key(9), choice(2, true));
  ASSERT_NE(first.find(key(8)), nullptr);
  KeptChoices second(folder_ / "deep" / "down", kind);
  ASSERT_NE(second.find(key(8)), nullptr);
  EXPECT_EQ(*second.find(key(8)), choice(1));
  EXPECT_EQ(*second.find(key(9)), choice(2, true));
  EXPECT_TRUE(first.is_sure(key(8)));
  EXPECT_FALSE(second.is_sure(key(8))) << "what a file says is to be looked at";
  second.confirm(key(8));
  EXPECT_TRUE(second.is_sure(key(8)));
  const KeptChoices other(folder_ / "deep" / "down", "another kind");
  EXPECT_EQ(other.find(key(8)), nullptr);
  EXPECT_NE(other.file(), second.file());
}

TEST_F(ChoicesFile, WhatOthersKeptMeanwhileStaysAndTheFirstOfTwoChoicesToo) {
  KeptChoices one(folder_, kind);
  KeptChoices two(folder_, kind);
  one.keep(key(1), choice(1));
  two.keep(key(2), choice(2));
  two.keep(key(1), choice(3));
  EXPECT_EQ(*two.find(key(1)), choice(3)) << "what a process chose it goes on with";
  const KeptChoices after(folder_, kind);
  EXPECT_EQ(*after.find(key(1)), choice(1));
  EXPECT_EQ(*after.find(key(2)), choice(2));
}

TEST_F(ChoicesFile, OneThatWasFoundAndDidNotServeIsReplaced) {
  KeptChoices(folder_, kind).keep(key(1), choice(1));
  KeptChoices again(folder_, kind);
  again.keep(key(1), choice(2));
  EXPECT_EQ(*KeptChoices(folder_, kind).find(key(1)), choice(2));
}

TEST_F(ChoicesFile, ADamagedFileIsMadeAnew) {
  KeptChoices first(folder_, kind);
  first.keep(key(1), choice(1));
  const std::string whole = text_of(first.file());
  for (const std::string& damaged : {std::string(), whole.substr(0, whole.size() / 2), std::string(3 << 20, 'x')}) {
    std::ofstream(first.file(), std::ios::trunc) << damaged;
    KeptChoices next(folder_, kind);
    EXPECT_EQ(next.find(key(1)), nullptr);
    next.keep(key(2), choice(2));
    EXPECT_NE(KeptChoices(folder_, kind).find(key(2)), nullptr);
  }
}

TEST_F(ChoicesFile, WhereNothingCanBeWrittenTheyAreKeptForTheProcess) {
  std::ofstream(folder_ / "file") << "no folder";
  for (const std::filesystem::path& place : {std::filesystem::path(), folder_ / "file" / "below"}) {
    KeptChoices kept(place, kind);
    kept.keep(key(1), choice(1));
    EXPECT_EQ(*kept.find(key(1)), choice(1));
    EXPECT_EQ(KeptChoices(place, kind).find(key(1)), nullptr);
  }
  // A folder stands where the file would.
  std::filesystem::create_directories(KeptChoices(folder_, kind).file());
  KeptChoices kept(folder_, kind);
  kept.keep(key(1), choice(1));
  EXPECT_EQ(*kept.find(key(1)), choice(1));
}

TEST(ChoicesFolder, IsTheUsersCacheUnlessAVariableSaysOtherwise) {
  const Variable cache("XDG_CACHE_HOME", "/somewhere/cache");
  const Variable home("HOME", "/home/somebody");
  {
    const Variable unset("BATON_CUDA_CACHE", nullptr);
    EXPECT_EQ(choices_folder(), "/somewhere/cache/baton");
    const Variable no_cache("XDG_CACHE_HOME", nullptr);
    EXPECT_EQ(choices_folder(), "/home/somebody/.cache/baton");
    const Variable no_home("HOME", nullptr);
    EXPECT_EQ(choices_folder(), "");
  }
  {
    const Variable off("BATON_CUDA_CACHE", "off");
    EXPECT_EQ(choices_folder(), "");
  }
  {
    const Variable folder("BATON_CUDA_CACHE", "./here");
    EXPECT_EQ(choices_folder(), "./here");
  }
  for (const char* word : {"of", ""}) {
    const Variable wrong("BATON_CUDA_CACHE", word);
    EXPECT_TRUE(test::says(test::usage_sentence([] { choices_folder(); }), "may be off, or a folder's path"));
  }
}

}  // namespace
}  // namespace baton::cuda
