#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace baton::cost {

/// PyTorch's caching allocator of GPU memory (c10/cuda/CUDACachingAllocator.cpp), by its rules: memory is taken from the device in
/// segments, which are not given back while the device has free memory; a request takes the smallest free block of its stream that
/// holds it, splits it if more than a MiB is left, and free neighbours are joined. What `torch.cuda.max_memory_reserved` reports
/// is the sum of the segments.
class CachingAllocator {
 public:
  using BlockId = std::size_t;

  /// An allocator on a device with this many bytes. When they are used up, segments that are all free are given back first.
  explicit CachingAllocator(std::int64_t capacity) : capacity_(capacity) {}

  BlockId take(std::int64_t bytes, int stream);
  void give(BlockId id);

  std::int64_t reserved() const { return reserved_; }
  std::int64_t used() const { return used_; }
  std::int64_t most_reserved() const { return most_reserved_; }
  /// The most from now on.
  void forget_the_most() { most_reserved_ = reserved_; }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Block {
    std::int64_t bytes = 0;
    std::size_t before = none;  // neighbours in the segment
    std::size_t after = none;
    int stream = 0;
    bool small = false;
    bool free = false;
  };
  using Free = std::set<std::pair<std::int64_t, std::size_t>>;  // by size

  Free& free_of(const Block& block) { return free_[{block.stream, block.small}]; }
  std::size_t add(Block block);
  void give_back_segments();

  std::int64_t capacity_;
  std::int64_t reserved_ = 0;
  std::int64_t used_ = 0;
  std::int64_t most_reserved_ = 0;
  std::vector<Block> blocks_;
  std::vector<std::size_t> unused_;  // entries of blocks_
  std::map<std::pair<int, bool>, Free> free_;
};

}  // namespace baton::cost
