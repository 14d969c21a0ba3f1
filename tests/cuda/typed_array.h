#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "baton/base/narrow.h"
#include "cuda/device_array.h"

namespace baton::test {

/// Elements of any type on the GPU. Filled with not-a-number, so that what a kernel leaves out shows.
class TypedArray {
 public:
  TypedArray(DType type, std::size_t count) : type_(type), count_(count), bytes_(count * static_cast<std::size_t>(size_of(type))) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_ + 64), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xff, bytes_ + 64), cudaSuccess);
  }
  TypedArray(DType type, const std::vector<double>& values) : TypedArray(type, values.size()) {
    std::vector<std::byte> bytes(bytes_);
    for (std::size_t i = 0; i < count_; ++i) {
      const auto put = [&](auto element) { std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element); };
      const auto value = static_cast<float>(values[i]);
      switch (type) {
        case DType::bf16:
          put(Bf16(value).bits);
          break;
        case DType::f16:
          put(F16(value).bits);
          break;
        case DType::f64:
          put(values[i]);
          break;
        case DType::i32:
          put(static_cast<std::int32_t>(values[i]));
          break;
        default:
          put(value);
      }
    }
    EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~TypedArray() { cudaFree(data_); }
  TypedArray(const TypedArray&) = delete;
  TypedArray& operator=(const TypedArray&) = delete;

  void* data() const { return data_; }
  template <typename Element>
  Element* as() const {
    return static_cast<Element*>(data_);
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(bytes_);
    EXPECT_EQ(cudaMemcpy(out.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }
  std::vector<double> values() const {
    const std::vector<std::byte> all = bytes();
    std::vector<double> out(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      const auto get = [&](auto element) {
        std::memcpy(static_cast<void*>(&element), all.data() + i * sizeof element, sizeof element);
        return element;
      };
      switch (type_) {
        case DType::bf16:
          out[i] = static_cast<double>(static_cast<float>(get(Bf16())));
          break;
        case DType::f16:
          out[i] = static_cast<double>(static_cast<float>(get(F16())));
          break;
        case DType::f64:
          out[i] = get(double{});
          break;
        case DType::i32:
          out[i] = get(std::int32_t{});
          break;
        default:
          out[i] = static_cast<double>(get(float{}));
      }
    }
    return out;
  }

 private:
  DType type_;
  std::size_t count_;
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Numbers around zero, the same ones for the same seed.
inline std::vector<double> normal_numbers(std::size_t count, unsigned seed, double size = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<double> list(count);
  for (double& value : list) {
    value = static_cast<double>(normal(engine)) * size;
  }
  return list;
}

/// The largest difference over the root mean square of what is expected, or over `least` if that is more; not a number if one is.
inline double distance(const std::vector<double>& expected, const std::vector<double>& actual, double least = 1e-15) {
  EXPECT_EQ(expected.size(), actual.size());
  double squares = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += expected[i] * expected[i];
    const double off = std::abs(expected[i] - actual[i]);
    worst = off > worst || std::isnan(off) ? off : worst;
  }
  return worst / std::max(least, std::sqrt(squares / static_cast<double>(expected.size())));
}

/// How far from the exact result a kernel may be that sums in float32 and rounds the result once, by `distance`.
inline double rounding_of(DType type) { return type == DType::bf16 ? 4e-2 : type == DType::f16 ? 5e-3 : 3e-5; }

constexpr DType floating_types[] = {DType::f32, DType::bf16, DType::f16};

/// Whether a kernel gives the same bits again. `run` fills the arrays that it is given.
template <typename Run>
void expect_same_bits(DType type, std::size_t count, const Run& run, const std::string& what) {
  const TypedArray first(type, count);
  const TypedArray second(type, count);
  run(first.data());
  run(second.data());
  EXPECT_EQ(first.bytes(), second.bytes()) << what << ": bits differ between two runs";
}

}  // namespace baton::test
