#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/error.h"

namespace baton::data {

/// "FILE cannot be used as data: WHY".
Error unusable(const std::filesystem::path& path, std::string_view why);

/// True if there is such a file or folder; what cannot be looked at is not there.
bool is_file(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Bytes of which parts are read where they are wanted. Thread-safe.
class Blob {
 public:
  virtual ~Blob() = default;
  virtual std::uint64_t size() const = 0;
  /// The bytes from `offset` on, which must be there.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// A file, which is opened and not read. A usage error if it is missing or not a plain file; a failure if it is cut later.
std::unique_ptr<const Blob> file_blob(const std::filesystem::path& path);
/// A blob of bytes in memory.
std::unique_ptr<const Blob> memory_blob(std::vector<std::byte> bytes);

/// True if this program was built with zlib: without it, gzipped files are refused in a sentence.
bool reads_gzip();
/// The first bytes of what a gzipped file holds; fewer if it holds fewer.
std::vector<std::byte> gunzip_beginning(const std::filesystem::path& path, std::size_t count);
/// All of it, which must be `size` bytes. A usage error if it holds more or fewer, or is damaged. No more memory is taken than a
/// file of this size can fill.
std::vector<std::byte> gunzip(const std::filesystem::path& path, std::uint64_t size);
/// True if the file begins as gzipped ones do.
bool is_gzipped(const std::filesystem::path& path);

}  // namespace baton::data
