#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "baton/archive/checksum.h"
#include "baton/archive/element_type.h"
#include "baton/base/file.h"
#include "baton/base/shape.h"

/// The safetensors format: a length, a header in JSON, and the tensors' bytes one after the other, little-endian. Other tools
/// read it. Files are written and read tensor by tensor, so no more than one of them need be in memory.
namespace baton::archive {

/// A tensor without its bytes, which are row-major.
struct TensorInfo {
  ElementType dtype;
  Shape shape;

  std::size_t size() const { return static_cast<std::size_t>(shape.elements() * size_of(dtype)); }
  bool operator==(const TensorInfo&) const = default;
};
using Tensors = std::map<std::string, TensorInfo>;
using Metadata = std::map<std::string, std::string>;

/// A usage error if `ArchiveReader` would refuse a file with these: it has limits, because files may be malicious.
void require_readable(const Tensors& tensors, const Metadata& metadata);

/// Writes under a temporary name, flushes, and only then renames, so that a file of that name is complete even if the
/// program dies. A checksum of the tensors goes into the metadata. A failure says why, and the temporary file is removed.
class ArchiveWriter {
 public:
  ArchiveWriter(std::filesystem::path path, Tensors tensors, Metadata metadata);

  /// The next tensor's bytes. Tensors come in the order of their names.
  void append(std::span<const std::byte> bytes);
  /// After the last one.
  void commit();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Tensors tensors_;
  Metadata metadata_;
  Tensors::const_iterator next_;
  Checksum sum_;
  std::uint64_t checksum_at_ = 0;  // in the file
  WholeFile file_;
};

/// Tensors and metadata by name, read from somewhere.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  virtual const Tensors& tensors() const = 0;
  virtual const Metadata& metadata() const = 0;
  /// All of the tensor's bytes.
  virtual void read(const std::string& name, std::span<std::byte> into) const = 0;
};

/// A file that has been checked completely: a usage error says in one sentence if it is truncated, corrupt or of another
/// format. A file without a checksum, as other tools write it, is accepted.
class ArchiveReader final : public TensorReader {
 public:
  /// `what` names the file in that sentence.
  explicit ArchiveReader(std::filesystem::path path, std::string what = "the checkpoint");

  const Tensors& tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return metadata_; }
  void read(const std::string& name, std::span<std::byte> into) const override;
  /// Some of its bytes, from `begin` on. Any number of threads may read at once.
  void read(const std::string& name, std::uint64_t begin, std::span<std::byte> into) const;

 private:
  std::string checksum() const;
  void read_at(std::uint64_t offset, std::span<std::byte> into) const;

  [[noreturn]] void refuse(const std::string& why) const;

  std::filesystem::path path_;
  std::string what_;
  Descriptor file_;
  Tensors tensors_;
  Metadata metadata_;
  std::map<std::string, std::uint64_t> begin_;  // the first byte of each tensor in the file
};

}  // namespace baton::archive
