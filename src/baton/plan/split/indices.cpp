#include "baton/plan/split/indices.h"

#include <algorithm>

namespace baton::plan {

bool Indices::bind(const op::Axes& axes, std::span<const Range> at, const Shape& whole) {
  const bool leading = axes.letters.starts_with('*');
  const std::size_t own = axes.letters.size() - (leading ? 1 : 0);
  if (at.size() != whole.rank() || (leading ? at.size() <= own : at.size() != own)) {
    return false;
  }
  const std::size_t first = at.size() - own;
  if (leading && leading_.empty()) {
    for (std::size_t d = 0; d < first; ++d) {
      leading_.push_back({at[d], whole[d]});
    }
  } else if (leading) {
    for (std::size_t d = 0; d < first; ++d) {
      if (leading_.size() != first || leading_[d] != Bound{at[d], whole[d]}) {
        return false;
      }
    }
  }
  for (std::size_t i = 0; i < own; ++i) {
    const char letter = axes.letters[axes.letters.size() - own + i];
    const Bound bound{at[first + i], whole[first + i]};
    const auto known = std::find_if(letters_.begin(), letters_.end(), [&](const auto& one) { return one.first == letter; });
    if (known == letters_.end()) {
      letters_.emplace_back(letter, bound);
    } else if (known->second != bound) {
      return false;
    }
  }
  return true;
}

}  // namespace baton::plan
