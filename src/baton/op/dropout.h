#pragma once

#include <cstdint>

#include "baton/base/philox.h"

#ifdef __CUDACC__
#define BATON_ON_HOST_AND_DEVICE __host__ __device__
#else
#define BATON_ON_HOST_AND_DEVICE
#endif

namespace baton::op {

/// The elements of a value that a dropout sets to zero in one step. Nothing is drawn in sequence, so it depends neither on
/// how the value is split nor on how often it is asked for.
struct DropoutMask {
  std::uint64_t seed;
  std::uint32_t step;
  std::uint32_t layer;
  std::uint64_t threshold;  // words below it drop their element

  // Spelled out: kernels are compiled as C++17.
  BATON_ON_HOST_AND_DEVICE DropoutMask(double rate, std::int64_t number, std::int64_t random_seed, std::int64_t at_step)
      : seed(static_cast<std::uint64_t>(random_seed)),
        step(static_cast<std::uint32_t>(at_step)),
        layer(static_cast<std::uint32_t>(number)),
        threshold(static_cast<std::uint64_t>(rate * 4294967296.0)) {}

  /// The words of the four elements whose indices in the whole value are those of this one but for the last two bits,
  BATON_ON_HOST_AND_DEVICE FourWords words(std::int64_t index) const {
    constexpr std::uint32_t domain = 5U << 24;  // after those of random.h
    const auto block = static_cast<std::uint64_t>(index) / 4;
    return philox_words(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step, domain | (layer & 0xFFFFFFU)},
        static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  }
  /// and whether they drop this element.
  BATON_ON_HOST_AND_DEVICE bool drops(const FourWords& four, std::int64_t index) const {
    const std::int64_t lane = index & 3;
    return (lane == 0 ? four.a : lane == 1 ? four.b : lane == 2 ? four.c : four.d) < threshold;
  }
};

/// The places of a part's elements in the whole, of which the part holds some indices of each dimension.
struct ElementPlaces {
  static constexpr int max_rank = 5;
  int rank = 0;
  std::int64_t held[max_rank] = {};
  std::int64_t begin[max_rank] = {};
  std::int64_t whole[max_rank] = {};

  /// Elements of the part that lie one after the other in the whole, from a multiple of this many on.
  BATON_ON_HOST_AND_DEVICE std::int64_t run() const { return held[rank - 1]; }
  /// The index in the whole of an element of the part.
  BATON_ON_HOST_AND_DEVICE std::int64_t of(std::int64_t element) const {
    std::int64_t place = 0;
    std::int64_t stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      place += (begin[d] + element % held[d]) * stride;
      element /= held[d];
      stride *= whole[d];
    }
    return place;
  }
};

}  // namespace baton::op

#undef BATON_ON_HOST_AND_DEVICE
