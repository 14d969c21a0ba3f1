#include "baton/archive/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/archive.h"
#include "support/contents.h"
#include "support/usage_sentence.h"

namespace baton::archive {
namespace {

namespace fs = std::filesystem;
using baton::test::Archive;
using baton::test::read_archive;
using baton::test::says;
using baton::test::Tensor;
using baton::test::usage_sentence;
using baton::test::write_archive;

class Safetensors : public testing::Test {
 protected:
  Safetensors() : folder_(fs::temp_directory_path() / ("baton_safetensors_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Safetensors() override { fs::remove_all(folder_); }

  static Archive sample() {
    Archive archive;
    const auto tensor = [](Shape shape, float first) {
      Tensor made{DType::f32, shape, std::vector<std::byte>(static_cast<std::size_t>(4 * shape.elements()))};
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const float value = first + static_cast<float>(i);
        std::memcpy(made.bytes.data() + 4 * i, &value, 4);
      }
      return made;
    };
    archive.tensors = {{"block0.weight", tensor({3, 2}, 1)}, {"block0.bias", tensor({3}, -7)}, {"z", tensor({1}, 0.5F)}};
    archive.metadata = {{"step", "12"}, {"model", "mlp \"with\" = odd \u00e4 signs"}};
    return archive;
  }
  std::string bytes(const fs::path& path) const { return baton::test::contents(path); }
  void put(const fs::path& path, const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }

  fs::path folder_;
};

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  write_archive(folder_ / "a.safetensors", sample());
  EXPECT_TRUE(read_archive(folder_ / "a.safetensors") == sample());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "a temporary file stayed behind";
}

TEST_F(Safetensors, LaysTheFileOutAsOtherToolsReadIt) {
  write_archive(folder_ / "a.safetensors", sample());
  const std::string file = bytes(folder_ / "a.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header["block0.weight"]["dtype"], "F32");
  EXPECT_EQ(header["block0.weight"]["shape"], (std::vector<int>{3, 2}));
  const auto begin = header["block0.weight"]["data_offsets"][0].get<std::size_t>();
  float second = 0;
  std::memcpy(&second, file.data() + 8 + length + begin + 4, 4);
  EXPECT_EQ(second, 2.0F);
  EXPECT_TRUE(header["__metadata__"]["step"].is_string());
}

TEST_F(Safetensors, RefusesAFileCutAnywhereInOneSentence) {
  write_archive(folder_ / "a.safetensors", sample());
  const std::string whole = bytes(folder_ / "a.safetensors");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(folder_ / "cut.safetensors", whole.substr(0, size));
    const std::string said = usage_sentence([&] { read_archive(folder_ / "cut.safetensors"); });
    EXPECT_TRUE(says(said, "cut.safetensors")) << size;
  }
}

TEST_F(Safetensors, RefusesAFileWithAnyBitOfItsTensorsTurned) {
  write_archive(folder_ / "a.safetensors", sample());
  const std::string whole = bytes(folder_ / "a.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  for (std::size_t at = 8 + length; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      put(folder_ / "b.safetensors", damaged);
      EXPECT_TRUE(says(usage_sentence([&] { read_archive(folder_ / "b.safetensors"); }), "damaged")) << at;
    }
  }
}

TEST_F(Safetensors, RefusesAHeaderThatSaysSomethingElse) {
  write_archive(folder_ / "a.safetensors", sample());
  const std::string whole = bytes(folder_ / "a.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  int refused = 0;
  for (std::size_t at = 0; at < 8 + length; ++at) {
    for (const char other : {'\0', '9', '{', '"', '\xff'}) {
      std::string damaged = whole;
      damaged[at] = other;
      put(folder_ / "b.safetensors", damaged);
      try {
        const Archive read = read_archive(folder_ / "b.safetensors");
        // Characters outside the content may change, and the checksum's own name: then there is none.
        EXPECT_TRUE(read == sample() || read.metadata.size() > sample().metadata.size()) << "at " << at << " to " << other;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Safetensors, WaitsForNobodyWhereAPipeStandsInAFilesPlace) {
  ASSERT_EQ(::mkfifo((folder_ / "p.safetensors").c_str(), 0600), 0);
  EXPECT_TRUE(says(usage_sentence([&] { read_archive(folder_ / "p.safetensors"); }), "not a file"));
}

TEST_F(Safetensors, RefusesHostileHeadersWithoutTakingMemory) {
  const auto said = [&](const std::string& header, const std::string& data = "") {
    std::string text(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(text.data(), &length, 8);
    put(folder_ / "h.safetensors", text + header + data);
    return usage_sentence([&] { read_archive(folder_ / "h.safetensors"); });
  };
  EXPECT_TRUE(says(said("[]"), "JSON"));
  std::string endless = "{\"";
  for (int i = 0; i < 40'000; ++i) {
    endless += "\\\"";
  }
  EXPECT_TRUE(says(said(endless + "\": 1}"), "does not end"));
  EXPECT_TRUE(says(said("{"), "JSON"));
  EXPECT_TRUE(says(said(R"({"a": 3})"), "entry of a"));
  EXPECT_TRUE(
      says(said(R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 16]}})", std::string(16, 'x')),
           "no tensor has"));
  EXPECT_TRUE(
      says(said(R"({"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4000000000000]}})"), "cut or corrupt"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 4]}})", "abcd"), "type Q4"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", "abcdefgh"), "cut or corrupt"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", "abcdefgh"), "more than its header"));
  put(folder_ / "h.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  EXPECT_TRUE(says(usage_sentence([&] { read_archive(folder_ / "h.safetensors"); }), "cut"));
  EXPECT_TRUE(says(usage_sentence([&] { read_archive(folder_ / "nowhere"); }), "nowhere"));
  EXPECT_TRUE(says(usage_sentence([&] { read_archive(folder_); }), "not a file"));
}

