#include "baton/base/memory.h"

#include <sys/mman.h>

#include <new>

namespace baton {

void require_memory(Bytes size) {
  const auto bytes = static_cast<std::size_t>(size.count);
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) {
    throw std::bad_alloc();
  }
  munmap(block, bytes);
}

}  // namespace baton
