#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/data/blob.h"
#include "baton/data/source.h"

/// Files of tokens: llm.c's shards, which have a header, and plain ones.
namespace baton::data {

/// Integers of 1, 2, 4 or 8 bytes, little-endian, one after the other.
class TokenFile {
 public:
  TokenFile(std::shared_ptr<const Blob> bytes, std::uint64_t begin, std::uint32_t width, std::int64_t count, std::string name,
            bool has_sign = false);

  std::int64_t count() const { return count_; }
  std::uint32_t width() const { return width_; }
  /// The tokens from `first` on. A failure names one that is not below the vocabulary.
  void read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const;

 private:
  std::shared_ptr<const Blob> bytes_;
  std::uint64_t begin_;
  std::uint32_t width_;
  std::int64_t count_;
  std::string name_;  // for failures
  bool has_sign_;
};

/// Opens a file of tokens: one with llm.c's header, or a plain one, of the type that is given or that the file shows. A usage error
/// if a header says another type than the one that is given, unless that was given `of_other_data`.
TokenFile open_token_file(const std::filesystem::path& path, std::optional<TokenType> token_type, bool of_other_data = false);

/// Tokens of one or several files as a source. `vocabulary` may be 0: not known.
std::shared_ptr<const Source> tokens_source(std::vector<TokenFile> files, std::int64_t vocabulary, std::string format,
                                            std::shared_ptr<const Tokenizer> tokenizer);

/// Writes a shard as llm.c reads it: with two bytes per token if the vocabulary allows, with four otherwise.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, std::int64_t vocabulary);

  void append(std::span<const std::int32_t> tokens);
  /// After the last token. A usage error if there is none.
  void commit();
  std::int64_t count() const { return count_; }

 private:
  WholeFile file_;
  std::string name_;
  std::uint32_t width_;
  std::int64_t count_ = 0;
  std::vector<std::byte> packed_;
};

}  // namespace baton::data
