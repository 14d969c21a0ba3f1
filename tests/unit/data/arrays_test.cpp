#include "baton/data/arrays.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "baton/archive/safetensors.h"
#include "baton/data/open.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "written.h"

using namespace baton;
using namespace baton::data;

namespace {

using test::packed;
using test::says;
using test::usage_sentence;
using test::write_bytes;

/// A .npy file of version 1, as NumPy writes it.
std::string npy(const std::string& type, const std::string& shape, const std::string& elements,
                const std::string& order = "False") {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", type, order, shape);
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  return std::string("\x93NUMPY\x01\x00", 8) + packed(std::vector<std::uint16_t>{static_cast<std::uint16_t>(header.size())}) +
         header + elements;
}

class Arrays : public test::OwnFolder {
 protected:
  static std::vector<float> input(const Samples& samples, std::int64_t sample, std::size_t count) {
    std::vector<float> out(count);
    samples.input({sample, 0}, std::span(out));
    return out;
  }
  static std::vector<std::int32_t> labels(const Samples& samples, std::int64_t sample, std::size_t count) {
    std::vector<std::int32_t> out(count);
    samples.target({sample, 0}, std::span(out));
    return out;
  }
};

TEST_F(Arrays, OfNumbersWithLabelsAreReadByName) {
  write_bytes(folder_ / "x_train.npy", npy("<f4", "(2, 3)", packed(std::vector<float>{1, 2, 3, 4, 5, 6})));
  write_bytes(folder_ / "y_train.npy", npy("<i8", "(2,)", packed(std::vector<std::int64_t>{1, 3})));
  write_bytes(folder_ / "x_test.npy", npy("<f8", "(1, 3)", packed(std::vector<double>{7, 8, 9})));
  write_bytes(folder_ / "y_test.npy", npy("|u1", "(1,)", packed(std::vector<std::uint8_t>{2})));
  const Form form{.input = {3}, .target = {}, .classes = 4};
  const Parts parts = open(folder_.string());
  ASSERT_TRUE(parts.train && parts.test);
  EXPECT_EQ(parts.train->description().classes, 4);
  const auto samples = parts.train->samples(form, {});
  EXPECT_EQ(input(*samples, 1, 3), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(labels(*samples, 1, 1)[0], 3);
  EXPECT_EQ(input(*parts.test->samples(form, {}), 0, 3), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(input(*open(folder_.string()).train->samples(form, {}), 1, 3), (std::vector<float>{4, 5, 6})) << "without their source";
  // Both files, or the one of the inputs, can be given as well.
  for (const std::string& text :
       {(folder_ / "x_train.npy").string() + "," + (folder_ / "y_train.npy").string(), (folder_ / "x_train.npy").string()}) {
    EXPECT_EQ(open(text).train->description().count, 2) << text;
  }
  EXPECT_TRUE(says(usage_sentence([&] { parts.train->samples({.input = {4}, .target = {}, .classes = 4}, {}); }), "samples of 3"));
  EXPECT_TRUE(
      says(usage_sentence([&] { parts.train->samples({.input = {3}, .target = {}, .classes = 3}, {}); }), "labels up to 3"));
  EXPECT_TRUE(says(usage_sentence([&] { parts.train->samples({.input = {3}, .target = {2}}, {}); }), "y_train.npy"));
  write_bytes(folder_ / "y_train.npy", npy("<i8", "(2,)", packed(std::vector<std::int64_t>{-1, 3})));
  EXPECT_TRUE(says(usage_sentence([&] { open(folder_.string()).train->samples(form, {}); }),
                   "has the label -1, but the model has 4 classes, 0 to 3"));
}

TEST_F(Arrays, OfEveryTypeBecomeFloats) {
  const std::vector<std::pair<std::string, std::string>> files{{"<f4", packed(std::vector<float>{0, 100})},
                                                               {"<f8", packed(std::vector<double>{0, 100})},
                                                               {"<f2", packed(std::vector<std::uint16_t>{0, 0x5640})},
                                                               {"|u1", packed(std::vector<std::uint8_t>{0, 100})},
                                                               {"|i1", packed(std::vector<std::int8_t>{0, 100})},
                                                               {"<i2", packed(std::vector<std::int16_t>{0, 100})},
                                                               {"<u2", packed(std::vector<std::uint16_t>{0, 100})},
                                                               {"<i4", packed(std::vector<std::int32_t>{0, 100})},
                                                               {"<u4", packed(std::vector<std::uint32_t>{0, 100})},
                                                               {"<i8", packed(std::vector<std::int64_t>{0, 100})},
                                                               {"<u8", packed(std::vector<std::uint64_t>{0, 100})}};
  write_bytes(folder_ / "y.npy", npy("<f4", "(2, 1)", packed(std::vector<float>{0.5F, -1})));
  for (const auto& [type, bytes] : files) {
    write_bytes(folder_ / "x.npy", npy(type, "(2, 1)", bytes));
    const Parts parts = open(folder_.string());
    const auto samples = parts.train->samples({.input = {1}, .target = {1}}, {});
    EXPECT_EQ(input(*samples, 1, 1)[0], 100) << type;
    std::vector<float> target(1);
    samples->target({1, 0}, std::span(target));
    EXPECT_EQ(target[0], -1) << type;
  }
}

TEST_F(Arrays, OfTokensAloneAreATextOfTokens) {
  write_bytes(folder_ / "tokens.npy", npy("<i8", "(7,)", packed(std::vector<std::int64_t>{5, 6, 7, 8, 9, 10, 11})));
  const Parts parts = open((folder_ / "tokens.npy").string());
  EXPECT_EQ(parts.train->description().kind, ContentType::tokens);
  const Form form{.input = {3}, .integers = true, .vocabulary = 12, .target = {3}, .classes = 12};
  EXPECT_EQ(labels(*parts.train->samples(form, {}), 1, 3), (std::vector<std::int32_t>{9, 10, 11}));
}

TEST_F(Arrays, OfTokensBelowZeroAreNamedAsTheyAre) {
  const Form form{.input = {2}, .integers = true, .vocabulary = 256, .target = {2}, .classes = 256};
  const auto refused = [&](const std::string& type, const std::string& elements) {
    write_bytes(folder_ / "t.npy", npy(type, "(5,)", elements));
    const Parts parts = open((folder_ / "t.npy").string());
    const auto samples = parts.train->samples(form, {});
    return usage_sentence([&] {
      std::vector<std::int32_t> out(2);
      samples->input({1, 0}, std::span(out));
    });
  };
  EXPECT_TRUE(says(refused("<i8", packed(std::vector<std::int64_t>{1, 2, -3, 4, 5})), "t.npy is -3, but"));
  EXPECT_TRUE(says(refused("<i2", packed(std::vector<std::int16_t>{1, 2, -3, 4, 5})), "t.npy is -3, but"));
  EXPECT_TRUE(says(refused("|i1", packed(std::vector<std::int8_t>{1, 2, -3, 4, 5})), "t.npy is -3, but"));
  EXPECT_TRUE(says(refused("<u8", packed(std::vector<std::uint64_t>{1, 2, ~std::uint64_t{0}, 4, 5})), "is 18446744073709551615"));
}

TEST_F(Arrays, WithNumbersThatAreNotFiniteAreNamedWithTheSample) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  write_bytes(folder_ / "x.npy", npy("<f4", "(3, 2)", packed(std::vector<float>{1, 2, 3, nan, 5, 6})));
  write_bytes(folder_ / "y.npy", npy("<f8", "(3, 1)", packed(std::vector<double>{1, 2, 1e300})));
  const Parts parts = open((folder_ / "x.npy").string());
  const auto samples = parts.train->samples({.input = {2}, .target = {1}}, {});
  EXPECT_EQ(input(*samples, 0, 2), (std::vector<float>{1, 2}));
  EXPECT_TRUE(says(usage_sentence([&] { input(*samples, 1, 2); }),
                   (folder_ / "x.npy").string() + " holds nan at element 1 of its sample 1"));
  std::vector<float> out(1);
  EXPECT_TRUE(says(usage_sentence([&] {
                     samples->target({2, 0}, std::span(out));
                   }),
                   "y.npy holds 1e+300 at element 0 of its sample 2"));
}

TEST_F(Arrays, OfSafetensorsAreReadByTheNamesOfTheirTensors) {
  const auto write = [&](const std::string& file, const std::string& header, const std::string& elements) {
    write_bytes(folder_ / file, packed(std::vector<std::uint64_t>{header.size()}) + header + elements);
  };
  const std::string elements = packed(std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6, 7, 8}) + packed(std::vector<std::int64_t>{4, 0});
  write(
      "data.safetensors",
      R"({"images": {"dtype": "U8", "shape": [2, 1, 2, 2], "data_offsets": [0, 8]}, "labels": {"dtype": "I64", "shape": [2], "data_offsets": [8, 24]}})",
      elements);
  const Form form{.input = {1, 2, 2}, .target = {}, .classes = 5};
  const Parts parts = open((folder_ / "data.safetensors").string());
  const auto samples = parts.train->samples(form, {});
  EXPECT_EQ(input(*samples, 1, 4), (std::vector<float>{5, 6, 7, 8}));
  EXPECT_EQ(labels(*samples, 0, 1)[0], 4);
  Preparation scaled;
  scaled.scale = parse_pixel_scale("0.5/0.25");
  EXPECT_FLOAT_EQ(input(*parts.train->samples(form, scaled), 0, 4)[0], (1 / 255.0F - 0.5F) / 0.25F);
  scaled.augmentation.flip = true;
  EXPECT_TRUE(says(usage_sentence([&] { parts.train->samples(form, scaled); }), "--augment"));
  write(
      "data.safetensors",
      R"({"weights": {"dtype": "U8", "shape": [2, 1, 2, 2], "data_offsets": [0, 8]}, "labels": {"dtype": "I64", "shape": [2], "data_offsets": [8, 24]}})",
      elements);
  EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / "data.safetensors").string()); }), "0 arrays of inputs and 1 of targets"));
  write("data.safetensors", R"({"x": {"dtype": "U8", "shape": [9], "data_offsets": [0, 9]}})", "12345678");
  EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / "data.safetensors").string()); }), "the data"));
}

