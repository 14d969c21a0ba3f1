#include "baton/cost/caching_allocator.h"

#include <algorithm>

#include "baton/base/error.h"

namespace baton::cost {
namespace {

// The constants of CUDACachingAllocator.cpp.
constexpr std::int64_t unit = 512;                 // kMinBlockSize
constexpr std::int64_t most_small = 1 << 20;       // kSmallSize
constexpr std::int64_t small_segment = 2 << 20;    // kSmallBuffer
constexpr std::int64_t middle_segment = 20 << 20;  // kLargeBuffer
constexpr std::int64_t least_large = 10 << 20;     // kMinLargeAlloc
constexpr std::int64_t large_multiple = 2 << 20;   // kRoundLarge

std::int64_t rounded(std::int64_t bytes, std::int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

std::size_t CachingAllocator::add(Piece piece) {
  if (unused_.empty()) {
    pieces_.push_back(piece);
    return pieces_.size() - 1;
  }
  const std::size_t at = unused_.back();
  unused_.pop_back();
  pieces_[at] = piece;
  return at;
}

CachingAllocator::Block CachingAllocator::take(std::int64_t bytes, int stream) {
  const std::int64_t size = rounded(std::max<std::int64_t>(bytes, 1), unit);
  const bool small = size <= most_small;
  Free& list = free_[{stream, small}];
  std::size_t at = none;
  if (const auto found = list.lower_bound({size, 0}); found != list.end()) {
    at = found->second;
    list.erase(found);
  } else {
    const std::int64_t segment = small ? small_segment : size < least_large ? middle_segment : rounded(size, large_multiple);
    if (reserved_ + segment > capacity_) {
      give_back_segments();
    }
    reserved_ += segment;
    most_reserved_ = std::max(most_reserved_, reserved_);
    at = add({.bytes = segment, .stream = stream, .small = small});
  }
  pieces_[at].free = false;
  const std::int64_t rest = pieces_[at].bytes - size;
  if (small ? rest >= unit : rest > most_small) {
    const std::size_t behind = pieces_[at].behind;
    const std::size_t left = add({.bytes = rest, .before = at, .behind = behind, .stream = stream, .small = small, .free = true});
    pieces_[at].bytes = size;
    pieces_[at].behind = left;
    if (behind != none) {
      pieces_[behind].before = left;
    }
    list.emplace(rest, left);
  }
  used_ += pieces_[at].bytes;
  return at;
}

void CachingAllocator::give(Block block) {
  check(block < pieces_.size() && !pieces_[block].free, "memory that is given back twice");
  used_ -= pieces_[block].bytes;
  Free& list = free_of(pieces_[block]);
  std::size_t at = block;
  const auto join = [&](std::size_t first, std::size_t second) {
    pieces_[first].bytes += pieces_[second].bytes;
    pieces_[first].behind = pieces_[second].behind;
    if (pieces_[second].behind != none) {
      pieces_[pieces_[second].behind].before = first;
    }
    unused_.push_back(second);
    pieces_[second].free = true;
  };
  if (const std::size_t behind = pieces_[at].behind; behind != none && pieces_[behind].free) {
    list.erase({pieces_[behind].bytes, behind});
    join(at, behind);
  }
  if (const std::size_t before = pieces_[at].before; before != none && pieces_[before].free) {
    list.erase({pieces_[before].bytes, before});
    join(before, at);
    at = before;
  }
  pieces_[at].free = true;
  list.emplace(pieces_[at].bytes, at);
}

void CachingAllocator::give_back_segments() {
  for (auto& [key, list] : free_) {
    for (auto one = list.begin(); one != list.end();) {
      const Piece& piece = pieces_[one->second];
      if (piece.before == none && piece.behind == none) {
        reserved_ -= piece.bytes;
        unused_.push_back(one->second);
        one = list.erase(one);
      } else {
        ++one;
      }
    }
  }
}

}  // namespace baton::cost
