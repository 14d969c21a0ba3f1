#include "baton/plan/terms.h"

#include <algorithm>

namespace baton::plan {
namespace {

bool overlap(const TermBox& a, const TermBox& b) {
  if (a.use != b.use) {
    return false;
  }
  if (a.extents != b.extents) {
    return true;  // all of the terms, or those of another sum: never to be added
  }
  for (std::size_t d = 0; d < a.ranges.size(); ++d) {
    if (a.ranges[d].end <= b.ranges[d].begin || b.ranges[d].end <= a.ranges[d].begin) {
      return false;
    }
  }
  return true;
}

/// Makes `a` the union of both, where that is a box.
bool joined(TermBox& a, const TermBox& b) {
  if (a.use != b.use || a.extents != b.extents) {
    return false;
  }
  std::size_t differs = a.ranges.size();
  for (std::size_t d = 0; d < a.ranges.size(); ++d) {
    if (a.ranges[d] != b.ranges[d]) {
      if (differs != a.ranges.size()) {
        return false;
      }
      differs = d;
    }
  }
  if (differs == a.ranges.size()) {
    return false;
  }
  Range& own = a.ranges[differs];
  const Range& other = b.ranges[differs];
  if (own.end == other.begin) {
    own.end = other.end;
    return true;
  }
  if (other.end == own.begin) {
    own.begin = other.begin;
    return true;
  }
  return false;
}

}  // namespace

bool Terms::add(const TermBox& box) {
  for (const TermBox& own : boxes_) {
    if (overlap(own, box)) {
      return false;
    }
  }
  boxes_.push_back(box);
  join();
  return true;
}

bool Terms::add(const Terms& other) {
  for (const TermBox& box : other.boxes_) {
    if (!add(box)) {
      return false;
    }
  }
  return true;
}

/// Joins the last box to others as long as it can be; one that has all indices is left without any.
void Terms::join() {
  for (std::size_t i = 0; i + 1 < boxes_.size();) {
    if (plan::joined(boxes_.back(), boxes_[i])) {
      boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
    } else {
      ++i;
    }
  }
  TermBox& last = boxes_.back();
  for (std::size_t d = 0; d < last.ranges.size(); ++d) {
    if (!(last.ranges[d] == Range{0, last.extents[d]})) {
      return;
    }
  }
  last.ranges.clear();
  last.extents.clear();
}

bool Terms::complete(std::uint32_t uses) const {
  return boxes_.size() == uses && std::all_of(boxes_.begin(), boxes_.end(), [](const TermBox& box) { return box.ranges.empty(); });
}

}  // namespace baton::plan
