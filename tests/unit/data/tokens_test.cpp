#include "baton/data/tokens.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <numeric>
#include <random>

#include "baton/data/open.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "written.h"

using namespace baton;
using namespace baton::data;

namespace {

using test::llmc_shard;
using test::packed;
using test::says;
using test::usage_sentence;
using test::write_bytes;

class Tokens : public test::OwnFolder {
 protected:
  static Form form(std::int64_t context, std::int64_t vocabulary = 1 << 20) {
    return {.input = {context}, .integers = true, .vocabulary = vocabulary, .target = {context}, .classes = vocabulary};
  }
  static std::vector<std::int32_t> input(const Samples& samples, std::int64_t sample, std::int64_t context) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(context));
    samples.input({sample, 0}, std::span(out));
    return out;
  }
  static std::vector<std::int32_t> target(const Samples& samples, std::int64_t sample, std::int64_t context) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(context));
    samples.target({sample, 0}, std::span(out));
    return out;
  }
};

TEST_F(Tokens, OfAnyWidthAreCutIntoWindowsWithTheNextTokenAsLabel) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 30; ++trial) {
    const bool wide = trial % 2 == 0;
    const auto context = static_cast<std::int64_t>(1 + random() % 6000);
    std::vector<std::uint32_t> tokens(static_cast<std::size_t>(context) + 1 + random() % 20'000);
    for (std::uint32_t& token : tokens) {
      token = static_cast<std::uint32_t>(random() % (wide ? 200'000 : 65'536));
    }
    const std::filesystem::path path = folder_ / "data.bin";
    write_bytes(path, wide ? llmc_shard(tokens, 20240801, 7)
                           : llmc_shard(std::vector<std::uint16_t>(tokens.begin(), tokens.end()), 20240520, 1));
    const Parts parts = open(path.string());
    ASSERT_TRUE(parts.train && !parts.test);
    EXPECT_EQ(parts.train->description().count, static_cast<std::int64_t>(tokens.size()));
    const auto samples = parts.train->samples(form(context), {});
    ASSERT_EQ(samples->count(), static_cast<std::int64_t>(tokens.size() - 1) / context);
    const auto which = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(samples->count()));
    const auto begin = tokens.begin() + which * context;
    EXPECT_EQ(input(*samples, which, context), std::vector<std::int32_t>(begin, begin + context));
    EXPECT_EQ(target(*samples, which, context), std::vector<std::int32_t>(begin + 1, begin + 1 + context));
  }
}

TEST_F(Tokens, OfAFolderOfShardsDoNotCrossFilesAndPartsGoByName) {
  for (int shard = 0; shard < 3; ++shard) {
    std::vector<std::uint16_t> tokens(10 + static_cast<std::size_t>(shard));
    std::iota(tokens.begin(), tokens.end(), static_cast<std::uint16_t>(100 * shard));
    write_bytes(folder_ / fmt::format("web_train_{:06}.bin", shard), llmc_shard(tokens, 20240520, 1));
  }
  write_bytes(folder_ / "web_val_000000.bin", llmc_shard(std::vector<std::uint16_t>{1, 2, 3, 4}, 20240520, 1));
  const Parts parts = open(folder_.string());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().count, 33);
  EXPECT_EQ(parts.for_evaluation()->description().count, 4);
  const auto samples = parts.train->samples(form(3), {});
  ASSERT_EQ(samples->count(), 9);
  EXPECT_EQ(input(*samples, 3, 3), (std::vector<std::int32_t>{100, 101, 102}));
  EXPECT_EQ(target(*samples, 8, 3), (std::vector<std::int32_t>{207, 208, 209}));
}

