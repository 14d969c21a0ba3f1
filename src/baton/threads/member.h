#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "baton/threads/doorbell.h"

namespace baton::threads {

/// Meeting point of a fixed team of threads, reusable at once. What a member wrote before arriving is visible to
/// every member after leaving. Waits by spinning, and gives the core away only when a member is clearly late: a
/// team larger than the machine then still advances.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Thrown in members that wait or arrive later, if another member will never arrive.
  struct Broken {};

  void arrive_and_wait() {
    const std::uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins < spin_limit) {
        relax();
        continue;
      }
      if (broken_.load(std::memory_order_relaxed)) {
        throw Broken{};
      }
      sched_yield();
    }
  }

  /// A member gives up: the others no longer wait for it.
  void break_up() { broken_.store(true, std::memory_order_relaxed); }
  /// Resets the barrier. No member may be at it.
  void mend() {
    arrived_.store(0, std::memory_order_relaxed);
    broken_.store(false, std::memory_order_relaxed);
  }

 private:
  static constexpr int spin_limit = 2000;

  const int count_;
  // On separate cache lines, so that late arrivals do not disturb members that spin on the round.
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
  std::atomic<bool> broken_{false};
};

/// One thread's place in the team that runs a kernel together. A team of one needs no barrier.
struct Member {
  int index = 0;
  int count = 1;
  Barrier* barrier = nullptr;

  void sync() const {
    if (count > 1) {
      barrier->arrive_and_wait();
    }
  }
};

}  // namespace baton::threads
