#pragma once

#include <cstdint>

// Kernels of GPUs, which are compiled as C++17, draw the same words.
#ifdef __CUDACC__
#define BATON_ON_HOST_AND_DEVICE __host__ __device__
#else
#define BATON_ON_HOST_AND_DEVICE
#endif

namespace baton {

/// Four words in a row, which are a counter or what is drawn for one.
struct FourWords {
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t c;
  std::uint32_t d;
};

/// Philox4x32-10: four random words as a pure function of a counter and a key of two words (Salmon et al., 2011).
BATON_ON_HOST_AND_DEVICE inline FourWords philox_words(FourWords counter, std::uint32_t key_0, std::uint32_t key_1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * counter.a;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * counter.c;
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter.b ^ key_0, static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter.d ^ key_1, static_cast<std::uint32_t>(first)};
    key_0 += 0x9E3779B9U;
    key_1 += 0xBB67AE85U;
  }
  return counter;
}

}  // namespace baton

#undef BATON_ON_HOST_AND_DEVICE
