#pragma once

#include <atomic>
#include <cstdint>

#include "baton/base/units.h"

namespace baton::exec {

/// Tells one spinning thread that it may lie down, and the processor that this is a spin.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// What a thread waits at and others ring. Spins for a while, since a hand-off while spinning takes a hundredth of
/// one through the kernel; then sleeps.
class alignas(64) Doorbell {
 public:
  /// The number of rings so far: read it before looking for work, wait for it to change when there was none.
  std::uint32_t rings() const { return rings_.load(std::memory_order_acquire); }

  void ring();

  /// Returns when it has rung since `seen` was read, or after `timeout`.
  void wait(std::uint32_t seen, int spins, Nanoseconds timeout);

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace baton::exec
