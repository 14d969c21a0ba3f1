#include "baton/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "support/usage_sentence.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using test::says;
using test::usage_sentence;

class File : public testing::Test {
 protected:
  File() : folder_(fs::temp_directory_path() / ("baton_file_" + std::to_string(::getpid()))) { fs::create_directories(folder_); }
  ~File() override { fs::remove_all(folder_); }

  std::string read(const fs::path& path, std::int64_t most) { return read_file(path, "the thing", Bytes(most)); }

  fs::path folder_;
};

TEST_F(File, IsReadWholeUpToTheLimitAndRefusedBeyondIt) {
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 100'000}) {
    const std::string text(size, 'x');
    write_whole(folder_ / "a", text);
    EXPECT_EQ(read(folder_ / "a", 100'000), text);
    if (size > 0) {
      EXPECT_TRUE(
          says(usage_sentence([&] { read(folder_ / "a", static_cast<std::int64_t>(size) - 1); }), "the thing is larger than"));
    }
  }
}

TEST_F(File, IsRefusedWithoutTakingItsSizeInMemory) {
  std::ofstream(folder_ / "huge") << "x";
  fs::resize_file(folder_ / "huge", std::uintmax_t{1} << 40);  // a hole
  EXPECT_TRUE(says(usage_sentence([&] { read(folder_ / "huge", 1 << 20); }), "larger than 1.00 MiB"));
  EXPECT_TRUE(says(usage_sentence([&] { read("/dev/zero", 1 << 20); }), "larger than 1.00 MiB"));
}

TEST_F(File, IsRefusedInOneSentenceWhereItIsNoneOrNotThere) {
  EXPECT_TRUE(says(usage_sentence([&] { read(folder_, 10'000'000); }), "the thing cannot be read"));
  EXPECT_TRUE(says(usage_sentence([&] { read(folder_ / "nowhere", 100); }), "No such file"));
}

TEST_F(File, ComesOutOfAPipeTheSame) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(300'000, 'y');
  std::thread writer([&] { std::ofstream(pipe) << text; });
  EXPECT_EQ(read(pipe, 1 << 20), text);
  writer.join();
}

TEST_F(File, TakesNotThePlaceOfADeviceOrAPipeButIsWrittenIntoIt) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, folder_ / "link");
  for (const char* name : {"pipe", "link"}) {
    std::string got;
    std::thread reader([&] { got = read(pipe, 100); });
    write_whole(folder_ / name, "some text");
    reader.join();
    EXPECT_EQ(got, "some text");
    EXPECT_TRUE(fs::is_fifo(folder_ / name));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
  }
}

TEST_F(File, IsWrittenFromItsPartsInOrder) {
  const std::string a = "one ";
  const std::string b = "two";
  const std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(a)), {}, std::as_bytes(std::span(b))};
  write_whole(folder_ / "a", "the thing", parts);
  EXPECT_EQ(read(folder_ / "a", 100), "one two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  try {
    write_whole(folder_ / "none" / "a", "the thing", parts);
    FAIL() << "was written into a folder that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::failure);
    EXPECT_TRUE(says(error.what(), "the thing cannot be written: No such file"));
  }
}

TEST_F(File, IsALeftoverOnlyWhereItsWriterHasDied) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_leftover("a.safetensors." + std::to_string(child) + ".tmp"));
  EXPECT_FALSE(is_leftover("a.safetensors." + std::to_string(::getpid()) + ".tmp"));
  EXPECT_FALSE(is_leftover("a.safetensors." + std::to_string(child)));
  EXPECT_FALSE(is_leftover("a.safetensors.tmp"));
  EXPECT_FALSE(is_leftover("-5.tmp"));
}

}  // namespace
}  // namespace baton
