#include "baton/data/picture.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "baton/data/base64.h"
#include "baton/data/open.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "written.h"

using namespace baton;
using namespace baton::data;

namespace {

using test::says;
using test::usage_sentence;
using test::write_bytes;

// What libjpeg wrote of a picture of 16 x 8, left (250, 10, 30), right (10, 120, 240), and of a gray one of 8 x 8, 40 above 200,
// the second in several passes.
constexpr const char* red_and_blue =
    "/9j/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBggLDAsKDAkKCgr/"
    "2wBDAQICAgICAgUDAwUKBwYHCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgr/wAARCAAIABADAREAAhEBAxEB/"
    "8QAFQABAQAAAAAAAAAAAAAAAAAABwj/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFgEBAQEAAAAAAAAAAAAAAAAACQcK/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/"
    "aAAwDAQACEQMRAD8Ak9BzsEQ2jJG//9k=";
constexpr const char* dark_and_light =
    "/9j/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBggLDAsKDAkKCgr/wgALCAAIAAgBAREA/"
    "8QAFAABAAAAAAAAAAAAAAAAAAAABf/aAAgBAQAAAAE//8QAFRABAQAAAAAAAAAAAAAAAAAAABj/2gAIAQEAAQUCm5//xAAXEAADAQAAAAAAAAAAAAAAAAAANqXj/"
    "9oACAEBAAY/AnOdof/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAT8hB//aAAgBAQAAABB//8QAFBABAAAAAAAAAAAAAAAAAAAAAP/aAAgBAQABPxAH/9k=";

std::uint32_t crc(const std::string& bytes) {
  std::uint32_t sum = 0xffffffffU;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      sum = sum >> 1 ^ ((sum & 1U) != 0 ? 0xedb88320U : 0U);
    }
  }
  return ~sum;
}

std::string big_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(number >> shift & 0xffU);
  }
  return bytes;
}

std::string chunk(const std::string& type, const std::string& contents) {
  return big_endian(static_cast<std::uint32_t>(contents.size())) + type + contents + big_endian(crc(type + contents));
}

/// A PNG whose pixels are not packed. `kind` is 0 for gray, 2 for colours, 6 for these with transparency, 3 for a palette; `more`
/// are chunks before the pixels.
std::string png(std::uint32_t width, std::uint32_t height, int kind, const std::string& pixels, int depth = 8,
                const std::string& more = "") {
  const std::size_t line = pixels.size() / height;
  std::string lines;
  for (std::size_t y = 0; y < height; ++y) {
    lines += std::string(1, '\0') + pixels.substr(y * line, line);
  }
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : lines) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  const auto length = static_cast<std::uint16_t>(lines.size());
  const std::string stored = std::string("\x78\x01\x01", 3) +
                             test::packed(std::vector<std::uint16_t>{length, static_cast<std::uint16_t>(~length)}) + lines +
                             big_endian(b << 16 | a);
  const std::string header = big_endian(width) + big_endian(height) +
                             std::string{static_cast<char>(depth), static_cast<char>(kind), 0, 0, 0};
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + more + chunk("IDAT", stored) + chunk("IEND", "");
}

Picture decoded(const std::string& bytes) { return decode_picture(std::as_bytes(std::span(bytes)), "picture"); }

