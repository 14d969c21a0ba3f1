#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/divide.h"

namespace baton::plan {

/// Indices of the dimensions that are summed over, for one of the uses that a gradient adds up. None: all of them.
struct TermBox {
  std::uint32_t use = 0;
  std::vector<Range> ranges;
  std::vector<std::int64_t> extents;  // of these dimensions
  bool operator==(const TermBox&) const = default;
};

/// Which terms of a sum a buffer holds the sum of. No term is in it twice.
class Terms {
 public:
  Terms() = default;
  explicit Terms(const TermBox& box) { add(box); }

  /// Adds terms; false where some of them are there already.
  bool add(const TermBox& box);
  bool add(const Terms& other);
  /// Whether it holds every term of so many uses.
  bool complete(std::uint32_t uses) const;
  const std::vector<TermBox>& boxes() const { return boxes_; }
  bool operator==(const Terms&) const = default;

 private:
  void join();
  std::vector<TermBox> boxes_;
};

}  // namespace baton::plan
