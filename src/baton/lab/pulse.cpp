#include "baton/lab/pulse.h"

#include <array>
#include <atomic>

#include "baton/exec/clock.h"

namespace baton::lab {

double pulse_gflops() {
  constexpr std::size_t lanes = 128;
  constexpr int rounds = 2000;
  static std::atomic<float> sink{0};
  std::array<float, lanes> sums;
  sums.fill(1.0F);
  const Nanoseconds start = exec::now();
  for (int batch = 0; batch < 8; ++batch) {
    for (int round = 0; round < rounds; ++round) {
      for (float& sum : sums) {
        sum = sum * 0.999F + 0.001F;
      }
    }
  }
  const Nanoseconds time = exec::now() - start;
  float total = 0;
  for (const float sum : sums) {
    total += sum;
  }
  sink.store(total, std::memory_order_relaxed);
  return 2.0 * lanes * rounds * 8 / static_cast<double>(time.count);
}

}  // namespace baton::lab