TEST(PictureFiles, OfPngAreReadInGrayAndInColours) {
  if (!reads_png()) {
    EXPECT_TRUE(says(usage_sentence([] { decoded(png(3, 2, 0, "abcdef")); }), "libpng-dev"));
    GTEST_SKIP() << "built without libpng";
  }
  const Picture gray = decoded(png(3, 2, 0, "abcdef"));
  EXPECT_EQ(gray.channels, 1);
  EXPECT_EQ(gray.width, 3);
  EXPECT_EQ(gray.height, 2);
  EXPECT_EQ(gray.pixels, (std::vector<std::uint8_t>{'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(decoded(png(2, 1, 2, "rgbRGB")).pixels, (std::vector<std::uint8_t>{'r', 'R', 'g', 'G', 'b', 'B'}));
  EXPECT_EQ(decoded(png(2, 1, 6, std::string("rgb\xffRGB\x01", 8))).pixels,
            (std::vector<std::uint8_t>{'r', 'R', 'g', 'G', 'b', 'B'}));
}

TEST(PictureFiles, OfPngKeepTheirNumbersWhateverTheySayOfScreens) {
  if (!reads_png()) {
    GTEST_SKIP() << "built without libpng";
  }
  // The upper 8 of 16 bits per sample, in gray, in colours and in colours with transparency.
  EXPECT_EQ(decoded(png(3, 1, 0, std::string("\x10\xff\x40\x80\xc8\x01", 6), 16)).pixels,
            (std::vector<std::uint8_t>{0x10, 0x40, 0xc8}));
  EXPECT_EQ(decoded(png(1, 1, 2, std::string("\x10\xff\x40\x80\xc8\x01", 6), 16)).pixels,
            (std::vector<std::uint8_t>{0x10, 0x40, 0xc8}));
  EXPECT_EQ(decoded(png(1, 1, 6, std::string("\x10\xff\x40\x80\xc8\x01\x70\x70", 8), 16)).pixels,
            (std::vector<std::uint8_t>{0x10, 0x40, 0xc8}));
  for (const std::uint32_t gamma : {100'000U, 45'455U, 22'000U}) {
    const std::string said = chunk("gAMA", big_endian(gamma));
    EXPECT_EQ(decoded(png(3, 1, 0, std::string("\x10\x40\xc8", 3), 8, said)).pixels, (std::vector<std::uint8_t>{0x10, 0x40, 0xc8}));
    EXPECT_EQ(decoded(png(1, 1, 2, std::string("\x10\xff\x40\x80\xc8\x01", 6), 16, said)).pixels,
              (std::vector<std::uint8_t>{0x10, 0x40, 0xc8}));
  }
}

TEST(PictureFiles, OfPngOfFewBitsAndOfAPaletteAreSpreadOutAndLoseTheirTransparency) {
  if (!reads_png()) {
    GTEST_SKIP() << "built without libpng";
  }
  EXPECT_EQ(decoded(png(4, 1, 0, std::string("\x1b", 1), 2)).pixels, (std::vector<std::uint8_t>{0, 85, 170, 255}));
  EXPECT_EQ(decoded(png(2, 1, 0, "ab", 8, chunk("tRNS", std::string("\0a", 2)))).pixels, (std::vector<std::uint8_t>{'a', 'b'}));
  const std::string palette = chunk("PLTE", "rgbRGB");
  for (const std::string& more : {palette, palette + chunk("tRNS", std::string("\x7f", 1))}) {
    const Picture made = decoded(png(3, 1, 3, std::string("\1\0\1", 3), 8, more));
    EXPECT_EQ(made.channels, 3);
    EXPECT_EQ(made.pixels, (std::vector<std::uint8_t>{'R', 'r', 'R', 'G', 'g', 'G', 'B', 'b', 'B'}));
  }
}

TEST(PictureFiles, OfJpegAreReadInGrayAndInColours) {
  if (!reads_jpeg()) {
    EXPECT_TRUE(says(usage_sentence([] { decoded(*from_base64(red_and_blue)); }), "libjpeg-dev"));
    GTEST_SKIP() << "built without libjpeg";
  }
  const Picture colours = decoded(*from_base64(red_and_blue));
  ASSERT_EQ(colours.pixels.size(), 3U * 16 * 8);
  const std::vector<int> left{250, 10, 30};
  const std::vector<int> right{10, 120, 240};
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(colours.pixels[c * 128 + 16], left[c], 4);
    EXPECT_NEAR(colours.pixels[c * 128 + 31], right[c], 4);
  }
  const Picture gray = decoded(*from_base64(dark_and_light));
  ASSERT_EQ(gray.channels, 1);
  EXPECT_NEAR(gray.pixels[3], 40, 4);
  EXPECT_NEAR(gray.pixels[60], 200, 4);
}

TEST(PictureFiles, ThatAreCutDamagedOrLieAreRefused) {
  if (!reads_png() || !reads_jpeg()) {
    GTEST_SKIP() << "built without libpng or libjpeg";
  }
  const std::string jpeg = *from_base64(red_and_blue);
  const std::string good = png(3, 2, 2, "abcdefghijklmnopqr");
  for (const std::string& whole : {jpeg, good}) {
    for (std::size_t size = 0; size + 1 < whole.size(); size += 3) {
      if (whole == good && size > good.size() - 16) {
        continue;  // all pixels are there
      }
      usage_sentence([&] { decoded(whole.substr(0, size)); });
    }
  }
  EXPECT_TRUE(says(usage_sentence([&] { decoded("GIF89a"); }), "neither PNG nor JPEG"));
  // A header that says 60000 x 60000.
  std::string large = good;
  const std::string header = big_endian(60000) + big_endian(60000) + std::string{8, 2, 0, 0, 0};
  large.replace(8, 25, chunk("IHDR", header));
  EXPECT_TRUE(says(usage_sentence([&] { decoded(large); }), "60000"));
  std::string wide = jpeg;
  const std::size_t frame = wide.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  wide.replace(frame + 5, 4, "\x60\x00\x60\x00", 4);
  EXPECT_TRUE(says(usage_sentence([&] { decoded(wide); }), "24576"));
}

class PictureFolders : public test::OwnFolder {};

TEST_F(PictureFolders, HaveAClassPerFolderAndPartsByName) {
  if (!reads_png() || !reads_jpeg()) {
    GTEST_SKIP() << "built without libpng or libjpeg";
  }
  write_bytes(folder_ / "train" / "cat" / "1.png", png(4, 4, 0, std::string(16, '\x10')));
  write_bytes(folder_ / "train" / "cat" / "2.jpg", *from_base64(dark_and_light));
  write_bytes(folder_ / "train" / "cat" / "notes.txt", "no picture");
  write_bytes(folder_ / "train" / "dog" / "a.PNG", png(4, 4, 2, std::string(48, '\x30')));
  write_bytes(folder_ / "val" / "dog" / "b.png", png(4, 4, 0, std::string(16, '\x20')));
  const Parts parts = open(folder_.string());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().count, 3);
  EXPECT_EQ(parts.train->description().class_names, (std::vector<std::string>{"cat", "dog"}));
  const Form form{.input = {1, 4, 4}, .target = {}, .classes = 2};
  Preparation plain;
  plain.scale = parse_pixel_scale("none");
  const auto samples = parts.train->samples(form, plain);
  std::vector<float> out(16);
  std::vector<std::int32_t> label(1);
  const std::vector<std::int32_t> wanted{0, 0, 1};
  for (std::int64_t i = 0; i < 3; ++i) {
    samples->input({i, 0}, std::span(out));  // the JPEG is halved
    samples->target({i, 0}, std::span(label));
    EXPECT_EQ(label[0], wanted[static_cast<std::size_t>(i)]);
  }
  EXPECT_FLOAT_EQ(out[5], 0x30 / 255.0F);
  parts.test->samples(form, plain)->target({0, 0}, std::span(label));
  EXPECT_EQ(label[0], 1);
  write_bytes(folder_ / "val" / "mouse" / "c.png", png(4, 4, 0, std::string(16, '\x20')));
  EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "mouse"));
  // Without parts.
  EXPECT_EQ(open((folder_ / "train").string()).train->description().count, 3);
  write_bytes(folder_ / "train" / "cat" / "1.png", "junk");
  EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / "train").string()); }), "1.png"));
}

}  // namespace
