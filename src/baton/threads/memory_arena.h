#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/base/units.h"

namespace baton::threads {

/// The memory of one device: allocated once, zeroed, in huge pages if the system provides them.
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

}  // namespace baton::threads
