#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/base/units.h"

namespace baton::exec {

/// One device's memory: taken from the system once, zeroed, in huge pages where the system gives them.
class MemoryArena {
 public:
  explicit MemoryArena(Bytes size);
  ~MemoryArena();
  MemoryArena(MemoryArena&& other) noexcept;
  MemoryArena& operator=(MemoryArena&&) = delete;

  std::byte* at(std::int64_t offset) const { return base_ + offset; }
  Bytes size() const { return size_; }

 private:
  Bytes size_;
  std::byte* base_ = nullptr;
};

}  // namespace baton::exec
