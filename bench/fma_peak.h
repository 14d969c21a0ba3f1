#pragma once

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "baton/measure/core_peak.h"

namespace baton::bench {

/// Binds the calling thread to one core.
inline void pin_to_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/// Time the calling thread has run, which leaves out what other programs took from its core.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// GFLOP/s of the calling thread while it runs, over about the given time.
inline double fma_burst_gflops(double seconds) {
  constexpr int calls = 8;
  double elapsed = 0.0;
  double flops = 0.0;
  const double start = thread_seconds();
  while (elapsed < seconds) {
    for (int call = 0; call < calls; ++call) flops += measure::fma_burst();
    elapsed = thread_seconds() - start;
  }
  return flops / elapsed * 1e-9;
}

/// Most float32 GFLOP/s that threads pinned to cores 0 .. threads-1 reach together by fused multiply-adds: the
/// best of several slices, fifty milliseconds in all, so that a moment's disturbance does not lower the mark.
inline double fma_peak_gflops(int threads) {
  constexpr size_t slices = 10;
  std::vector<std::vector<double>> rates(static_cast<size_t>(threads), std::vector<double>(slices));
  std::atomic<int> ready{0};
  std::vector<std::thread> team;
  for (int index = 0; index < threads; ++index) {
    team.emplace_back([&, index] {
      pin_to_core(index);
      ready.fetch_add(1);
      while (ready.load() < threads) _mm_pause();
      for (double& rate : rates[static_cast<size_t>(index)]) rate = fma_burst_gflops(0.005);
    });
  }
  for (std::thread& thread : team) thread.join();
  double best = 0.0;
  for (size_t slice = 0; slice < slices; ++slice) {
    double together = 0.0;
    for (const std::vector<double>& rate : rates) together += rate[slice];
    best = std::max(best, together);
  }
  return best;
}

}  // namespace baton::bench
