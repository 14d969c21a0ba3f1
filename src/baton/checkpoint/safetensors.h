#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/shape.h"

/// The safetensors format: a length, a header in JSON, and the tensors' bytes one after the other, little-endian. Other tools
/// read it.
namespace baton::checkpoint {

struct Tensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<std::byte> bytes;  // row-major

  bool operator==(const Tensor&) const = default;
};

/// Tensors and remarks by name.
struct Archive {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;

  bool operator==(const Archive&) const = default;
};

/// Writes under a temporary name, flushes, and only then gives the file its own: what stands there is whole, whenever the
/// program dies. A checksum of the tensors goes into the metadata. A failure says why; nothing is left behind.
void write_archive(const std::filesystem::path& path, const Archive& archive);

/// Reads and checks it: a usage error says in one sentence what is wrong with a file that is cut, corrupt or something else.
/// A file without a checksum, as other tools write it, is taken.
Archive read_archive(const std::filesystem::path& path);

}  // namespace baton::checkpoint
