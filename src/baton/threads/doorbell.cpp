#include "baton/threads/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace baton::threads {
namespace {

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void Doorbell::ring() {
  // Sequentially consistent with `wait`: either the ring is seen there before sleeping, or the sleeper here.
  rings_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, word(rings_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Doorbell::wait(std::uint32_t seen, int spins, Nanoseconds timeout) {
  for (int i = 0; i < spins; ++i) {
    if (rings() != seen) {
      return;
    }
    relax();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (rings_.load(std::memory_order_seq_cst) == seen && timeout.count > 0) {
    const timespec limit{static_cast<time_t>(timeout.count / 1'000'000'000), timeout.count % 1'000'000'000};
    syscall(SYS_futex, word(rings_), FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace baton::threads
