#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "baton/base/divide.h"
#include "baton/base/shape.h"
#include "baton/op/signature.h"
#include "baton/plan/terms.h"

namespace baton::plan {

/// The indices that the letters of an op's signature stand for in one task.
class Indices {
 public:
  using Bound = TermBox::Side;

  /// Gives an operand's letters the indices that it holds of a tensor of shape `whole`; false if a letter stands for others.
  bool bind(const op::Axes& axes, std::span<const Range> at, const Shape& whole);

  /// Calls `visit(letter, bounds)` for each letter, the leading dimensions as one: `*`.
  template <typename Visit>
  void each(Visit visit) const {
    if (!leading_.empty()) {
      visit('*', std::span<const Bound>(leading_));
    }
    for (const auto& [letter, bound] : letters_) {
      visit(letter, std::span<const Bound>(&bound, 1));
    }
  }

  /// Forgets all letters, for the next task.
  void clear() {
    leading_.clear();
    letters_.clear();
  }

 private:
  std::vector<Bound> leading_;
  std::vector<std::pair<char, Bound>> letters_;
};

}  // namespace baton::plan
