#include "baton/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
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

TEST_F(File, IsWrittenFromItsPartsInOrderAndHasItsNameOnlyWhenItIsWhole) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  {
    WholeFile file(folder_ / "a", "the thing");
    file.append(bytes("one "));
    file.append({});
    file.append(bytes("two"));
    file.overwrite(1, bytes("N"));
    file.append(bytes("!"));
    EXPECT_FALSE(fs::exists(folder_ / "a"));
    file.commit();
  }
  EXPECT_EQ(read(folder_ / "a", 100), "oNe two!");
  {
    WholeFile given_up(folder_ / "a", "the thing");
    given_up.append(bytes("three"));
  }
  EXPECT_EQ(read(folder_ / "a", 100), "oNe two!");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
  try {
    WholeFile file(folder_ / "none" / "a", "the thing");
    FAIL() << "was written into a folder that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::failure);
    EXPECT_TRUE(says(error.what(), "the thing cannot be written: No such file"));
  }
}

TEST_F(File, IsWrittenThroughSymbolicLinksWhichStay) {
  fs::create_directories(folder_ / "there");
  std::ofstream(folder_ / "there" / "old") << "old";
  fs::permissions(folder_ / "there" / "old", fs::perms(0600));
  fs::create_symlink("there/old", folder_ / "link");
  fs::create_symlink("link", folder_ / "second");
  fs::create_symlink("there/new", folder_ / "dangling");
  fs::create_symlink("circle", folder_ / "circle");
  for (const auto& [name, target] : {std::pair("link", "old"), std::pair("second", "old"), std::pair("dangling", "new")}) {
    write_whole(folder_ / name, name);
    EXPECT_TRUE(fs::is_symlink(folder_ / name));
    EXPECT_EQ(read(folder_ / "there" / target, 100), name);
  }
  EXPECT_EQ(fs::status(folder_ / "there" / "old").permissions(), fs::perms(0600)) << "nobody gains rights to it";
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "there"), fs::directory_iterator()), 2);
  EXPECT_THROW(write_whole(folder_ / "circle", "x"), Error);
  EXPECT_TRUE(fs::is_symlink(folder_ / "circle"));
}

TEST_F(File, OfThisProcessThatIsOpenIsWrittenIntoWhereItStands) {
  const Descriptor file(::open((folder_ / "o").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::write(file.get(), "before ", 7), 7);
  fs::create_symlink("/proc/self/fd/" + std::to_string(file.get()), folder_ / "standard");
  for (const fs::path& path : {fs::path("/dev/fd/" + std::to_string(file.get())), folder_ / "standard"}) {
    require_writable(path);
    write_whole(path, "text ");
  }
  ASSERT_EQ(::write(file.get(), "behind", 6), 6);
  EXPECT_EQ(read(folder_ / "o", 100), "before text text behind");
  EXPECT_TRUE(fs::is_symlink(folder_ / "standard"));
}

TEST_F(File, ThatCannotBeWrittenIsKnownBefore) {
  require_writable(folder_ / "new");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  fs::create_directories(folder_ / "folder");
  fs::create_symlink("folder", folder_ / "link");
  EXPECT_THROW(require_writable(folder_ / "folder"), Error);
  EXPECT_THROW(require_writable(folder_ / "link"), Error);
  EXPECT_THROW(require_writable(folder_ / "none" / "a"), Error);
}

TEST_F(File, ThatIsBeingWrittenGoesWithAProcessThatEndsInTheMiddle) {
  WholeFile file(folder_ / "a", "the thing");
  EXPECT_FALSE(fs::is_empty(folder_));
  remove_temporaries();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(File, AFolderThatIsLockedIsFreeAgainWhenItsOwnerHasDied) {
  std::array<int, 2> locked{};
  ASSERT_EQ(::pipe(locked.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_, "another has it");
    [[maybe_unused]] const ssize_t written = ::write(locked[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  EXPECT_EQ(usage_sentence([&] { const FolderLock lock(folder_, "another has it"); }), "another has it");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  { const FolderLock lock(folder_, "another has it"); }
  EXPECT_TRUE(fs::is_empty(folder_));
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
