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

std::size_t CachingAllocator::add(Block block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return blocks_.size() - 1;
  }
  const std::size_t at = unused_.back();
  unused_.pop_back();
  blocks_[at] = block;
  return at;
}

CachingAllocator::BlockId CachingAllocator::take(std::int64_t bytes, int stream) {
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
  blocks_[at].free = false;
  const std::int64_t rest = blocks_[at].bytes - size;
  if (small ? rest >= unit : rest > most_small) {
    const std::size_t after = blocks_[at].after;
    const std::size_t left = add({.bytes = rest, .before = at, .after = after, .stream = stream, .small = small, .free = true});
    blocks_[at].bytes = size;
    blocks_[at].after = left;
    if (after != none) {
      blocks_[after].before = left;
    }
    list.emplace(rest, left);
  }
  used_ += blocks_[at].bytes;
  return at;
}

void CachingAllocator::give(BlockId id) {
  check(id < blocks_.size() && !blocks_[id].free, "memory that is given back twice");
  used_ -= blocks_[id].bytes;
  Free& list = free_of(blocks_[id]);
  std::size_t at = id;
  const auto join = [&](std::size_t first, std::size_t second) {
    blocks_[first].bytes += blocks_[second].bytes;
    blocks_[first].after = blocks_[second].after;
    if (blocks_[second].after != none) {
      blocks_[blocks_[second].after].before = first;
    }
    unused_.push_back(second);
    blocks_[second].free = true;
  };
  if (const std::size_t after = blocks_[at].after; after != none && blocks_[after].free) {
    list.erase({blocks_[after].bytes, after});
    join(at, after);
  }
  if (const std::size_t before = blocks_[at].before; before != none && blocks_[before].free) {
    list.erase({blocks_[before].bytes, before});
    join(before, at);
    at = before;
  }
  blocks_[at].free = true;
  list.emplace(blocks_[at].bytes, at);
}

void CachingAllocator::give_back_segments() {
  for (auto& [key, list] : free_) {
    for (auto one = list.begin(); one != list.end();) {
      const Block& block = blocks_[one->second];
      if (block.before == none && block.after == none) {
        reserved_ -= block.bytes;
        unused_.push_back(one->second);
        one = list.erase(one);
      } else {
        ++one;
      }
    }
  }
}

}  // namespace baton::cost
