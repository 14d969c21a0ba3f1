#include "baton/exec/team.h"

#include <pthread.h>
#include <sched.h>

namespace baton::exec {

void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

Team::Team(const std::vector<int>& cores, int spins) : spins_(spins), barrier_(static_cast<int>(cores.size())) {
  for (std::size_t i = 1; i < cores.size(); ++i) {
    helpers_.emplace_back([this, i, core = cores[i]] { help(static_cast<int>(i), core); });
  }
}

Team::~Team() {
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
  work.run({0, size(), &barrier_});
  for (int i = 0; busy_.load(std::memory_order_acquire) != 0; ++i) {
    relax();
    if (i % 1024 == 1023) {
      sched_yield();
    }
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
    work_.load(std::memory_order_relaxed)->run({index, size(), &barrier_});
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace baton::exec
