#include "baton/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/data/base64.h"
#include "baton/data/blob.h"
#include "baton/data/bpe.h"
#include "baton/data/tokenizer_json.h"
#include "baton/data/unicode.h"

namespace baton::data {
namespace {

namespace fs = std::filesystem;

constexpr Bytes most_tokenizer(std::int64_t{64} << 20);
constexpr std::string_view own_beginning = "baton tokenizer ";

class BytesTokenizer final : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  std::int64_t vocabulary() const override { return 256; }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) {
      out.push_back(static_cast<unsigned char>(c));
    }
  }
  std::string decode(std::int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : "";
  }
  std::size_t safe_cut(std::string_view text) const override { return text.size(); }
  std::string serialized() const override { return fmt::format("{}bytes\n", own_beginning); }
};

class CharsTokenizer final : public Tokenizer {
 public:
  explicit CharsTokenizer(std::vector<char32_t> characters) : characters_(std::move(characters)) {
    ascii_.fill(-1);
    for (std::size_t i = 0; i < characters_.size(); ++i) {
      if (characters_[i] < ascii_.size()) {
        ascii_[characters_[i]] = static_cast<std::int32_t>(i);
      }
    }
  }

  std::string_view name() const override { return "chars"; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(characters_.size()); }
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override {
    for (std::size_t at = 0; at < text.size();) {
      const Character character = character_at(text, at);
      out.push_back(token_of(character.point, text.substr(at, character.length)));
      at += character.length;
    }
  }
  std::string decode(std::int32_t token) const override {
    std::string text;
    if (token >= 0 && token < vocabulary()) {
      append_character(text, characters_[static_cast<std::size_t>(token)]);
    }
    return text;
  }
  std::size_t safe_cut(std::string_view text) const override { return text.size() - unfinished_at_end(text); }
  std::string serialized() const override {
    std::string text = fmt::format("{}chars\n", own_beginning);
    for (const char32_t character : characters_) {
      append_character(text, character);
    }
    return text;
  }

 private:
  std::int32_t token_of(char32_t point, std::string_view bytes) const {
    if (point < ascii_.size() && ascii_[point] >= 0) {
      return ascii_[point];
    }
    const auto found = std::lower_bound(characters_.begin(), characters_.end(), point);
    if (point == invalid_character) {
      throw usage_error("the text is not UTF-8: the byte {:#04x} begins no character; --tokenizer bytes takes any file",
                        static_cast<unsigned char>(bytes[0]));
    }
    if (found == characters_.end() || *found != point) {
      throw usage_error("the character '{}' (U+{:04X}) has no token: it does not occur in the text that the tokenizer was made of",
                        bytes, static_cast<std::uint32_t>(point));
    }
    return static_cast<std::int32_t>(found - characters_.begin());
  }

  std::vector<char32_t> characters_;  // in order
  std::array<std::int32_t, 128> ascii_{};
};

Error unusable_tokenizer(const fs::path& path, std::string_view why) {
  return usage_error("the tokenizer {} cannot be used: {}", path.string(), why);
}

std::string contents_of(const fs::path& path) {
  return read_file(path, fmt::format("the tokenizer {}", path.string()), most_tokenizer);
}

std::optional<std::int64_t> integer_in(std::string_view word) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

/// Lists tokens by their numbers, of which few may be missing: a large number alone does not take memory.
std::vector<std::string> tokens_by_number(const fs::path& path, std::vector<std::pair<std::int64_t, std::string>> numbered) {
  const auto most = static_cast<std::int64_t>(numbered.size()) * 2 + 4096;
  std::vector<std::string> tokens;
  for (auto& [number, bytes] : numbered) {
    if (number < 0 || number >= most) {
      throw unusable_tokenizer(path,
                               fmt::format("it has a token with the number {}, but {} tokens in all", number, numbered.size()));
    }
    if (static_cast<std::size_t>(number) >= tokens.size()) {
      tokens.resize(static_cast<std::size_t>(number) + 1);
    }
    if (!tokens[static_cast<std::size_t>(number)].empty()) {
      throw unusable_tokenizer(path, fmt::format("it has two tokens with the number {}", number));
    }
    tokens[static_cast<std::size_t>(number)] = std::move(bytes);
  }
  return tokens;
}

