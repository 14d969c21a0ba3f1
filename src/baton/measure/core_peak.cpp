#include "baton/measure/core_peak.h"

#include "baton/base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton::measure {
namespace {

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int lanes = 16;
Vector broadcast(float value) { return _mm512_set1_ps(value); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
float first(Vector v) { return _mm512_cvtss_f32(v); }
#elif defined(__FMA__)
using Vector = __m256;
constexpr int lanes = 8;
Vector broadcast(float value) { return _mm256_set1_ps(value); }
Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
float first(Vector v) { return _mm256_cvtss_f32(v); }
#else
using Vector = float;
constexpr int lanes = 1;
Vector broadcast(float value) { return value; }
Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
float first(Vector v) { return v; }
#endif

constexpr int chains = 12;  // more than latency times throughput of any current core, fewer than the registers
constexpr int chain_length = 4096;

/// Chains of multiply-adds that touch no memory.
float multiply_add_chains(float start) {
  const Vector factor = broadcast(0.999F);
  const Vector shift = broadcast(0.001F);
  Vector sums[chains];
  for (int c = 0; c < chains; ++c) {
    sums[c] = broadcast(start + static_cast<float>(c));
  }
  for (int round = 0; round < chain_length; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) {
      sums[c] = multiply_add(sums[c], factor, shift);
    }
  }
  float total = 0;
  for (const Vector& sum : sums) {
    total += first(sum);
  }
  return total;
}

}  // namespace

double fma_burst() {
  thread_local volatile float sink = 0;  // what goes in and comes out, so that the compiler cannot do the work itself
  sink = multiply_add_chains(sink * 1e-6F);
  return 2.0 * lanes * chains * chain_length;
}

double core_peak_gflops(double seconds) {
  const Nanoseconds start = now();
  double done = 0;
  double elapsed = 0;
  while (elapsed < seconds * 1e9) {
    done += fma_burst();
    elapsed = static_cast<double>((now() - start).count);
  }
  return done / elapsed;
}

}  // namespace baton::measure
