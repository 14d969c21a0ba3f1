#include "baton/base/memory.h"

#include <cstdlib>
#include <new>

namespace baton {

void require_memory(Bytes size) {
  void* volatile block = std::malloc(static_cast<std::size_t>(size.count));  // volatile: a pair of calls that may not be left out
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  std::free(block);
}

}  // namespace baton