/// GPT-2's way to write any byte as a character that can be seen: those that can be seen stand for themselves, the others follow
/// from U+0100 on.
const std::map<char32_t, char>& byte_characters() {
  static const std::map<char32_t, char> made = [] {
    std::map<char32_t, char> list;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool seen = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      list[seen ? byte : next++] = static_cast<char>(byte);
    }
    return list;
  }();
  return made;
}

/// Returns nullopt if some character stands for no byte.
std::optional<std::string> bytes_of(std::string_view characters) {
  std::string bytes;
  for (std::size_t at = 0; at < characters.size();) {
    const Character character = character_at(characters, at);
    const auto found = byte_characters().find(character.point);
    if (found == byte_characters().end()) {
      return std::nullopt;
    }
    bytes += found->second;
    at += character.length;
  }
  return bytes;
}

/// The tokenizer of vocab.json and merges.txt, or of tokenizer.json.
std::shared_ptr<const Tokenizer> from_listing(const fs::path& path, const TokenizerListing& listing) {
  std::vector<std::pair<std::int64_t, std::string>> numbered;
  std::map<std::string, std::int32_t, std::less<>> by_text;
  BpeParts parts{.splitting = listing.splitting, .whole_first = listing.whole_first, .tokens = {}, .merges = {}, .special = {}};
  for (const auto& [text, number] : listing.vocabulary) {
    by_text.emplace(text, static_cast<std::int32_t>(number));
    // A token that does not decode to bytes is a special token, kept as its text.
    numbered.emplace_back(number, bytes_of(text).value_or(text));
  }
  for (const auto& [text, number, special] : listing.added) {
    (special ? parts.special : parts.plain).emplace(text, static_cast<std::int32_t>(number));
    if (const auto found = by_text.find(text); found == by_text.end()) {
      numbered.emplace_back(number, text);
    } else if (found->second != number) {
      throw unusable_tokenizer(path, fmt::format("it has two numbers for the token {}", text));
    }
  }
  parts.tokens = tokens_by_number(path, std::move(numbered));
  if (by_text.contains("<|endoftext|>")) {
    parts.special.emplace("<|endoftext|>", by_text.find("<|endoftext|>")->second);
  }
  for (const std::string& name : listing.before) {
    const auto added = std::find_if(listing.added.begin(), listing.added.end(),
                                    [&](const TokenizerListing::Added& one) { return one.text == name; });
    const auto found = by_text.find(name);
    if (added == listing.added.end() && found == by_text.end()) {
      throw unusable_tokenizer(path,
                               fmt::format("its TemplateProcessing adds {} before a text, which is not one of its tokens", name));
    }
    parts.beginning.push_back(added == listing.added.end() ? found->second : static_cast<std::int32_t>(added->number));
  }
  parts.merges.reserve(listing.merges.size());
  for (const auto& [left, right] : listing.merges) {
    const auto first = by_text.find(left);
    const auto second = by_text.find(right);
    const auto made = by_text.find(left + right);
    if (first == by_text.end() || second == by_text.end() || made == by_text.end()) {
      throw unusable_tokenizer(path, fmt::format("it merges {} and {}, but they or the result are not tokens", left, right));
    }
    parts.merges.push_back({first->second, second->second, made->second, static_cast<std::int32_t>(parts.merges.size())});
  }
  return std::make_shared<Bpe>(std::move(parts), path.string());
}

/// One merge per line, after a line that begins with #version.
std::vector<std::pair<std::string, std::string>> read_merges(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> merges;
  const std::string text = contents_of(path);
  for_each_part(text, '\n', [&](std::size_t number, std::string_view line) {
    line = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    if (line.empty() || (number == 0 && line.starts_with("#version"))) {
      return;
    }
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos) {
      throw unusable_tokenizer(path, fmt::format("line {} is not a merge of two tokens", number + 1));
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  });
  return merges;
}