TEST_F(Arrays, InLyingFilesAreRefused) {
  const auto refused = [&](const std::string& bytes) {
    write_bytes(folder_ / "x.npy", bytes);
    return usage_sentence([&] { open((folder_ / "x.npy").string()); });
  };
  const std::string four = packed(std::vector<float>{1, 2, 3, 4});
  EXPECT_TRUE(says(refused(""), "not a .npy"));
  EXPECT_TRUE(says(refused("\x93NUMPY\x01"), "not a .npy"));
  EXPECT_TRUE(says(refused(npy("<f4", "(2, 3)", four)), "24 bytes of elements, but it has 16"));
  EXPECT_TRUE(says(refused(npy("<f4", "(99999999999, 99999999999)", four)), "no file has"));
  EXPECT_TRUE(says(refused(npy("<f4", "(999999999999999999999999,)", four)), "no file has"));
  EXPECT_TRUE(says(refused(npy("<f4", "(0, 4)", "")), "no samples"));
  EXPECT_TRUE(says(refused(npy("<f4", "()", "abcd")), "no samples"));
  EXPECT_TRUE(says(refused(npy(">f4", "(4,)", four)), ">f4"));
  EXPECT_TRUE(says(refused(npy("|O", "(4,)", four)), "|O"));
  EXPECT_TRUE(says(refused(npy("<f4", "(2, 2)", four, "True")), "Fortran"));
  EXPECT_TRUE(says(refused(npy("<f4", "(2, 2", four)), "NumPy's"));
  EXPECT_TRUE(says(refused(npy("<f4", "(-2, 2)", four)), "NumPy's"));
  EXPECT_TRUE(says(refused(npy("<f4", "(4,)", four).replace(6, 1, "\7")), "version 7"));
  EXPECT_TRUE(says(refused(npy("<f4", "(4,)", four).substr(0, 40)), "cut"));
  EXPECT_TRUE(says(refused(npy("<f4", "(4,)", four)), "--data inputs.npy,labels.npy"));
}

