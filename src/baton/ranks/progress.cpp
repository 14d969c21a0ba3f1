#include "baton/ranks/progress.h"

#include <algorithm>

namespace baton::ranks {

bool ProgressSnapshot::moved_since(const ProgressSnapshot& before) const {
  const auto same_lanes = [](const DeviceProgress::Counts& a, const DeviceProgress::Counts& b) { return a.lanes == b.lanes; };
  return activity != before.activity || gatherings != before.gatherings ||
         !std::equal(devices.begin(), devices.end(), before.devices.begin(), before.devices.end(), same_lanes);
}

std::size_t RankProgress::open(std::size_t devices) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::make_unique<DeviceProgress[]>(devices), devices});  // NOLINT: an array of atomics
  shown_ = entries_.size() - 1;
  return shown_;
}

void RankProgress::show(std::size_t number) {
  const std::lock_guard lock(mutex_);
  shown_ = number;
}

ProgressSnapshot RankProgress::snapshot() const {
  const std::lock_guard lock(mutex_);
  ProgressSnapshot now{activity_.load(std::memory_order_relaxed),
                       gatherings_.load(std::memory_order_relaxed),
                       looks_.load(std::memory_order_relaxed),
                       {},
                       {}};
  for (std::size_t d = 0; !entries_.empty() && d < entries_[shown_].count; ++d) {
    now.devices.push_back(entries_[shown_].devices[d].counts());
  }
  return now;
}

}  // namespace baton::ranks