fs::path beside(const fs::path& path, const char* name) {
  fs::path other = path.parent_path() / name;
  if (!is_file(other)) {
    throw unusable_tokenizer(path, fmt::format("there is no {} next to it", name));
  }
  return other;
}

std::shared_ptr<const Tokenizer> read_vocabulary_and_merges(const fs::path& vocabulary, const fs::path& merges) {
  TokenizerListing listing;
  if (const std::string wrong = parse_vocabulary(contents_of(vocabulary), listing); !wrong.empty()) {
    throw unusable_tokenizer(vocabulary, wrong);
  }
  listing.merges = read_merges(merges);
  return from_listing(vocabulary, listing);
}

std::shared_ptr<const Tokenizer> read_tokenizer_json(const fs::path& path) {
  TokenizerListing listing;
  if (const std::string wrong = parse_tokenizer_json(contents_of(path), listing); !wrong.empty()) {
    throw unusable_tokenizer(path, wrong);
  }
  return from_listing(path, listing);
}

/// The way a published rank file splits texts. The file does not say it: it is recognised by the number of tokens.
Splitting splitting_of_ranks(const fs::path& path, std::size_t tokens) {
  constexpr std::size_t cl100k_tokens = 100'256;
  constexpr std::size_t llama3_tokens = 128'000;
  constexpr std::size_t o200k_tokens = 199'998;
  if (tokens == o200k_tokens) {
    throw unusable_tokenizer(path, "it is o200k, whose way to cut texts is not supported");
  }
  return tokens == cl100k_tokens || tokens == llama3_tokens ? Splitting::cl100k : Splitting::gpt2;
}

/// tiktoken's: a token's bytes in base 64 and its rank, which is its number, per line.
std::shared_ptr<const Tokenizer> read_ranks(const fs::path& path, const std::string& text) {
  std::vector<std::pair<std::int64_t, std::string>> numbered;
  for_each_part(text, '\n', [&](std::size_t number, std::string_view line) {
    line = line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    if (line.empty()) {
      return;
    }
    const std::size_t blank = line.find(' ');
    const std::optional<std::string> bytes = from_base64(line.substr(0, blank));
    const std::int64_t rank = blank == std::string_view::npos ? -1 : integer_in(line.substr(blank + 1)).value_or(-1);
    if (!bytes || bytes->empty() || rank < 0) {
      throw unusable_tokenizer(path, number == 0 ? "it is not in any tokenizer format that is known here"
                                                 : fmt::format("line {} is not a token in base 64 with its rank", number + 1));
    }
    numbered.emplace_back(rank, *bytes);
  });
  BpeParts parts{.splitting = splitting_of_ranks(path, numbered.size()), .whole_first = true};
  parts.tokens = tokens_by_number(path, std::move(numbered));
  parts.merges = implied_merges(parts.tokens);
  if (parts.splitting == Splitting::gpt2) {  // the token after the ranks, which the files leave out
    parts.special.emplace("<|endoftext|>", static_cast<std::int32_t>(parts.tokens.size()));
    parts.tokens.emplace_back("<|endoftext|>");
  }
  return std::make_shared<Bpe>(std::move(parts), path.string());
}

/// The words of a line, separated by blanks.
std::vector<std::string_view> words_of(std::string_view line) { return split(line, ' '); }

constexpr std::array<std::string_view, 3> splitting_names{"gpt2", "cl100k", "qwen2"};

