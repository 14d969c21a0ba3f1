#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "baton/base/units.h"

namespace baton {

/// The largest TOML file that is read: the tree of a malicious one takes many times its size.
inline constexpr Bytes most_toml(std::int64_t{64} << 10);

/// An open file that the destructor closes.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return file_; }
  /// Zero, or what went wrong, as `errno` counts it.
  int close();

 private:
  int file_;
};

/// Reads exactly this many bytes; false if the file ends before, or cannot be read.
bool read_exactly(int file, std::span<std::byte> into);

/// The contents of a file of at most `most` bytes. A usage error, in which `what` names it, says that it is not there,
/// cannot be read or is larger; no more than `most` bytes are read of it.
std::string read_file(const std::filesystem::path& path, std::string_view what, Bytes most);

/// The place to which a user's path leads. Symbolic links are followed, and never replaced.
struct Destination {
  std::filesystem::path path;
  /// An open file of this process that the path stands for, as /dev/stdout does; -1 if there is none.
  int descriptor = -1;
  /// A device, a pipe or an open file of another process: it is opened and written into, and no file takes its place.
  bool written_into = false;
};
Destination destination_of(const std::filesystem::path& path);

/// A file that is written under a temporary name and renamed only when it is complete: even if the program dies, the path holds
/// either the old contents or all of the new. Failures, in which `what` names the file, say why not, and the temporary file is
/// removed. A path that is not a plain file is written into directly.
class WholeFile {
 public:
  WholeFile(const std::filesystem::path& path, std::string what);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void append(std::span<const std::byte> bytes);
  /// Replaces bytes that were appended before. Only for a path that leads to a plain file.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Flushes, and gives the file its name. Nothing can be written after it.
  void commit();

 private:
  [[noreturn]] void fail(int error);

  Destination to_;
  std::string what_;
  std::string temporary_;  // empty: written into, or committed
  Descriptor file_{-1};
};

void write_whole(const std::filesystem::path& path, std::string_view text);

/// Throws what writing the path would throw, before the work whose result it gets has begun: it is a folder, or not writable,
/// or a named pipe that nobody reads within a second. A pipe is held open from then on, so that its reader waits for what is
/// written.
void require_writable(const std::filesystem::path& path);

/// Removes the temporary files that this process is writing: it is about to end in the middle.
void remove_temporaries();

/// Adds a line at the end. An unfinished line of a writer that died is ended first; if this line cannot be written completely, the
/// file is cut back to what it was, and a failure says why.
void append_line(const std::filesystem::path& path, std::string_view line);

/// A lock on an existing folder, which one process at a time can hold. It ends with the process, however that ends.
class FolderLock {
 public:
  FolderLock() = default;
  /// A usage error, in these words, if another process has the folder and does not end within a second. If the file
  /// system has no locks, nothing is locked.
  FolderLock(const std::filesystem::path& folder, const std::string& taken);

 private:
  Descriptor file_{-1};
};

/// True if the file is a temporary one of a `WholeFile` whose writer has died.
bool is_leftover(const std::filesystem::path& path);

}  // namespace baton
