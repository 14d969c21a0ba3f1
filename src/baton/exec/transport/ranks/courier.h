#pragma once

#include <atomic>
#include <deque>
#include <thread>

#include "baton/exec/host/doorbell.h"
#include "baton/exec/ranks/world.h"
#include "baton/exec/transport/ranks/meeting.h"

namespace baton::exec {

/// Keeps messages moving, and sums what has come, while devices compute: a thread that naps while messages
/// are under way and sleeps otherwise.
class Courier {
 public:
  explicit Courier(World& world) : world_(world) {}
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Where a lane says which meeting it is at. To be asked for before `start`.
  std::atomic<RankMeeting*>& add_lane() { return lanes_.emplace_back(nullptr); }
  void start();
  /// There is something to carry.
  void ring() { bell_.ring(); }

 private:
  void run();
  /// Runs operations that wait; false where none do.
  bool work();

  World& world_;
  std::deque<std::atomic<RankMeeting*>> lanes_;
  Doorbell bell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace baton::exec
