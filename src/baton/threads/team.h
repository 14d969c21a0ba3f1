#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "baton/threads/doorbell.h"
#include "baton/threads/member.h"

namespace baton::threads {

/// Pins the calling thread to a core; no effect if the system does not allow it.
void pin_to_core(int core);

/// Work that all members of a team do together.
class TeamWork {
 public:
  virtual ~TeamWork() = default;
  virtual void run(const Member& member) = 0;
};

/// The threads of one device, one per core, pinned. The thread that calls `run` is member 0 and is pinned by its owner.
class Team {
 public:
  /// `spins`: how long an idle member spins before it sleeps.
  Team(const std::vector<int>& cores, int spins);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(helpers_.size()) + 1; }
  /// Returns when every member has done its part. If one throws, the others are released at the next barrier, and the first
  /// exception is rethrown here.
  void run(TeamWork& work);

 private:
  void help(int index, int core);
  void take_part(TeamWork& work, int index);
  void dismiss();

  int spins_;
  Barrier barrier_;
  Doorbell start_;
  std::atomic<TeamWork*> work_{nullptr};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> stopping_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // the members' first; the leader reads it when all have finished
  std::vector<std::thread> helpers_;
};

}  // namespace baton::threads
