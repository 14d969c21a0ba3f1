#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::data {

/// Turns text into tokens and back. Immutable: any number of threads may call it at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes", "chars" or "bpe".
  virtual std::string_view name() const = 0;
  /// Tokens are below this.
  virtual std::int64_t vocabulary() const = 0;
  /// Appends the tokens of a text. A usage error names a character that has no token.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  /// The bytes that one token stands for; empty if it stands for none. Several tokens may make up one character.
  virtual std::string decode(std::int32_t token) const = 0;
  /// The token that ends a document, if there is one: GPT-2's <|endoftext|>.
  virtual std::optional<std::int32_t> end_of_text() const { return std::nullopt; }
  /// The tokens that every text begins with, if there are any: LLaMA 3's <|begin_of_text|>. `encode` does not write them.
  virtual std::vector<std::int32_t> beginning() const { return {}; }
  /// The number of these bytes that can be encoded before it is known what follows: the tokens of the two pieces are those
  /// of the whole. Zero if there is no place to cut.
  virtual std::size_t safe_cut(std::string_view text) const = 0;
  /// The contents of a tokenizer file, which `read_tokenizer` takes.
  virtual std::string serialized() const = 0;

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;
};

/// One token per byte.
std::shared_ptr<const Tokenizer> bytes_tokenizer();
/// One token per character that occurs, in the order of their code points.
std::shared_ptr<const Tokenizer> chars_tokenizer(std::vector<char32_t> characters);

/// Reads a tokenizer from a file: what `serialized` wrote, a `vocab.json` (with `merges.txt` next to it), a `merges.txt` (with
/// `vocab.json` next to it), a Hugging Face `tokenizer.json` of byte-level BPE, a tiktoken rank file; or from a folder that holds
/// one of these under its usual name. A usage error names what is wrong with it.
std::shared_ptr<const Tokenizer> read_tokenizer(const std::filesystem::path& path);

/// `bytes` or what `read_tokenizer` takes; `chars` is nothing without a text, so it is not taken here.
std::shared_ptr<const Tokenizer> tokenizer_by_name(const std::string& text);

/// The tokenizer next to a data file or in a data folder, which `./baton tokens` writes; null if there is none.
std::shared_ptr<const Tokenizer> tokenizer_beside(const std::filesystem::path& path);
/// Its path next to a data file: tokens.bin has tokens.tokenizer.
std::filesystem::path path_of_tokenizer(const std::filesystem::path& data);

}  // namespace baton::data
