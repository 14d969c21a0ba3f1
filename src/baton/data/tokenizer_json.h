#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/data/pre_tokens.h"

namespace baton::data {

/// The contents of a tokenizer's JSON files, in the characters in which GPT-2 writes bytes.
struct TokenizerListing {
  Splitting splitting = Splitting::gpt2;
  bool whole_first = false;
  std::vector<std::pair<std::string, std::int64_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  struct Added {
    std::string text;
    std::int64_t number = -1;
    bool special = false;  // plain text never becomes it
  };
  std::vector<Added> added;
  std::vector<std::string> before;  // the tokens that a text begins with
};

/// `vocab.json`: an object of tokens with their numbers. Returns what is wrong; empty: nothing. Texts are taken event by event,
/// and no tree of a malicious text is built.
std::string parse_vocabulary(std::string_view text, TokenizerListing& listing);
/// `tokenizer.json` of byte-level BPE. Requests that are not supported are named.
std::string parse_tokenizer_json(std::string_view text, TokenizerListing& listing);

}  // namespace baton::data
