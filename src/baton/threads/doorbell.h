#pragma once

#include <atomic>
#include <cstdint>

#include "baton/base/units.h"

namespace baton::threads {

/// CPU spin-wait hint (PAUSE).
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// A thread waits at it and others ring it. Spins for a while, because a wake-up while spinning takes a hundredth of
/// the time of one through the kernel; then sleeps.
class alignas(64) Doorbell {
 public:
  /// The number of rings so far: read it before looking for work; if there was none, wait for it to change.
  std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }

  void ring();

  /// Returns when it has rung since `seen` was read, or after `timeout`.
  void wait(std::uint32_t seen, int spins, Nanoseconds timeout);

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace baton::threads
