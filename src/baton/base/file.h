#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "baton/base/units.h"

namespace baton {

/// The most that a TOML file may have: a tree of what a hostile one holds takes many times its size.
inline constexpr Bytes most_toml(std::int64_t{64} << 10);

/// An open file that is closed whatever happens.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return file_; }
  /// Zero, or what went wrong, as `errno` counts it.
  int close();

 private:
  int file_;
};

/// Reads exactly so many bytes: false where the file ends before, or cannot be read.
bool read_exactly(int file, std::span<std::byte> into);

/// What a file of at most `most` bytes holds. A usage error, in which `what` names it, says that it is not there, cannot be read
/// or is larger; no more than `most` bytes are read of it.
std::string read_file(const std::filesystem::path& path, std::string_view what, Bytes most);

/// Writes the parts one after the other to a temporary name beside the path, flushes, and only then gives the file its own name:
/// what stands there is what was there before or all of the new, whenever the program dies. A failure, in which `what` names the
/// file, says why not; nothing is left behind. What is a device or a pipe already stays one, and is written into.
void write_whole(const std::filesystem::path& path, std::string_view what, std::span<const std::span<const std::byte>> parts);
void write_whole(const std::filesystem::path& path, std::string_view text);

/// Whether a device or a pipe has this name, as /dev/null, so that no file may take its place.
bool is_device(const std::filesystem::path& path);

/// Adds a line at the end. One that a writer died in is ended first; where this one cannot be written whole, the file is cut back
/// to what it was, and a failure says why.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Whether the file is a temporary one of `write_whole` whose writer has died.
bool is_leftover(const std::filesystem::path& path);

}  // namespace baton
