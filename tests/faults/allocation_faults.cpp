// A library to be loaded ahead of others (LD_PRELOAD). It counts the allocations of C++ (operator new) and of
// the C library, and lets one of them fail, or all from one on. What hwloc, libxsmm and the CUDA runtime
// allocate by themselves does not count: they do not look whether they got it, which is why Baton asks
// beforehand whether there is enough.
//
//   BATON_ALLOCATION_AT=N       which one fails, from 1 on
//   BATON_ALLOCATION_ON=1       and all after it
//   BATON_ALLOCATION_COUNT=FILE gets how many there were, when the process ends

#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

std::atomic<long> allocations{0};

/// Where the code of a library lies.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
Range counted[2];

int find_range(dl_phdr_info* info, std::size_t, void*) {
  const bool is_cpp = std::strstr(info->dlpi_name, "/libstdc++.so") != nullptr;
  if (!is_cpp && std::strstr(info->dlpi_name, "/libc.so") == nullptr) {
    return 0;
  }
  Range& range = counted[is_cpp ? 0 : 1];
  range.begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    range.end = std::max<std::uintptr_t>(range.end, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  }
  return 0;
}

__attribute__((constructor)) void find_ranges() { dl_iterate_phdr(find_range, nullptr); }

bool fails(const void* caller) {
  const auto place = reinterpret_cast<std::uintptr_t>(caller);
  if (std::none_of(counted, counted + 2, [&](const Range& range) { return place >= range.begin && place < range.end; })) {
    return false;
  }
  static const long at = [] {
    const char* text = std::getenv("BATON_ALLOCATION_AT");
    return text == nullptr ? 0 : std::atol(text);
  }();
  static const bool on = std::getenv("BATON_ALLOCATION_ON") != nullptr;
  const long number = allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  return at > 0 && (number == at || (on && number > at));
}

void* refuse() {
  errno = ENOMEM;
  return nullptr;
}

__attribute__((destructor)) void tell() {
  if (const char* path = std::getenv("BATON_ALLOCATION_COUNT")) {
    char line[32];
    const int length = std::snprintf(line, sizeof line, "%ld\n", allocations.load());
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (write(file, line, static_cast<std::size_t>(length)) != length) {
      _exit(99);
    }
    close(file);
  }
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) { return fails(__builtin_return_address(0)) ? refuse() : __libc_malloc(size); }
void* calloc(std::size_t count, std::size_t size) {
  return fails(__builtin_return_address(0)) ? refuse() : __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) { return fails(__builtin_return_address(0)) ? refuse() : __libc_realloc(block, size); }
void* memalign(std::size_t alignment, std::size_t size) {
  return fails(__builtin_return_address(0)) ? refuse() : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return fails(__builtin_return_address(0)) ? refuse() : __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  if (fails(__builtin_return_address(0))) {
    return ENOMEM;
  }
  *block = __libc_memalign(alignment, size);
  return *block == nullptr ? ENOMEM : 0;
}

}  // extern "C"
