#include "baton/data/images.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "baton/data/blob.h"
#include "baton/data/open.h"
#include "support/contents.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "written.h"

using namespace baton;
using namespace baton::data;

namespace {

using test::idx;
using test::says;
using test::usage_sentence;
using test::write_bytes;

Form form(std::int64_t channels, std::int64_t side, std::int64_t classes = 10) {
  return {.input = {channels, side, side}, .target = {}, .classes = classes};
}

std::vector<float> input(const Samples& samples, Draw draw, std::int64_t elements) {
  std::vector<float> out(static_cast<std::size_t>(elements));
  samples.input(draw, std::span(out));
  return out;
}

std::int32_t label(const Samples& samples, std::int64_t sample) {
  std::vector<std::int32_t> out(1);
  samples.target({sample, 0}, std::span(out));
  return out[0];
}

class Images : public test::OwnFolder {};

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random());
  }
  return bytes;
}

TEST_F(Images, OfIdxFilesAreTrainAndTestByTheirNames) {
  const std::string pixels = random_bytes(5 * 12, 1);
  write_bytes(folder_ / "train-images-idx3-ubyte", idx({5, 3, 4}, pixels));
  write_bytes(folder_ / "train-labels-idx1-ubyte", idx({5}, std::string("\0\1\2\1\0", 5)));
  write_bytes(folder_ / "t10k-images-idx3-ubyte", idx({1, 3, 4}, pixels.substr(0, 12)));
  write_bytes(folder_ / "t10k-labels-idx1-ubyte", idx({1}, "\2"));
  const Parts parts = open(folder_.string());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().sample, (Shape{1, 3, 4}));
  EXPECT_EQ(parts.train->description().classes, 3);
  EXPECT_EQ(parts.test->description().count, 1);
  Preparation plain;
  plain.scale = parse_pixel_scale("none");
  const auto samples = parts.train->samples({.input = {12}, .target = {}, .classes = 3}, plain);
  ASSERT_EQ(samples->count(), 5);
  EXPECT_EQ(label(*samples, 3), 1);
  const std::vector<float> got = input(*samples, {3, 0}, 12);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_FLOAT_EQ(got[i], static_cast<float>(static_cast<std::uint8_t>(pixels[36 + i])) / 255);
  }
}

TEST_F(Images, AreReadAfterTheirSourceIsGone) {
  const std::string pixels = random_bytes(2 * 12, 1);
  write_bytes(folder_ / "train-images-idx3-ubyte", idx({2, 3, 4}, pixels));
  write_bytes(folder_ / "train-labels-idx1-ubyte", idx({2}, std::string("\0\2", 2)));
  const auto samples = open(folder_.string()).train->samples({.input = {12}, .target = {}, .classes = 3}, {});
  EXPECT_EQ(label(*samples, 1), 2);
  EXPECT_FLOAT_EQ(input(*samples, {1, 0}, 12)[0], (static_cast<float>(static_cast<std::uint8_t>(pixels[12])) / 255 - 0.5F) / 0.5F);
}

