#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "baton/data/pre_tokens.h"
#include "baton/data/tokenizer.h"

namespace baton::data {

/// The parts of a byte-pair encoding: its tokens, merges and rules.
struct BpeParts {
  Splitting splitting = Splitting::gpt2;
  bool whole_first = false;         // a pre-token that is a token is taken as it is, whatever the merges say
  std::vector<std::string> tokens;  // by token: its bytes; empty if there is no such token
  /// Two tokens and what they become.
  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t made;
    std::int32_t rank;  // the lowest is merged first, and the leftmost of several
    bool operator==(const Merge&) const = default;
  };
  std::vector<Merge> merges;
  std::map<std::string, std::int32_t> special;     // texts that stand for one token, and that plain text never becomes
  std::map<std::string, std::int32_t> plain = {};  // texts that are one token wherever they occur, before anything is cut or merged
  std::vector<std::int32_t> beginning = {};        // the tokens before every text
};

class Bpe final : public Tokenizer {
 public:
  /// `name` names the tokenizer in errors. A usage error if a byte has no token.
  Bpe(BpeParts parts, const std::string& name);

  std::string_view name() const override { return "bpe"; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(parts_.tokens.size()); }
  using Tokenizer::decode;
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int32_t>& out) const override;
  std::string decode(std::int32_t token) const override;
  std::optional<std::int32_t> end_of_text() const override;
  std::vector<std::int32_t> beginning() const override { return parts_.beginning; }
  std::size_t safe_cut(std::string_view text) const override;
  std::string serialized() const override;

  const BpeParts& parts() const { return parts_; }

 private:
  struct Merged {
    std::int32_t rank;
    std::int32_t made;
  };
  const Merged* merged(std::int32_t left, std::int32_t right) const;
  /// An occurrence of one of the `plain` texts in a text; at the end, and of no length, if there is none.
  struct PlainAt {
    std::size_t begin;
    std::size_t length;
    std::int32_t token;
  };
  PlainAt next_plain(std::string_view text, std::size_t from) const;
  /// True if one of them may lie around a blank in the text.
  bool is_in_plain(std::string_view text, std::size_t blank) const;
  void encode_between(std::string_view text, std::vector<std::int32_t>& out) const;
  void encode_pre_token(std::string_view pre_token, std::vector<std::int32_t>& out) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols) const;

  BpeParts parts_;
  std::array<std::int32_t, 256> bytes_{};
  std::unordered_map<std::uint64_t, Merged> pairs_;
  std::unordered_map<std::string_view, std::int32_t> whole_;  // index into the tokens, if whole pre-tokens are looked for
  std::unordered_map<std::string_view, std::int32_t> plain_;  // index into `plain`
  std::array<std::vector<std::size_t>, 256> plain_lengths_;   // by the first byte, the longest first
};

/// The merges that a list of tokens implies if each token's number is its rank, as in tiktoken's files: any two tokens become
/// the one that has their bytes.
std::vector<BpeParts::Merge> implied_merges(const std::vector<std::string>& tokens);

}  // namespace baton::data
