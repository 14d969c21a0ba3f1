#include "baton/sheet/tarball.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "baton/base/error.h"

namespace baton::sheet {
namespace {

std::uint32_t little(const std::string& bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int b = 0; b < count; ++b) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(b)))) << (8 * b);
  }
  return value;
}

/// The checksum of RFC 1952, bit by bit.
std::uint32_t checksum(const std::string& text) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0);
    }
  }
  return ~crc;
}

/// What a gzip file of stored blocks holds.
std::string unzipped(const std::string& file) {
  EXPECT_EQ(file.substr(0, 3), "\x1f\x8b\x08");
  std::string out;
  std::size_t at = 10;
  for (bool last = false; !last;) {
    last = file.at(at) == 1;
    const std::uint32_t length = little(file, at + 1, 2);
    EXPECT_EQ(length ^ 0xffffU, little(file, at + 3, 2));
    out += file.substr(at + 5, length);
    at += 5 + length;
  }
  EXPECT_EQ(little(file, at, 4), checksum(out));
  EXPECT_EQ(little(file, at + 4, 4), out.size());
  EXPECT_EQ(at + 8, file.size());
  return out;
}

/// The entries of a tar archive, whose headers must add up.
std::map<std::string, std::string> entries(const std::string& archive) {
  std::map<std::string, std::string> files;
  std::size_t at = 0;
  while (archive.at(at) != '\0') {
    const std::string header = archive.substr(at, 512);
    unsigned sum = 0;
    for (std::size_t i = 0; i < header.size(); ++i) {
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
    }
    EXPECT_EQ(std::stoul(header.substr(148, 6), nullptr, 8), sum);
    EXPECT_EQ(header.substr(257, 5), "ustar");
    const std::size_t size = std::stoul(header.substr(124, 11), nullptr, 8);
    files[header.substr(0, header.find('\0'))] = archive.substr(at + 512, size);
    at += 512 + (size + 511) / 512 * 512;
  }
  EXPECT_EQ(archive.size() - at, 1024U) << "two empty blocks end it";
  return files;
}

TEST(Tarball, HoldsTheFilesBelowTheFolder) {
  std::mt19937_64 random(5);
  std::map<std::string, std::string> files{{"handin.md", "# Homework\n"}, {"code/empty", ""}};
  for (const std::size_t size : {511, 512, 513, 65535, 65536, 200000}) {
    std::string& text = files["results/" + std::to_string(size)];
    for (std::size_t i = 0; i < size; ++i) {
      text += static_cast<char>(random());
    }
  }
  std::map<std::string, std::string> expected;
  for (const auto& [path, text] : files) {
    expected["hw1/" + path] = text;
  }
  EXPECT_EQ(entries(unzipped(to_tarball("hw1", files))), expected);
}

TEST(Tarball, EqualFilesGiveEqualArchives) {
  const std::map<std::string, std::string> files{{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(to_tarball("x", files), to_tarball("x", files));
  EXPECT_NE(to_tarball("x", files), to_tarball("y", files));
}

TEST(Tarball, RefusesAPathThatTheFormatHasNoRoomFor) {
  EXPECT_THROW(to_tarball("x", {{std::string(98, 'a'), ""}}), std::logic_error);
  EXPECT_NO_THROW(to_tarball("x", {{std::string(97, 'a'), ""}}));
}

}  // namespace
}  // namespace baton::sheet