TEST_F(Images, OfLyingIdxFilesAreRefused) {
  const auto refused = [&](const std::string& images, const std::string& labels) {
    write_bytes(folder_ / "train-images-idx3-ubyte", images);
    write_bytes(folder_ / "train-labels-idx1-ubyte", labels);
    return usage_sentence([&] { open(folder_.string()); });
  };
  const std::string images = idx({2, 2, 2}, std::string(8, 'x'));
  const std::string labels = idx({2}, std::string(2, '\1'));
  EXPECT_TRUE(says(refused(images.substr(0, 23), labels), "24 bytes, but it has 23"));
  EXPECT_TRUE(says(refused(images + "x", labels), "24 bytes, but it has 25"));
  EXPECT_TRUE(says(refused(images.substr(0, 10), labels), "cut"));
  EXPECT_TRUE(says(refused(images.substr(0, 2), labels), "not an IDX"));
  EXPECT_TRUE(says(refused("", labels), "not an IDX"));
  EXPECT_TRUE(says(refused(labels, labels), "1 axes"));
  EXPECT_TRUE(says(refused(idx({0xffffffffU, 0xffffffffU, 0xffffffffU}, ""), labels), "no file has"));
  EXPECT_TRUE(says(refused(idx({0, 2, 2}, ""), labels), "no file has"));
  EXPECT_TRUE(says(refused(images, idx({3}, "abc")), "2 images"));
  EXPECT_TRUE(says(refused("\1" + images.substr(1), labels), "not an IDX"));
  std::filesystem::remove(folder_ / "train-labels-idx1-ubyte");
  write_bytes(folder_ / "train-images-idx3-ubyte", images);
  EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "train-labels-idx1-ubyte"));
}

TEST_F(Images, OfGzippedIdxFilesAreUnpackedAndNoMoreThanTheyHold) {
  if (!reads_gzip()) {
    GTEST_SKIP() << "built without zlib";
  }
  const std::string images = idx({40, 5, 5}, random_bytes(1000, 7));
  write_bytes(folder_ / "train-images-idx3-ubyte", images);
  write_bytes(folder_ / "train-labels-idx1-ubyte", idx({40}, std::string(40, '\3')));
  const Parts plain = open(folder_.string());
  const auto pack = [&](const std::string& name) { ASSERT_EQ(std::system(("gzip -f " + (folder_ / name).string()).c_str()), 0); };
  pack("train-images-idx3-ubyte");
  const std::string name = (folder_ / "train-images-idx3-ubyte.gz").string();
  const Parts half = open(folder_.string());  // its labels are not packed
  pack("train-labels-idx1-ubyte");
  const Parts both = open(folder_.string());
  for (const Parts* parts : {&half, &both}) {
    EXPECT_EQ(input(*parts->train->samples(form(1, 5), {}), {17, 0}, 25),
              input(*plain.train->samples(form(1, 5), {}), {17, 0}, 25));
  }
  const std::string packed = test::contents(name);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, packed.size() / 2, packed.size() - 1}) {
    write_bytes(name, packed.substr(0, size));
    EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "train-images"));
  }
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
  write_bytes(name, damaged);
  usage_sentence([&] { open(folder_.string()); });
  // A header that says four billion pictures, or one too few or too many.
  for (const std::uint32_t count : {0xffffffffU, 39U, 41U}) {
    write_bytes(folder_ / "train-images-idx3-ubyte", idx({count, 5, 5}, random_bytes(1000, 7)));
    pack("train-images-idx3-ubyte");
    EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "its header says"));
  }
}

TEST_F(Images, OfCifarHaveTheLabelBeforeThePixels) {
  std::string file;
  for (int i = 0; i < 4; ++i) {
    file += static_cast<char>(i * 3);
    file += random_bytes(3072, static_cast<std::uint64_t>(i));
  }
  write_bytes(folder_ / "data_batch_1.bin", file.substr(0, 2 * 3073));
  write_bytes(folder_ / "data_batch_2.bin", file.substr(2 * 3073));
  write_bytes(folder_ / "test_batch.bin", file.substr(0, 3073));
  write_bytes(folder_ / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const Parts parts = open(folder_.parent_path() / folder_.filename());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().count, 4);
  EXPECT_EQ(parts.train->description().class_names[9], "j");
  const auto samples = parts.train->samples(form(3, 32), {});
  EXPECT_EQ(label(*samples, 3), 9);
  const std::vector<float> got = input(*samples, {2, 0}, 3072);
  EXPECT_FLOAT_EQ(got[1000], (static_cast<float>(static_cast<std::uint8_t>(file[2 * 3073 + 1001])) / 255 - 0.5F) / 0.5F);
  write_bytes(folder_ / "data_batch_2.bin", file.substr(0, 3000));
  EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "3000 bytes"));
  file[0] = 10;
  write_bytes(folder_ / "data_batch_2.bin", file);
  EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()); }), "label 10"));
}

