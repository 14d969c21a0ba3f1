#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::exec::cpu {

/// A sum in double precision of many terms. It is kept as several running sums, always the same ones: wide enough for vectors, the
/// same bits on every machine.
class LaneSums {
 public:
  /// Adds `term(i)` of each of `count` indices.
  template <typename Term>
  void add(std::int64_t count, const Term& term) {
    std::int64_t i = 0;
    for (; i + width <= count; i += width) {
      for (std::int64_t lane = 0; lane < width; ++lane) {
        sums_[static_cast<std::size_t>(lane)] += term(i + lane);
      }
    }
    for (std::int64_t lane = 0; i < count; ++i, ++lane) {
      sums_[static_cast<std::size_t>(lane)] += term(i);
    }
  }
  double total() const { return total_of(sums_); }

 private:
  static constexpr std::int64_t width = 16;

  /// The second half is added to the first until one number is left. Each half is a vector in registers.
  template <std::size_t count>
  static double total_of(const std::array<double, count>& sums) {
    if constexpr (count == 1) {
      return sums[0];
    } else {
      std::array<double, count / 2> halves;
      for (std::size_t lane = 0; lane < count / 2; ++lane) {
        halves[lane] = sums[lane] + sums[lane + count / 2];
      }
      return total_of(halves);
    }
  }

  std::array<double, width> sums_{};
};

/// The sum of `term(i)` over `count` indices.
template <typename Term>
double lane_sum(std::int64_t count, const Term& term) {
  LaneSums sums;
  sums.add(count, term);
  return sums.total();
}

/// The largest of `count` values and of `before`.
inline float largest_of(const float* values, std::int64_t count, float before) {
  constexpr std::int64_t width = 16;
  std::array<float, width> lanes;
  lanes.fill(before);
  std::int64_t i = 0;
  for (; i + width <= count; i += width) {
    for (std::int64_t lane = 0; lane < width; ++lane) {
      float& largest = lanes[static_cast<std::size_t>(lane)];
      largest = values[i + lane] > largest ? values[i + lane] : largest;
    }
  }
  for (; i < count; ++i) {
    lanes[0] = std::max(lanes[0], values[i]);
  }
  return *std::max_element(lanes.begin(), lanes.end());
}

}  // namespace baton::exec::cpu
