#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/archive/element_type.h"
#include "baton/data/blob.h"
#include "baton/data/source.h"

namespace baton::data {

/// A tensor in a file, whose first axis counts samples.
struct Array {
  std::string name;  // names the file, and the tensor in it
  std::shared_ptr<const Blob> bytes;
  std::uint64_t begin = 0;
  archive::ElementType type;
  std::vector<std::int64_t> shape;

  std::int64_t samples() const { return shape.empty() ? 0 : shape[0]; }
  /// Elements of one sample.
  std::int64_t each() const;
  bool integers() const;
  /// The elements from `first` on, as numbers.
  void read(std::int64_t first, std::span<float> out) const;
  /// Reads the elements from `first` on as integers; a usage error names one that is not in [0, limit).
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t limit, const char* what) const;
};

/// A file of NumPy's.
Array open_npy(const std::filesystem::path& path);
/// The tensors of a safetensors file, by name.
std::map<std::string, Array> open_safetensors(const std::filesystem::path& path);

/// Inputs with what they are to become. Without targets, a list of integers is a text of tokens, which `tokenizer` made if it is
/// given; anything else is a usage error.
std::shared_ptr<const Source> arrays_source(Array inputs, std::vector<Array> targets,
                                            std::shared_ptr<const Tokenizer> tokenizer = nullptr);

}  // namespace baton::data
