/// The peak of fused multiply-adds: of one core, and of two and more together.
///   build/release/bench/fma_peak

#include "fma_peak.h"

#include <fmt/format.h>

int main() {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  const double one = baton::bench::fma_peak_gflops(1);
  const double pair = cores > 1 ? baton::bench::fma_peak_gflops(2) : one;
  const double all = cores > 2 ? baton::bench::fma_peak_gflops(cores) : pair;
  fmt::print("{{\"cores\": {}, \"one\": {:.1f}, \"pair\": {:.1f}, \"all\": {:.1f}}}\n", cores, one, pair, all);
}
