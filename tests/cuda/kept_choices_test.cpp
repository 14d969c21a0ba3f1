#include "baton/cuda/kept_choices.h"

#include <fstream>

#include "baton/base/file.h"
#include "baton/cuda/cublas_lt.h"
#include "cuda/device_array.h"
#include "support/own_folder.h"
#include "support/variable.h"

namespace baton::cuda {
namespace {

using test::DeviceArray;
using test::Variable;

constexpr std::int64_t extent = 512;
constexpr std::size_t elements = extent * extent;

/// A product of ones, prepared with choices kept in `folder`.
class Prepared {
 public:
  explicit Prepared(const std::filesystem::path& folder)
      : a_(std::vector<float>(elements, 1)),
        b_(std::vector<float>(elements, 1)),
        d_(elements),
        workspace_(static_cast<std::size_t>(product_workspace(extent, extent)) / sizeof(float)) {
    const Variable variable("BATON_CUDA_CACHE", folder.c_str());
    place_.enter();
    BlasLt blas(place_);
    const cudaStream_t stream = place_.stream(plan::Lane::compute);
    const std::unique_ptr<Product> product = blas.prepare({.m = extent, .n = extent, .k = extent},
                                                          {a_.data(), b_.data(), d_.data()}, workspace_.data(),
                                                          product_workspace(extent, extent), stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    raced_ = a_.values()[0] != 1;  // algorithms are timed on other numbers
    a_.set(std::vector<float>(elements, 1));
    b_.set(std::vector<float>(elements, 1));
    product->run(stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }

  bool raced() const { return raced_; }
  bool right() const { return d_.values() == std::vector<float>(elements, static_cast<float>(extent)); }

 private:
  GpuPlace place_{0};
  DeviceArray a_;
  DeviceArray b_;
  DeviceArray d_;
  DeviceArray workspace_;
  bool raced_ = false;
};

class KeptChoicesOnGpu : public test::OwnFolder {
 protected:
  /// The one file of choices in a folder.
  static std::filesystem::path file_in(const std::filesystem::path& folder) {
    const std::filesystem::directory_iterator files(folder);
    EXPECT_NE(files, std::filesystem::directory_iterator());
    return files->path();
  }
};

TEST_F(KeptChoicesOnGpu, AProductIsTimedOnceAndThenTakenFromTheFile) {
  BATON_NEEDS_GPU();
  const Prepared first(folder_ / "first");
  EXPECT_TRUE(first.raced());
  EXPECT_TRUE(first.right());
  // As another process would find it: what this one remembers belongs to the first folder.
  std::filesystem::copy(folder_ / "first", folder_ / "second");
  const Prepared second(folder_ / "second");
  EXPECT_FALSE(second.raced());
  EXPECT_TRUE(second.right());
}

TEST_F(KeptChoicesOnGpu, AnAlgorithmThatTheLibraryDoesNotKnowIsChosenAnewAndReplaced) {
  BATON_NEEDS_GPU();
  const Prepared first(folder_ / "first");
  const std::filesystem::path file = file_in(folder_ / "first");
  const std::string text = read_file(file, "it", Bytes(1 << 20));
  const std::string kind = text.substr(text.find('\n') + 1, text.find('\n', text.find('\n') + 1) - text.find('\n') - 1);
  const Choices good = parse_choices(text, kind);
  ASSERT_EQ(good.size(), 1U);
  Choices strange = good;
  strange.begin()->second.algorithm.fill(0x0123456789abcdef);
  std::filesystem::create_directories(folder_ / "second");
  std::ofstream(folder_ / "second" / file.filename()) << format_choices(strange, kind);
  const Prepared second(folder_ / "second");
  EXPECT_TRUE(second.raced());
  EXPECT_TRUE(second.right());
  const Choices after = parse_choices(read_file(folder_ / "second" / file.filename(), "it", Bytes(1 << 20)), kind);
  ASSERT_EQ(after.size(), 1U);
  EXPECT_NE(after.begin()->second, strange.begin()->second);
}

TEST_F(KeptChoicesOnGpu, WhereNothingIsKeptAProductIsTimedAllTheSame) {
  BATON_NEEDS_GPU();
  std::ofstream(folder_ / "file") << "no folder";
  const Prepared product(folder_ / "file" / "below");
  EXPECT_TRUE(product.raced());
  EXPECT_TRUE(product.right());
}

}  // namespace
}  // namespace baton::cuda
