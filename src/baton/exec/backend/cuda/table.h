#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <utility>

#include "baton/exec/backend/cuda/copy.h"
#include "baton/exec/backend/cuda/status.h"

namespace baton::exec::cuda {

/// An array on the GPU that is selected when it is made.
template <typename Element>
class Table {
 public:
  explicit Table(std::span<const Element> elements) {
    require(cudaMalloc(reinterpret_cast<void**>(&data_), elements.size_bytes()), "taking memory");
    copy_to_device(data_, elements.data(), elements.size_bytes());
  }
  ~Table() { cudaFree(data_); }
  Table(Table&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Table& operator=(Table&&) = delete;

  Element* data() const { return data_; }

 private:
  Element* data_ = nullptr;
};

}  // namespace baton::exec::cuda
