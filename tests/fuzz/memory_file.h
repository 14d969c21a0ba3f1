#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace baton::test {

/// A file that is nowhere on disk, for parsers that open what they read.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("fuzzed", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(file_)) {}

  const std::filesystem::path& holding(std::string_view text) {
    if (ftruncate(file_, 0) != 0 || pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      std::abort();
    }
    return path_;
  }

 private:
  int file_;
  std::filesystem::path path_;
};

}  // namespace baton::test