/// A file that NumPy itself wrote.
TEST_F(Arrays, OfNumpyAreRead) {
  const std::string program = "import numpy as n; n.save('" + (folder_ / "x.npy").string() +
                              "', n.arange(24,dtype='f4').reshape(4,2,3)); n.save('" + (folder_ / "y.npy").string() +
                              "', n.arange(4))";
  if (std::system(("/usr/bin/python3 -c \"" + program + "\" 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "python3 has no NumPy";
  }
  const Parts parts = open(folder_.string());
  const auto samples = parts.train->samples({.input = {2, 3}, .target = {}, .classes = 4}, {});
  EXPECT_EQ(input(*samples, 3, 6), (std::vector<float>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(labels(*samples, 2, 1)[0], 2);
}

TEST_F(Arrays, AndOtherFilesThatCannotBeReadAreRefusedWithAdvice) {
  for (const auto& [name, advice] : {std::pair("a.npz", "numpy.save"), std::pair("a.pt", "safetensors"),
                                     std::pair("a.zip", "unpack"), std::pair("a.png", "folder per class")}) {
    write_bytes(folder_ / name, "x");
    EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / name).string()); }), advice));
  }
  EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / "none").string()); }), "no such file or folder"));
  EXPECT_TRUE(says(usage_sentence([&] { open("random"); }), "random numbers"));
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_TRUE(says(usage_sentence([&] { open((folder_ / "empty").string()); }), "no token files"));
}

}  // namespace