TEST_F(Images, OfCifar100HaveTwoLabelsOfWhichTheFineOneCounts) {
  write_bytes(folder_ / "train.bin", "\7\x60" + random_bytes(3072, 1) + "\1\2" + random_bytes(3072, 2));
  write_bytes(folder_ / "test.bin", "\7\x5f" + random_bytes(3072, 3));
  const Parts parts = open(folder_.string());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().classes, 100);
  EXPECT_EQ(label(*parts.train->samples(form(3, 32, 100), {}), 0), 0x60);
}

TEST(Pictures, AreResizedWithTheirRatioKeptAndTheMiddleCutOut) {
  Picture flat{.channels = 3, .height = 9, .width = 17, .pixels = std::vector<std::uint8_t>(3 * 9 * 17, 77)};
  const Picture same = resized(flat, 28, 28);
  EXPECT_EQ(same.pixels, std::vector<std::uint8_t>(3 * 28 * 28, 77));
  // Left half black, right half white: so is the middle, at any scale.
  Picture halves{.channels = 1, .height = 20, .width = 60, .pixels = {}};
  for (int i = 0; i < 20 * 60; ++i) {
    halves.pixels.push_back(i % 60 < 30 ? 0 : 255);
  }
  for (const std::int64_t side : {4, 10, 20, 33}) {
    const Picture made = resized(halves, side, side);
    EXPECT_EQ(made.pixels.front(), 0) << side;
    EXPECT_EQ(made.pixels[static_cast<std::size_t>(side - 1)], 255) << side;
  }
  // Half the size is the mean of what each pixel covers, weighted by distance: a ramp stays a ramp.
  Picture ramp{.channels = 1, .height = 16, .width = 16, .pixels = {}};
  for (int i = 0; i < 256; ++i) {
    ramp.pixels.push_back(static_cast<std::uint8_t>(i % 16 * 10));
  }
  const Picture half = resized(ramp, 8, 8);
  for (std::size_t x = 1; x < 7; ++x) {
    EXPECT_NEAR(half.pixels[8 + x], static_cast<double>(x) * 20 + 5, 1);
  }
}

TEST(Pictures, BecomeGrayByLuminanceAndColouredByRepeating) {
  const Picture red{.channels = 3, .height = 1, .width = 1, .pixels = {255, 0, 0}};
  EXPECT_EQ(with_channels(red, 1).pixels, (std::vector<std::uint8_t>{76}));
  const Picture gray{.channels = 1, .height = 1, .width = 2, .pixels = {9, 8}};
  EXPECT_EQ(with_channels(gray, 3).pixels, (std::vector<std::uint8_t>{9, 8, 9, 8, 9, 8}));
}

TEST(Augmentation, MovesAndFlipsByTheSeedTheEpochAndTheSample) {
  Picture picture{.channels = 1, .height = 5, .width = 5, .pixels = {}};
  for (int i = 1; i <= 25; ++i) {
    picture.pixels.push_back(static_cast<std::uint8_t>(i));
  }
  const Augmentation crop = parse_augmentation("crop=2,flip");
  std::set<std::vector<std::uint8_t>> seen;
  for (std::int64_t sample = 0; sample < 40; ++sample) {
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch) {
      const Picture made = augmented(picture, crop, {sample, epoch});
      EXPECT_EQ(made.pixels, augmented(picture, crop, {sample, epoch}).pixels);
      seen.insert(made.pixels);
      // The middle of the picture is always still to be seen.
      EXPECT_NE(std::find(made.pixels.begin(), made.pixels.end(), 13), made.pixels.end());
    }
  }
  EXPECT_EQ(seen.size(), 50U);  // five places down, five across, flipped or not
  const Augmentation flip = parse_augmentation("flip");
  int flipped = 0;
  for (std::int64_t sample = 0; sample < 200; ++sample) {
    flipped += augmented(picture, flip, {sample, 3}).pixels[0] == 5 ? 1 : 0;
  }
  EXPECT_NEAR(flipped, 100, 30);
}

