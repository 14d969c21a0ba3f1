#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "baton/base/dtype.h"

namespace baton::exec {

/// Counts the effects of rounding values to a 16-bit type: a zero that comes in is exact and counted nowhere.
struct Rounding {
  std::int64_t values = 0;      // the number of values that were not zero
  std::int64_t underflows = 0;  // how many of those became zero
  std::int64_t overflows = 0;   // finite ones that became infinite

  Rounding& operator+=(const Rounding& other) {
    values += other.values;
    underflows += other.underflows;
    overflows += other.overflows;
    return *this;
  }
  Rounding& operator-=(const Rounding& other) {
    values -= other.values;
    underflows -= other.underflows;
    overflows -= other.overflows;
    return *this;
  }
  bool operator==(const Rounding&) const = default;
};

/// A count that several threads add to.
class SharedRounding {
 public:
  void add(const Rounding& part) {
    values_.fetch_add(part.values, std::memory_order_relaxed);
    underflows_.fetch_add(part.underflows, std::memory_order_relaxed);
    overflows_.fetch_add(part.overflows, std::memory_order_relaxed);
  }
  Rounding total() const { return {values_.load(), underflows_.load(), overflows_.load()}; }

 private:
  std::atomic<std::int64_t> values_{0};
  std::atomic<std::int64_t> underflows_{0};
  std::atomic<std::int64_t> overflows_{0};
};

/// `count` elements of a 16-bit type as floats.
void widen(DType type, const std::byte* from, float* to, std::int64_t count);
/// `count` floats rounded to a 16-bit type, and what became of them.
Rounding narrow(DType type, const float* from, std::byte* to, std::int64_t count);

}  // namespace baton::exec
