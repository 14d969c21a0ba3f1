#include "baton/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"
#include "baton/data/blob.h"
#include "baton/data/tokens.h"
#include "baton/data/unicode.h"

namespace baton::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::size_t most_piece_bytes = std::size_t{64} << 20;
/// Texts whose tokens do not lie in the file as they are get encoded into memory.
constexpr std::uint64_t most_encoded = std::uint64_t{2} << 30;

/// Gives a file's text in pieces. `cut` says how much of a piece may be taken before more is known; 0 asks for a longer one.
void for_each_piece(const TextPart& text, const std::function<std::size_t(std::string_view)>& cut,
                    const std::function<void(std::string_view)>& take) {
  const auto file = file_blob(text.path);
  std::string piece;
  std::uint64_t offset = text.begin;
  const std::uint64_t end = std::min(text.end, file->size());
  while (offset < end || !piece.empty()) {
    const std::size_t known = piece.size();
    piece.resize(known + static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes, end - offset)));
    file->read(offset, std::as_writable_bytes(std::span(piece).subspan(known)));
    offset += piece.size() - known;
    std::size_t now = piece.size();
    if (offset < end) {
      now = cut(piece);
      if (now == 0 && piece.size() >= most_piece_bytes) {
        now = piece.size() - unfinished_at_end(piece);
      }
    }
    if (now > 0) {
      take(std::string_view(piece).substr(0, now));
      piece.erase(0, now);
    }
  }
}

std::vector<char32_t> characters_of(const std::vector<fs::path>& texts, const BytesRead& read) {
  std::vector<bool> seen(0x110000, false);
  for (const fs::path& path : texts) {
    std::uint64_t before = 0;
    const auto whole = [](std::string_view piece) { return piece.size() - unfinished_at_end(piece); };
    for_each_piece(whole_text(path), whole, [&](std::string_view piece) {
      for (std::size_t at = 0; at < piece.size();) {
        const Character character = character_at(piece, at);
        if (character.point == invalid_character) {
          throw unusable(path, fmt::format("it is not UTF-8 (at byte {}); --tokenizer bytes takes any file", before + at));
        }
        seen[character.point] = true;
        at += character.length;
      }
      before += piece.size();
      if (read) {
        read(piece.size());
      }
    });
  }
  std::vector<char32_t> list;
  for (char32_t point = 0; point < seen.size(); ++point) {
    if (seen[point]) {
      list.push_back(point);
    }
  }
  return list;
}

/// A text's tokens in memory, of as many bytes as the vocabulary takes.
TokenFile encoded(const fs::path& path, const Tokenizer& tokenizer) {
  if (file_blob(path)->size() > most_encoded) {
    throw unusable(path, fmt::format("it has more than {}: make a token file of it first, with baton tokens",
                                     to_text(Bytes(static_cast<std::int64_t>(most_encoded)))));
  }
  const std::uint32_t width = tokenizer.vocabulary() <= 1 << 8 ? 1 : tokenizer.vocabulary() <= 1 << 16 ? 2 : 4;
  std::vector<std::byte> packed;
  encode_text(whole_text(path), tokenizer, [&](std::span<const std::int32_t> tokens, std::uint64_t) {
    const std::size_t known = packed.size();
    packed.resize(known + tokens.size() * width);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(packed.data() + known + i * width, &tokens[i], width);
    }
  });
  const auto count = static_cast<std::int64_t>(packed.size() / width);
  return {memory_blob(std::move(packed)), 0, width, count, path.string()};
}

std::shared_ptr<const Source> open_part(const std::vector<fs::path>& texts, const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (texts.empty()) {
    return nullptr;
  }
  std::vector<TokenFile> files;
  for (const fs::path& path : texts) {
    if (tokenizer->name() == "bytes") {
      std::shared_ptr<const Blob> bytes = file_blob(path);
      const auto count = static_cast<std::int64_t>(bytes->size());
      files.emplace_back(std::move(bytes), 0, 1, count, path.string());
    } else {
      files.push_back(encoded(path, *tokenizer));
    }
  }
  if (std::all_of(files.begin(), files.end(), [](const TokenFile& file) { return file.count() == 0; })) {
    throw unusable(texts[0], "it is empty");
  }
  return tokens_source(std::move(files), tokenizer->vocabulary(), fmt::format("text as {}", tokenizer->name()), tokenizer);
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_for(const std::string& name, const std::vector<fs::path>& texts, const BytesRead& read) {
  if (canonical(name) != "chars") {
    return tokenizer_by_name(name);
  }
  std::vector<char32_t> characters = characters_of(texts, read);
  if (characters.empty()) {
    throw usage_error("{} has no characters to make a tokenizer of: it is empty", texts.empty() ? "the text" : texts[0].string());
  }
  return chars_tokenizer(std::move(characters));
}

TextPart whole_text(const fs::path& path) { return {path, 0, file_blob(path)->size()}; }

std::uint64_t cut_near(const TextPart& text, std::uint64_t at, const Tokenizer& tokenizer) {
  constexpr std::uint64_t near = 1 << 16;
  std::string before(static_cast<std::size_t>(std::min(near, at - text.begin)), ' ');
  file_blob(text.path)->read(at - before.size(), std::as_writable_bytes(std::span(before)));
  const std::size_t cut = tokenizer.safe_cut(before);
  return at - before.size() + (cut > 0 ? cut : before.size() - unfinished_at_end(before));
}

void encode_text(const TextPart& text, const Tokenizer& tokenizer, const TakeTokens& take) {
  std::vector<std::int32_t> tokens = tokenizer.beginning();
  if (text.begin == 0 && text.end > 0 && !tokens.empty()) {
    take(tokens, 0);
  }
  for_each_piece(
      text, [&](std::string_view piece) { return tokenizer.safe_cut(piece); },
      [&](std::string_view piece) {
        tokens.clear();
        tokenizer.encode(piece, tokens);
        take(tokens, piece.size());
      });
}

Parts open_texts(const std::vector<fs::path>& train, const std::vector<fs::path>& test, const OpenOptions& options) {
  std::shared_ptr<const Tokenizer> tokenizer = options.given_tokenizer;
  if (!tokenizer) {
    std::vector<fs::path> all = train;
    all.insert(all.end(), test.begin(), test.end());
    tokenizer = tokenizer_for(options.tokenizer.empty() ? "bytes" : options.tokenizer, all);
  }
  return {.train = open_part(train, tokenizer), .test = open_part(test, tokenizer)};
}

}  // namespace baton::data
