#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/data/source.h"
#include "baton/data/tokenizer.h"

namespace baton::data {

/// The tokenizer that a flag names for these texts: `chars` has the characters that occur in them. `read` is told of the bytes that
/// were read for that, and ends it by throwing.
using BytesRead = std::function<void(std::uint64_t bytes)>;
std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& name, const std::vector<std::filesystem::path>& texts,
                                               const BytesRead& read = {});

/// Some bytes of a text.
struct TextPart {
  std::filesystem::path path;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
TextPart whole_text(const std::filesystem::path& path);
/// A place at or shortly before `at` where a text can be cut, so that the tokens of the two pieces are those of the whole. If there
/// is none near, the cut is between two characters.
std::uint64_t cut_near(const TextPart& text, std::uint64_t at, const Tokenizer& tokenizer);

/// Encodes a text piece by piece: `take` gets the tokens of each, and how many bytes they stand for.
using TakeTokens = std::function<void(std::span<const std::int32_t> tokens, std::uint64_t bytes)>;
void encode_text(const TextPart& text, const Tokenizer& tokenizer, const TakeTokens& take);

/// Texts of a training and a test part, either of which may have no files, under one tokenizer.
Parts open_texts(const std::vector<std::filesystem::path>& train, const std::vector<std::filesystem::path>& test,
                 const OpenOptions& options);

}  // namespace baton::data
