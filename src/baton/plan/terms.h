#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "baton/base/divide.h"

namespace baton::plan {

/// The range of part `k` of a row of parts, of which the first two are given: it is the same for all, or one follows the other
/// without a gap. Nothing if neither holds.
std::optional<Range> continued(Range first, Range second, std::int64_t k);

/// Indices of the dimensions that are summed over, for one of the uses that a gradient adds up. None: all of them.
class TermBox {
 public:
  /// One dimension that is summed over: which of its indices.
  struct Side {
    Range range;
    std::int64_t extent = 0;
    bool is_whole() const { return range == Range{0, extent}; }
    bool operator==(const Side&) const = default;
  };

  explicit TermBox(std::uint32_t use = 0) : use_(use) {}
  void add(Side side);

  std::uint32_t use() const { return use_; }
  bool has_all() const { return rank_ == 0; }
  bool overlaps(const TermBox& other) const;
  /// Takes in the other's terms; false if both together are not a box.
  bool join(const TermBox& other);
  /// The box of part `k` of a row of alike parts, of which this is the first and `second` the second. False: they are not alike.
  bool continue_to(const TermBox& second, std::int64_t k);
  /// Leaves out all dimensions if it has all indices of each.
  void simplify();
  bool operator==(const TermBox& other) const;

 private:
  bool same_sum(const TermBox& other) const;

  /// More than ops have; there are many boxes, so they allocate nothing.
  static constexpr std::size_t max_rank = 8;
  std::uint32_t use_ = 0;
  std::uint32_t rank_ = 0;
  std::array<Side, max_rank> sides_;
};

/// The terms of a sum that a buffer holds the sum of. No term is in it twice.
class Terms {
 public:
  Terms() = default;
  explicit Terms(const TermBox& box) { add(box); }

  /// Adds terms; false if some of them are there already.
  bool add(const TermBox& box);
  bool add(const Terms& other);
  /// The terms of part `k` of a row of alike parts, of which this holds those of the first and `second` those of the second.
  std::optional<Terms> continued(const Terms& second, std::int64_t k) const;
  /// True if it holds every term of this many uses.
  bool complete(std::uint32_t uses) const;
  bool operator==(const Terms&) const = default;

 private:
  void join();
  std::vector<TermBox> boxes_;
};

}  // namespace baton::plan