TEST_F(Tokens, OfMoreShardsThanFilesMayBeOpenAreReadAllTheSame) {
  for (int shard = 0; shard < 60; ++shard) {
    write_bytes(folder_ / fmt::format("s{:02}.bin", shard), llmc_shard(std::vector<std::uint16_t>(5, 1), 20240520, 1));
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{40, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(open(folder_.string()).train->description().count, 300);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Tokens, WithoutAHeaderHaveTheWidthThatTheyShow) {
  const auto count = [&](const std::string& bytes, const OpenOptions& options = {}) {
    write_bytes(folder_ / "train.bin", bytes);
    return open((folder_ / "train.bin").string(), options).train->description().count;
  };
  EXPECT_EQ(count(packed(std::vector<std::uint16_t>{7, 50'000, 9, 12})), 4);
  EXPECT_EQ(count(packed(std::vector<std::uint16_t>{1, 2, 3})), 3);
  EXPECT_EQ(count(packed(std::vector<std::uint32_t>{7, 50'000, 9, 12})), 4);
  const std::string either = packed(std::vector<std::uint16_t>{1, 2, 3, 1});
  EXPECT_TRUE(says(usage_sentence([&] { count(either); }), "--token-type"));
  EXPECT_EQ(count(either, {.token_type = TokenType::uint16}), 4);
  EXPECT_EQ(count(either, {.token_type = TokenType::uint32}), 2);
  EXPECT_TRUE(says(usage_sentence([&] { count("abc"); }), "not a whole number"));
  EXPECT_TRUE(says(usage_sentence([&] { count(""); }), "empty"));
}

TEST_F(Tokens, InFilesThatLieAreRefusedInASentence) {
  const auto refused = [&](const std::string& bytes) {
    write_bytes(folder_ / "a.bin", bytes);
    return usage_sentence([&] { open((folder_ / "a.bin").string()); });
  };
  const std::string good = llmc_shard(std::vector<std::uint16_t>(100, 1), 20240520, 1);
  EXPECT_TRUE(says(refused(good.substr(0, good.size() - 1)), "100 tokens"));
  EXPECT_TRUE(says(refused(good + "x"), "100 tokens"));
  EXPECT_TRUE(says(refused(good.substr(0, 500)), "100 tokens"));
  EXPECT_TRUE(says(refused(good.substr(0, 12)), "100 tokens"));
  EXPECT_TRUE(says(refused(llmc_shard(std::vector<std::uint16_t>(4, 1), 20240520, 2)), "version 2"));
  EXPECT_TRUE(says(refused(llmc_shard(std::vector<std::uint16_t>(4, 1), 20240522, 1)), "multiple choices"));
  std::string negative = good;
  std::memset(negative.data() + 8, 0xff, 4);
  EXPECT_TRUE(says(refused(negative), "-1 tokens"));
}

TEST_F(Tokens, ThatTheModelDoesNotKnowAreNamedWhenTheyAreRead) {
  write_bytes(folder_ / "a.bin", llmc_shard(std::vector<std::uint16_t>{1, 2, 900, 4, 5}, 20240520, 1));
  const Parts parts = open((folder_ / "a.bin").string());
  const auto samples = parts.train->samples(form(2, 256), {});
  EXPECT_EQ(input(*samples, 0, 2), (std::vector<std::int32_t>{1, 2}));
  EXPECT_TRUE(says(usage_sentence([&] { input(*samples, 1, 2); }), "token 2 of " + (folder_ / "a.bin").string() + " is 900"));
}

TEST_F(Tokens, WithAHeaderAreNotOfAnotherTypeThanItSays) {
  write_bytes(folder_ / "a.bin", llmc_shard(std::vector<std::uint16_t>(10, 1), 20240520, 1));
  const auto with = [&](TokenType type) { return open((folder_ / "a.bin").string(), {.token_type = type}); };
  EXPECT_EQ(with(TokenType::uint16).train->description().count, 10);
  EXPECT_TRUE(says(usage_sentence([&] { with(TokenType::uint32); }),
                   "its header says that its tokens are uint16, but --token-type is uint32"));
}

TEST_F(Tokens, AreRefusedByModelsOfOtherThingsAndByLongerOnes) {
  write_bytes(folder_ / "a.bin", llmc_shard(std::vector<std::uint16_t>{1, 2, 900, 4, 5}, 20240520, 1));
  const Parts parts = open((folder_ / "a.bin").string());
  EXPECT_TRUE(says(usage_sentence([&] {
                     parts.train->samples({.input = {1, 28, 28}, .target = {}, .classes = 10}, {});
                   }),
                   "tokens"));
  EXPECT_TRUE(says(usage_sentence([&] { parts.train->samples(form(5), {}); }), "5 tokens, fewer than the 6"));
}

TEST_F(Tokens, ThatAreCutWhileInUseEndInASentence) {
  write_bytes(folder_ / "a.bin", llmc_shard(std::vector<std::uint16_t>(1000, 7), 20240520, 1));
  const Parts parts = open((folder_ / "a.bin").string());
  const auto samples = parts.train->samples(form(10), {});
  std::filesystem::resize_file(folder_ / "a.bin", 1100);
  try {
    input(*samples, 90, 10);
    FAIL() << "read what is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::failure);
    EXPECT_TRUE(says(error.what(), "cut while it was in use"));
  }
}

TEST_F(Tokens, ThatAreWrittenAreReadAgain) {
  for (const std::int64_t vocabulary : {std::int64_t{1} << 16, (std::int64_t{1} << 16) + 1}) {
    TokenWriter writer(folder_ / "out.bin", vocabulary);
    writer.append(std::vector<std::int32_t>{1, 65'535});
    writer.append(std::vector<std::int32_t>{3, static_cast<std::int32_t>(vocabulary - 1)});
    writer.commit();
    const Parts parts = open((folder_ / "out.bin").string());
    const auto samples = parts.train->samples(form(3), {});
    EXPECT_EQ(input(*samples, 0, 3), (std::vector<std::int32_t>{1, 65'535, 3}));
    EXPECT_EQ(target(*samples, 0, 3)[2], vocabulary - 1);
    EXPECT_EQ(target(*open((folder_ / "out.bin").string()).train->samples(form(3), {}), 0, 3)[2], vocabulary - 1)
        << "without its source";
    EXPECT_EQ(std::filesystem::file_size(folder_ / "out.bin"), 1024U + (vocabulary > 1 << 16 ? 16U : 8U));
  }
}

}  // namespace
