#include "baton/exec/ranks/presence.h"

#include <algorithm>

namespace baton::exec {

bool Standing::moved_since(const Standing& before) const {
  const auto same_lanes = [](const Presence::Counts& a, const Presence::Counts& b) { return a.lanes == b.lanes; };
  return activity != before.activity || gatherings != before.gatherings ||
         !std::equal(devices.begin(), devices.end(), before.devices.begin(), before.devices.end(), same_lanes);
}

std::size_t Board::open(std::size_t devices) {
  const std::lock_guard lock(opening_);
  boards_.push_back({std::make_unique<Presence[]>(devices), devices});  // NOLINT: an array of atomics
  shown_ = boards_.size() - 1;
  return shown_;
}

void Board::show(std::size_t number) {
  const std::lock_guard lock(opening_);
  shown_ = number;
}

Standing Board::standing() const {
  const std::lock_guard lock(opening_);
  Standing now{activity_.load(std::memory_order_relaxed),
               gatherings_.load(std::memory_order_relaxed),
               looks_.load(std::memory_order_relaxed),
               {},
               {}};
  for (std::size_t d = 0; !boards_.empty() && d < boards_[shown_].count; ++d) {
    now.devices.push_back(boards_[shown_].devices[d].counts());
  }
  return now;
}

}  // namespace baton::exec