/// Reads the format that `Bpe::serialized` writes.
std::shared_ptr<const Tokenizer> read_own_bpe(const fs::path& path, std::string_view text) {
  BpeParts parts;
  std::vector<std::pair<std::int64_t, std::string>> numbered;
  const auto number_in = [](std::string_view word) -> std::int32_t {
    const std::optional<std::int64_t> number = integer_in(word);
    return number && *number >= 0 && *number < 1 << 30 ? static_cast<std::int32_t>(*number) : -1;
  };
  bool first = true;
  for_each_part(text, '\n', [&](std::size_t number, std::string_view line) {
    const auto wrong = [&] { return unusable_tokenizer(path, fmt::format("line {} is damaged", number + 2)); };
    if (line.empty()) {
      return;
    }
    const std::vector<std::string_view> words = words_of(line);
    if (first) {
      first = false;
      const auto name = std::find(splitting_names.begin(), splitting_names.end(), words[0]);
      if (words.size() != 2 || name == splitting_names.end() || (words[1] != "whole" && words[1] != "merged")) {
        throw wrong();
      }
      parts.splitting = static_cast<Splitting>(name - splitting_names.begin());
      parts.whole_first = words[1] == "whole";
    } else if (words.size() == 2 && words[0] == "b") {
      parts.beginning.push_back(number_in(words[1]));
    } else if (words.size() == 3 && (words[0] == "t" || words[0] == "s" || words[0] == "a")) {
      const std::optional<std::string> bytes = from_base64(words[2]);
      const std::int32_t token = number_in(words[1]);
      if (!bytes || bytes->empty() || token < 0) {
        throw wrong();
      }
      if (words[0] != "t") {
        (words[0] == "s" ? parts.special : parts.plain).emplace(*bytes, token);
      } else {
        numbered.emplace_back(token, *bytes);
      }
    } else if (words.size() == 5 && words[0] == "m") {
      const BpeParts::Merge merge{number_in(words[1]), number_in(words[2]), number_in(words[3]), number_in(words[4])};
      if (std::min({merge.left, merge.right, merge.made, merge.rank}) < 0) {
        throw wrong();
      }
      parts.merges.push_back(merge);
    } else {
      throw wrong();
    }
  });
  parts.tokens = tokens_by_number(path, std::move(numbered));
  const auto is_token = [&](std::int32_t number) { return number >= 0 && static_cast<std::size_t>(number) < parts.tokens.size(); };
  for (const BpeParts::Merge& merge : parts.merges) {
    const auto bytes = [&](std::int32_t token) -> const std::string& { return parts.tokens[static_cast<std::size_t>(token)]; };
    if (!is_token(merge.left) || !is_token(merge.right) || !is_token(merge.made) ||
        bytes(merge.made) != bytes(merge.left) + bytes(merge.right)) {
      throw unusable_tokenizer(path, "it merges two tokens into one that is not the two joined");
    }
  }
  std::vector<std::int32_t> named = parts.beginning;
  for (const auto* list : {&parts.special, &parts.plain}) {
    for (const auto& [name, number] : *list) {
      named.push_back(number);
    }
  }
  for (const std::int32_t number : named) {
    if (!is_token(number)) {
      throw unusable_tokenizer(path, fmt::format("it has no token {}", number));
    }
  }
  return std::make_shared<Bpe>(std::move(parts), path.string());
}

std::shared_ptr<const Tokenizer> read_own(const fs::path& path, std::string_view text) {
  const std::size_t end = text.find('\n');
  const std::string_view kind = text.substr(0, end);
  const std::string_view rest = end == std::string_view::npos ? "" : text.substr(end + 1);
  if (kind == "bytes" && rest.empty()) {
    return bytes_tokenizer();
  }
  if (kind == "chars" && is_utf8(rest) && !rest.empty()) {
    std::vector<char32_t> characters;
    for (std::size_t at = 0; at < rest.size();) {
      const Character character = character_at(rest, at);
      at += character.length;
      if (!characters.empty() && character.point <= characters.back()) {
        throw unusable_tokenizer(path, "its characters are not in order");
      }
      characters.push_back(character.point);
    }
    return chars_tokenizer(std::move(characters));
  }
  if (kind == "bpe") {
    return read_own_bpe(path, rest);
  }
  throw unusable_tokenizer(path, "it is damaged");
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    text += decode(token);
  }
  return text;
}

