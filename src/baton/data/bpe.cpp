#include "baton/data/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "baton/base/error.h"
#include "baton/data/base64.h"

namespace baton::data {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

Bpe::Bpe(BpeParts parts, const std::string& name) : parts_(std::move(parts)) {
  bytes_.fill(-1);
  for (std::size_t i = 0; i < parts_.tokens.size(); ++i) {
    if (parts_.tokens[i].size() == 1) {
      std::int32_t& token = bytes_[static_cast<unsigned char>(parts_.tokens[i][0])];
      token = token < 0 ? static_cast<std::int32_t>(i) : token;
    }
    if (parts_.whole_first && !parts_.tokens[i].empty()) {
      whole_.try_emplace(parts_.tokens[i], static_cast<std::int32_t>(i));
    }
  }
  if (const auto missing = std::find(bytes_.begin(), bytes_.end(), -1); missing != bytes_.end()) {
    throw usage_error("the tokenizer {} has no token for the byte {}: it is not a byte-level encoding", name,
                      missing - bytes_.begin());
  }
  for (const auto& [text, token] : parts_.plain) {
    if (text.empty()) {
      continue;
    }
    plain_.emplace(text, token);
    std::vector<std::size_t>& lengths = plain_lengths_[static_cast<unsigned char>(text[0])];
    if (std::find(lengths.begin(), lengths.end(), text.size()) == lengths.end()) {
      lengths.push_back(text.size());
    }
  }
  for (std::vector<std::size_t>& lengths : plain_lengths_) {
    std::sort(lengths.rbegin(), lengths.rend());
  }
  pairs_.reserve(parts_.merges.size());
  for (const BpeParts::Merge& merge : parts_.merges) {
    pairs_.try_emplace(pair_key(merge.left, merge.right), Merged{merge.rank, merge.made});
  }
}

const Bpe::Merged* Bpe::merged(std::int32_t left, std::int32_t right) const {
  const auto found = pairs_.find(pair_key(left, right));
  return found == pairs_.end() ? nullptr : &found->second;
}

/// Again and again the pair of the lowest rank, the leftmost of several.
void Bpe::merge_short(std::vector<std::int32_t>& symbols) const {
  while (symbols.size() > 1) {
    const Merged* best = nullptr;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merged* one = merged(symbols[i], symbols[i + 1]);
      if (one != nullptr && (best == nullptr || one->rank < best->rank)) {
        best = one;
        where = i;
      }
    }
    if (best == nullptr) {
      return;
    }
    symbols[where] = best->made;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

/// The same in n log n: the pairs lie in a queue, and pairs that have changed since they were put there are skipped.
void Bpe::merge_long(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::int32_t rank;
    std::size_t at;
    std::int32_t left;
    std::int32_t right;
    bool operator>(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };
  constexpr std::int32_t gone = -1;
  const std::size_t end = symbols.size();
  std::vector<std::size_t> next(end);
  std::vector<std::size_t> before(end);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t at) {
    if (at < end && next[at] < end) {
      if (const Merged* one = merged(symbols[at], symbols[next[at]])) {
        queue.push({one->rank, at, symbols[at], symbols[next[at]]});
      }
    }
  };
  for (std::size_t i = 0; i < end; ++i) {
    next[i] = i + 1;
    before[i] = i == 0 ? end : i - 1;
  }
  for (std::size_t i = 0; i < end; ++i) {
    offer(i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    if (symbols[best.at] != best.left || next[best.at] >= end || symbols[next[best.at]] != best.right) {
      continue;
    }
    const std::size_t right = next[best.at];
    symbols[best.at] = merged(best.left, best.right)->made;
    symbols[right] = gone;
    next[best.at] = next[right];
    if (next[right] < end) {
      before[next[right]] = best.at;
    }
    offer(before[best.at]);
    offer(best.at);
  }
  std::erase(symbols, gone);
}

void Bpe::encode_pre_token(std::string_view pre_token, std::vector<std::int32_t>& out) const {
  constexpr std::size_t longest_short = 40;
  if (const auto found = whole_.find(pre_token); found != whole_.end()) {
    out.push_back(found->second);
    return;
  }
  std::vector<std::int32_t> symbols(pre_token.size());
  std::transform(pre_token.begin(), pre_token.end(), symbols.begin(),
                 [&](char c) { return bytes_[static_cast<unsigned char>(c)]; });
  if (symbols.size() <= longest_short) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

Bpe::PlainAt Bpe::next_plain(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size() && !plain_.empty(); ++at) {
    for (const std::size_t length : plain_lengths_[static_cast<unsigned char>(text[at])]) {
      const auto found = length <= text.size() - at ? plain_.find(text.substr(at, length)) : plain_.end();
      if (found != plain_.end()) {
        return {at, length, found->second};
      }
    }
  }
  return {text.size(), 0, -1};
}

bool Bpe::is_in_plain(std::string_view text, std::size_t blank) const {
  for (const auto& [one, token] : plain_) {
    for (std::size_t before = one.find(' ', 1); before < one.size(); before = one.find(' ', before + 1)) {
      if (before <= blank) {
        const std::string_view there = text.substr(blank - before, one.size());  // less at the end of what is known
        if (one.starts_with(there)) {
          return true;
        }
      }
    }
  }
  return false;
}

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  for (std::size_t at = 0; at < text.size();) {
    const PlainAt next = next_plain(text, at);
    encode_between(text.substr(at, next.begin - at), out);
    if (next.length > 0) {
      out.push_back(next.token);
    }
    at = next.begin + next.length;
  }
}

void Bpe::encode_between(std::string_view text, std::vector<std::int32_t>& out) const {
  // Words are repeated often, so the tokens of a pre-token are kept, as a place in `out`.
  struct TokenRun {
    std::size_t begin;
    std::size_t count;
  };
  constexpr std::size_t most_remembered = 1 << 18;
  constexpr std::size_t longest_remembered = 64;
  std::unordered_map<std::string_view, TokenRun> known;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_pre_token(text, at, parts_.splitting);
    const std::string_view pre_token = text.substr(at, end - at);
    at = end;
    if (const auto found = known.find(pre_token); found != known.end()) {
      for (std::size_t i = 0; i < found->second.count; ++i) {
        const std::int32_t token = out[found->second.begin + i];
        out.push_back(token);
      }
      continue;
    }
    const std::size_t begin = out.size();
    encode_pre_token(pre_token, out);
    if (pre_token.size() <= longest_remembered && known.size() < most_remembered) {
      known.emplace(pre_token, TokenRun{begin, out.size() - begin});
    }
  }
}

