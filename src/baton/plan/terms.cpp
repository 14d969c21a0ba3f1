#include "baton/plan/terms.h"

#include <algorithm>
#include <utility>

#include "baton/base/error.h"

namespace baton::plan {

std::optional<Range> continued(Range first, Range second, std::int64_t k) {
  if (first == second) {
    return first;
  }
  if (first.size() != second.size() || second.begin != first.end) {
    return std::nullopt;
  }
  return Range{first.begin + k * first.size(), first.end + k * first.size()};
}

void TermBox::add(Side side) {
  check(rank_ < max_rank, "a sum over more than {} dimensions", max_rank);
  sides_[rank_++] = side;
}

bool TermBox::operator==(const TermBox& other) const {
  return use_ == other.use_ && rank_ == other.rank_ && std::equal(sides_.begin(), sides_.begin() + rank_, other.sides_.begin());
}

/// True if the dimensions are the same.
bool TermBox::same_sum(const TermBox& other) const {
  return rank_ == other.rank_ && std::equal(sides_.begin(), sides_.begin() + rank_, other.sides_.begin(),
                                            [](const Side& a, const Side& b) { return a.extent == b.extent; });
}

bool TermBox::overlaps(const TermBox& other) const {
  if (use_ != other.use_) {
    return false;
  }
  if (!same_sum(other)) {
    return true;  // all of the terms, or those of another sum: never to be added
  }
  for (std::size_t d = 0; d < rank_; ++d) {
    const Range& own = sides_[d].range;
    const Range& others = other.sides_[d].range;
    if (own.end <= others.begin || others.end <= own.begin) {
      return false;
    }
  }
  return true;
}

bool TermBox::join(const TermBox& other) {
  if (use_ != other.use_ || !same_sum(other)) {
    return false;
  }
  std::size_t differs = rank_;
  for (std::size_t d = 0; d < rank_; ++d) {
    if (sides_[d].range != other.sides_[d].range) {
      if (differs != rank_) {
        return false;
      }
      differs = d;
    }
  }
  if (differs == rank_) {
    return false;
  }
  Range& own = sides_[differs].range;
  const Range& others = other.sides_[differs].range;
  if (own.end == others.begin) {
    own.end = others.end;
    return true;
  }
  if (others.end == own.begin) {
    own.begin = others.begin;
    return true;
  }
  return false;
}

bool TermBox::continue_to(const TermBox& second, std::int64_t k) {
  if (use_ != second.use_ || !same_sum(second)) {
    return false;
  }
  for (std::size_t d = 0; d < rank_; ++d) {
    const std::optional<Range> range = continued(sides_[d].range, second.sides_[d].range, k);
    if (!range || range->end > sides_[d].extent) {
      return false;
    }
    sides_[d].range = *range;
  }
  return true;
}

void TermBox::simplify() {
  if (std::all_of(sides_.begin(), sides_.begin() + rank_, [](const Side& side) { return side.is_whole(); })) {
    rank_ = 0;
  }
}

bool Terms::add(const TermBox& box) {
  for (const TermBox& own : boxes_) {
    if (own.overlaps(box)) {
      return false;
    }
  }
  boxes_.push_back(box);
  join();
  return true;
}

bool Terms::add(const Terms& other) {
  return std::all_of(other.boxes_.begin(), other.boxes_.end(), [&](const TermBox& box) { return add(box); });
}

std::optional<Terms> Terms::continued(const Terms& second, std::int64_t k) const {
  Terms terms = *this;
  bool alike = boxes_.size() == second.boxes_.size();
  for (std::size_t i = 0; alike && i < boxes_.size(); ++i) {
    alike = terms.boxes_[i].continue_to(second.boxes_[i], k);
  }
  return alike ? std::optional(std::move(terms)) : std::nullopt;
}

/// Joins the last box to others as long as it can be.
void Terms::join() {
  for (std::size_t i = 0; i + 1 < boxes_.size();) {
    if (boxes_.back().join(boxes_[i])) {
      boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    } else {
      ++i;
    }
  }
  boxes_.back().simplify();
}

bool Terms::complete(std::uint32_t uses) const {
  return boxes_.size() == uses && std::all_of(boxes_.begin(), boxes_.end(), [](const TermBox& box) { return box.has_all(); });
}

}  // namespace baton::plan
