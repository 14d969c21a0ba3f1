#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "baton/cuda/copy.h"
#include "baton/cuda/status.h"

namespace baton::cuda {

/// An array on the GPU that is selected when it is made.
template <typename Element>
class Table {
 public:
  explicit Table(std::span<const Element> elements) : data_(taken(elements.size_bytes())) {
    copy_to_device(data(), elements.data(), elements.size_bytes());
  }

  Element* data() const { return static_cast<Element*>(data_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;

  static Memory taken(std::size_t bytes) {
    void* memory = nullptr;
    require(cudaMalloc(&memory, bytes), "taking memory");
    return Memory(memory);
  }

  Memory data_;
};

}  // namespace baton::cuda
