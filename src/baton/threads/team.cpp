#include "baton/threads/team.h"

#include <pthread.h>
#include <sched.h>

#include <utility>

namespace baton::threads {

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

Team::Team(const std::vector<int>& cores, int spins) : spins_(spins), barrier_(static_cast<int>(cores.size())) {
  try {
    for (std::size_t i = 1; i < cores.size(); ++i) {
      helpers_.emplace_back([this, i, core = cores[i]] { help(static_cast<int>(i), core); });
    }
  } catch (...) {  // no further thread to be had
    dismiss();
    throw;
  }
}

Team::~Team() { dismiss(); }

void Team::dismiss() {
  stopping_ = true;
  start_.ring();
  for (std::thread& helper : helpers_) {
    helper.join();
  }
}

void Team::run(TeamWork& work) {
  if (helpers_.empty()) {
    work.run({0, 1, nullptr});
    return;
  }
  busy_.store(static_cast<int>(helpers_.size()), std::memory_order_relaxed);
  work_.store(&work, std::memory_order_relaxed);
  start_.ring();
  take_part(work, 0);
  for (int i = 0; busy_.load(std::memory_order_acquire) != 0; ++i) {
    relax();
    if (i % 1024 == 1023) {
      sched_yield();
    }
  }
  if (failure_) [[unlikely]] {
    barrier_.mend();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void Team::take_part(TeamWork& work, int index) {
  try {
    work.run({index, size(), &barrier_});
  } catch (const Barrier::Broken&) {
    // The member that broke it says why.
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) {
      failure_ = std::current_exception();
    }
    barrier_.break_up();
  }
}

void Team::help(int index, int core) {
  pin_to_core(core);
  std::uint32_t seen = 0;
  while (true) {
    while (start_.rings() == seen) {
      start_.wait(seen, spins_, Nanoseconds(1'000'000'000));
    }
    ++seen;  // the leader rings again only when everyone has finished
    if (stopping_) {
      return;
    }
    take_part(*work_.load(std::memory_order_relaxed), index);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace baton::threads
