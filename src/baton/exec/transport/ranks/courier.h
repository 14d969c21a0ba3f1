#pragma once

#include <atomic>
#include <deque>
#include <thread>

#include "baton/exec/host/doorbell.h"
#include "baton/exec/ranks/world.h"
#include "baton/exec/transport/ranks/meeting.h"

namespace baton::exec {

/// Keeps messages moving, and sums what has come, while devices compute: a thread that naps while messages
/// are under way and sleeps otherwise. `sparing`: it has no core of its own, and naps longer while no device waits.
class Courier {
 public:
  Courier(World& world, bool sparing) : world_(world), sparing_(sparing) {}
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Where a lane says which meeting it is at. To be asked for before `start`.
  std::atomic<RankMeeting*>& add_lane() { return lanes_.emplace_back(nullptr); }
  void start();
  /// There is something to carry.
  void ring() { bell_.ring(); }
  /// A device sleeps until something has come, or no longer does.
  void device_sleeps();
  void device_wakes() { asleep_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  void run();
  /// Runs operations that wait; false where none do.
  bool work();
  void nap();

  World& world_;
  const bool sparing_;
  std::deque<std::atomic<RankMeeting*>> lanes_;
  Doorbell bell_;               // where it sleeps while nothing is under way,
  Doorbell hurry_;              // and where it naps long, which what is posted meanwhile does not disturb
  std::atomic<int> asleep_{0};  // devices
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace baton::exec
