#include "baton/threads/memory_arena.h"

#include <sys/mman.h>

#include <utility>

#include "baton/base/error.h"

namespace baton::threads {

MemoryArena::MemoryArena(Bytes size) : size_(size) {
  if (size.count == 0) {
    return;
  }
  void* base = mmap(nullptr, static_cast<std::size_t>(size.count), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throw failure("the system does not give {} of memory for a device", to_text(size));
  }
  madvise(base, static_cast<std::size_t>(size.count), MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(base);
}

MemoryArena::MemoryArena(MemoryArena&& other) noexcept : size_(other.size_), base_(std::exchange(other.base_, nullptr)) {}

MemoryArena::~MemoryArena() {
  if (base_ != nullptr) {
    munmap(base_, static_cast<std::size_t>(size_.count));
  }
}

}  // namespace baton::threads