std::string Bpe::decode(std::int32_t token) const {
  return token >= 0 && token < vocabulary() ? parts_.tokens[static_cast<std::size_t>(token)] : "";
}

std::optional<std::int32_t> Bpe::end_of_text() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    for (const auto* list : {&parts_.special, &parts_.plain}) {
      if (const auto found = list->find(name); found != list->end()) {
        return found->second;
      }
    }
  }
  return std::nullopt;
}

/// Before a blank between two letters no rule lets a pre-token go on.
std::size_t Bpe::safe_cut(std::string_view text) const {
  for (std::size_t at = text.size() < 2 ? 0 : text.size() - 2; at > 0; --at) {
    if (text[at] == ' ' && is_ascii_letter(text[at - 1]) && is_ascii_letter(text[at + 1]) && !is_in_plain(text, at)) {
      return at;
    }
  }
  return 0;
}

std::vector<BpeParts::Merge> implied_merges(const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, std::int32_t> known;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty()) {
      known.emplace(tokens[i], static_cast<std::int32_t>(i));
    }
  }
  std::vector<BpeParts::Merge> merges;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = known.find(token.substr(0, cut));
      const auto right = known.find(token.substr(cut));
      if (left != known.end() && right != known.end()) {
        merges.push_back({left->second, right->second, known.at(token), known.at(token)});
      }
    }
  }
  return merges;
}

}  // namespace baton::data