TEST_F(Safetensors, TakesNothingThatTheFormatDoesNotHave) {
  const auto said = [&](const std::string& header) {
    std::string text(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(text.data(), &length, 8);
    put(folder_ / "h.safetensors", text + header + "abcd");
    return usage_sentence([&] { read_archive(folder_ / "h.safetensors"); });
  };
  const std::string good = R"("dtype": "F32", "shape": [1], "data_offsets": [0, 4])";
  EXPECT_TRUE(says(said(R"({"__metadata__": 3, "a": {)" + good + "}}"), "metadata is not text"));
  EXPECT_TRUE(says(said(R"({"__metadata__": "x"})"), "metadata is not text"));
  EXPECT_TRUE(says(said(R"({"__metadata__": {"x": 3}})"), "metadata is not text"));
  EXPECT_TRUE(says(said(R"({"__metadata__": {"x": {}}})"), "metadata is not text"));
  EXPECT_TRUE(says(said(R"({"__metadata__": {"x": "1", "x": "2"}})"), "twice"));
  EXPECT_TRUE(says(said(R"({"a": {)" + good + R"(}, "a": {"dtype": "F32", "shape": [0], "data_offsets": [4, 4]}})"), "a twice"));
  EXPECT_TRUE(says(said(R"({"a": {)" + good + R"(, "more": 1}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {)" + good + R"(, "dtype": "F32"}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [[1]], "data_offsets": [0, 4]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})"), "entry of a"));
  EXPECT_TRUE(says(said(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]}})"), "cut or corrupt"));
  EXPECT_TRUE(says(said(R"({"a": {)" + good + "}} x"), "JSON"));
  EXPECT_TRUE(says(said("\"a\""), "JSON"));
  EXPECT_TRUE(says(said("null"), "JSON"));
}

TEST_F(Safetensors, TakesAFileWithoutAChecksumAsOtherToolsWriteIt) {
  const std::string header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  put(folder_ / "o.safetensors", text + header + "abcd");
  EXPECT_EQ(read_archive(folder_ / "o.safetensors").tensors.at("a").shape, Shape{1});
}

TEST_F(Safetensors, LeavesNothingBehindWhereItCannotWrite) {
  EXPECT_THROW(write_archive(folder_ / "missing" / "a.safetensors", sample()), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace baton::archive
