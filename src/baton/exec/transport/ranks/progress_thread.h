#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "baton/exec/transport/ranks/meeting.h"
#include "baton/ranks/world.h"
#include "baton/threads/doorbell.h"

namespace baton::exec {

/// The progress thread: moves messages and sums received parts while devices compute. It naps while messages
/// are in transit and sleeps otherwise. `sparing`: it has no core of its own, and naps longer while no device waits.
class ProgressThread {
 public:
  ProgressThread(std::shared_ptr<ranks::World> world, bool sparing) : world_(std::move(world)), sparing_(sparing) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// The slot in which a lane stores its current meeting. To be requested before `start`.
  std::atomic<RankMeeting*>& add_lane() { return lanes_.emplace_back(nullptr); }
  void start();
  /// A message was posted.
  void ring() { bell_.ring(); }
  /// A device starts or stops sleeping until a message arrives.
  void device_sleeps();
  void device_wakes() { asleep_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void run();
  /// Runs waiting operations; false if there are none.
  bool work();
  void nap();

  std::shared_ptr<ranks::World> world_;
  const bool sparing_;
  std::deque<std::atomic<RankMeeting*>> lanes_;
  threads::Doorbell bell_;      // the thread sleeps here while nothing is under way
  threads::Doorbell hurry_;     // the thread takes long naps here, which are not ended when something is posted
  std::atomic<int> asleep_{0};  // devices
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace baton::exec
