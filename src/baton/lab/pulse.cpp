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
  for (std::size_t i = 0; i < lanes; ++i) {  // from a value the compiler cannot know, or it would do the work itself
    sums[i] = sink.load(std::memory_order_relaxed) + static_cast<float>(i);
  }
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