std::string Bpe::serialized() const {
  std::string text = fmt::format("{}bpe\n{} {}\n", own_beginning, splitting_names[static_cast<std::size_t>(parts_.splitting)],
                                 parts_.whole_first ? "whole" : "merged");
  for (std::size_t i = 0; i < parts_.tokens.size(); ++i) {
    if (!parts_.tokens[i].empty()) {
      text += fmt::format("t {} {}\n", i, to_base64(parts_.tokens[i]));
    }
  }
  for (const auto& [name, number] : parts_.special) {
    text += fmt::format("s {} {}\n", number, to_base64(name));
  }
  for (const auto& [name, number] : parts_.plain) {
    text += fmt::format("a {} {}\n", number, to_base64(name));
  }
  for (const std::int32_t number : parts_.beginning) {
    text += fmt::format("b {}\n", number);
  }
  for (const BpeParts::Merge& merge : parts_.merges) {
    text += fmt::format("m {} {} {} {}\n", merge.left, merge.right, merge.made, merge.rank);
  }
  return text;
}

std::shared_ptr<const Tokenizer> bytes_tokenizer() { return std::make_shared<BytesTokenizer>(); }

std::shared_ptr<const Tokenizer> chars_tokenizer(std::vector<char32_t> characters) {
  return std::make_shared<CharsTokenizer>(std::move(characters));
}

std::shared_ptr<const Tokenizer> read_tokenizer(const fs::path& path) {
  if (is_folder(path)) {
    if (auto found = tokenizer_beside(path)) {
      return found;
    }
    throw unusable_tokenizer(
        path, "the folder holds no tokenizer.json, no vocab.json with merges.txt, and no .tokenizer or .tiktoken file");
  }
  const std::string name = path.filename().string();
  if (name == "merges.txt") {
    return read_vocabulary_and_merges(beside(path, "vocab.json"), path);
  }
  if (name == "vocab.json") {
    return read_vocabulary_and_merges(path, beside(path, "merges.txt"));
  }
  if (name.ends_with(".json")) {
    return read_tokenizer_json(path);
  }
  const std::string text = contents_of(path);
  if (text.starts_with(own_beginning)) {
    return read_own(path, std::string_view(text).substr(own_beginning.size()));
  }
  return read_ranks(path, text);
}

std::shared_ptr<const Tokenizer> tokenizer_by_name(const std::string& text) {
  if (canonical(text) == "bytes") {
    return bytes_tokenizer();
  }
  if (canonical(text) == "chars") {
    throw usage_error(
        "--tokenizer chars is made of a text, but there is no text here: give a .tokenizer file that was made of one");
  }
  if (!is_file(text) && !is_folder(text)) {
    throw usage_error(
        "--tokenizer is '{}', but must be bytes, chars, or the path of a tokenizer.json, a vocab.json, a .tiktoken or a .tokenizer "
        "file",
        text);
  }
  return read_tokenizer(text);
}

fs::path path_of_tokenizer(const fs::path& data) { return fs::path(data).replace_extension(".tokenizer"); }

std::shared_ptr<const Tokenizer> tokenizer_beside(const fs::path& path) {
  if (!is_folder(path)) {
    const fs::path own = path_of_tokenizer(path);
    return is_file(own) ? read_tokenizer(own) : nullptr;
  }
  std::vector<fs::path> candidates;
  std::error_code error;
  for (fs::directory_iterator entry(path, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_file(entry->path()) &&
        (name == "tokenizer.json" || name == "vocab.json" || name.ends_with(".tokenizer") || name.ends_with(".tiktoken"))) {
      candidates.push_back(entry->path());
    }
  }
  // Its own format before the others: `train.tokenizer` before `val.tokenizer`, which would be the same.
  const auto order = [](const fs::path& file) {
    return std::pair(file.extension() == ".tokenizer" ? 0 : file.filename() == "tokenizer.json" ? 1 : 2, file);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [&](const fs::path& a, const fs::path& b) { return order(a) < order(b); });
  return best == candidates.end() ? nullptr : read_tokenizer(*best);
}

}  // namespace baton::data
