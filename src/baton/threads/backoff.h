#pragma once

#include <sched.h>

#include <ctime>

#include "baton/base/units.h"
#include "baton/threads/doorbell.h"

namespace baton::threads {

/// Waits for something that another thread or process may have to do first, perhaps on the same core: spins while that is cheap,
/// then yields the core, then sleeps for `nap` per call.
class Backoff {
 public:
  /// The first `spins` calls of `wait` spin; the following ones, up to call `yields_until`, yield.
  Backoff(int spins, int yields_until, Nanoseconds nap) : spins_(spins), yields_until_(yields_until), nap_(nap) {}

  void reset() { calls_ = 0; }
  int calls() const { return calls_; }
  void wait() {
    if (++calls_ < spins_) {
      relax();
    } else if (calls_ < yields_until_) {
      sched_yield();
    } else {
      const timespec nap{0, static_cast<long>(nap_.count)};
      nanosleep(&nap, nullptr);
    }
  }

 private:
  int spins_;
  int yields_until_;
  Nanoseconds nap_;
  int calls_ = 0;
};

}  // namespace baton::threads