TEST(Augmentation, AndNormalizationAreReadFromTheirFlags) {
  EXPECT_EQ(parse_augmentation("none").crop, 0);
  EXPECT_TRUE(says(usage_sentence([] { parse_augmentation("rotate"); }), "crop=4,flip"));
  EXPECT_TRUE(says(usage_sentence([] { parse_augmentation("crop=x"); }), "crop"));
  EXPECT_EQ(parse_pixel_scale("CIFAR10").mean.size(), 3U);
  EXPECT_EQ(parse_pixel_scale("0.1,0.2,0.3/1,1,2").deviation, (std::vector<double>{1, 1, 2}));
  EXPECT_TRUE(says(usage_sentence([] { parse_pixel_scale("imagnet"); }), "did you mean imagenet"));
  EXPECT_TRUE(says(usage_sentence([] { parse_pixel_scale("0.5/0"); }), "deviation"));
  EXPECT_TRUE(says(usage_sentence([] { parse_pixel_scale("0.5,1/1"); }), "2 means and 1"));
}

TEST_F(Images, ThatDoNotFitTheModelAreRefusedWithOneThatFits) {
  write_bytes(folder_ / "train-images-idx3-ubyte", idx({2, 8, 8}, std::string(128, 'x')));
  write_bytes(folder_ / "train-labels-idx1-ubyte", idx({2}, "\1\6"));
  const Parts parts = open((folder_ / "train-images-idx3-ubyte").string());
  const auto refused = [&](const Form& form, const Preparation& preparation = {}) {
    return usage_sentence([&] { parts.train->samples(form, preparation); });
  };
  EXPECT_TRUE(
      says(refused({.input = {16}, .integers = true, .vocabulary = 5, .target = {16}, .classes = 5}), "channels=1,classes=7"));
  EXPECT_TRUE(says(refused({.input = {63}, .target = {}, .classes = 10}), "64 numbers (1x8x8)"));
  EXPECT_TRUE(says(refused({.input = {64}, .target = {10}, .classes = 0}), "--loss cross-entropy"));
  EXPECT_TRUE(says(refused(form(1, 8, 6)), "7 classes"));
  EXPECT_TRUE(says(refused(form(4, 8)), "4 channels"));
  Preparation colours;
  colours.scale = parse_pixel_scale("imagenet");
  EXPECT_TRUE(says(refused(form(1, 8), colours), "3 means"));
  EXPECT_EQ(parts.train->samples(form(3, 20), colours)->count(), 2);
}

/// Debian's package of the data set: what its paper says of it.
TEST(FashionMnist, IsReadFromItsPackage) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!reads_gzip()) {
    GTEST_SKIP() << "built without zlib";
  }
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const Parts parts = open(folder);
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().count, 60'000);
  EXPECT_EQ(parts.test->description().count, 10'000);
  EXPECT_EQ(parts.train->description().classes, 10);
  Preparation plain;
  plain.scale = parse_pixel_scale("none");
  const auto samples = parts.train->samples(form(1, 28), plain);
  double sum = 0;
  std::array<int, 10> labels{};
  for (std::int64_t i = 0; i < 60'000; i += 10) {
    for (const float value : input(*samples, {i, 0}, 784)) {
      sum += static_cast<double>(value);
    }
    ++labels[static_cast<std::size_t>(label(*samples, i))];
  }
  EXPECT_NEAR(sum / (6000 * 784), 0.2860, 0.003);
  for (const int count : labels) {
    EXPECT_NEAR(count, 600, 80);
  }
}

}  // namespace
