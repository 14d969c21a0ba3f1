#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "baton/cuda/cuda.h"

namespace baton::test {

/// Floats on the GPU. Filled with not-a-number, so that what a kernel leaves out shows.
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size) : size_(size) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xff, size * sizeof(float)), cudaSuccess);
  }
  explicit DeviceArray(const std::vector<float>& values) : DeviceArray(values.size()) { set(values); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  float* data() const { return data_; }
  void set(const std::vector<float>& values) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<float> values() const {
    std::vector<float> out(size_);
    EXPECT_EQ(cudaMemcpy(out.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  std::size_t size_;
  float* data_ = nullptr;
};

}  // namespace baton::test

/// Skips a test if there is no GPU.
#define BATON_NEEDS_GPU()                          \
  if (!::baton::cuda::has_gpu()) {                 \
    GTEST_SKIP() << "there is no NVIDIA GPU here"; \
  }
