#pragma once

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

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

namespace detail {

#if defined(__AVX512F__)
using Vector = __m512;
inline Vector broadcast(float value) { return _mm512_set1_ps(value); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#else
using Vector = __m256;
inline Vector broadcast(float value) { return _mm256_set1_ps(value); }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#endif

constexpr int chains = 12;  // more than latency times throughput of any current core, fewer than the registers
constexpr int rounds = 4096;
constexpr double flops_a_call = 2.0 * (sizeof(Vector) / sizeof(float)) * chains * rounds;

/// Independent chains of multiply-adds that touch no memory; opaque, or the compiler would merge equal calls.
[[gnu::noipa]] inline float multiply_add_chains() {
  const Vector factor = broadcast(0.999F);
  const Vector shift = broadcast(0.001F);
  Vector sums[chains];
  for (Vector& sum : sums) sum = broadcast(1.0F);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int chain = 0; chain < chains; ++chain) sums[chain] = multiply_add(sums[chain], factor, shift);
  }
  Vector total = sums[0];
  for (int chain = 1; chain < chains; ++chain) total = multiply_add(total, factor, sums[chain]);
  float first = 0.0F;
  __builtin_memcpy(&first, &total, sizeof(first));
  return first;
}

}  // namespace detail

/// GF/s of the calling thread while it runs, over about the given time.
inline double fma_burst_gflops(double seconds) {
  static std::atomic<float> sink{0.0F};
  constexpr int calls = 8;
  double elapsed = 0.0;
  double flops = 0.0;
  const double start = thread_seconds();
  while (elapsed < seconds) {
    float last = 0.0F;
    for (int call = 0; call < calls; ++call) last += detail::multiply_add_chains();
    sink.store(last, std::memory_order_relaxed);
    flops += calls * detail::flops_a_call;
    elapsed = thread_seconds() - start;
  }
  return flops / elapsed * 1e-9;
}

/// Most float32 GF/s that threads pinned to cores 0 .. threads-1 reach together by fused multiply-adds: the
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
