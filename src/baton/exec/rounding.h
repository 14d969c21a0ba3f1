#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/base/dtype.h"

namespace baton::exec {

/// What rounding to a 16-bit type did to values: a zero that comes in is exact and counted nowhere.
struct Rounding {
  std::int64_t values = 0;      // that were not zero
  std::int64_t underflows = 0;  // of those, how many became zero
  std::int64_t overflows = 0;   // finite ones that became infinite

  Rounding& operator+=(const Rounding& other) {
    values += other.values;
    underflows += other.underflows;
    overflows += other.overflows;
    return *this;
  }
  bool operator==(const Rounding&) const = default;
};

/// `count` elements of a 16-bit type as floats.
void widen(DType type, const std::byte* from, float* to, std::int64_t count);
/// `count` floats rounded to a 16-bit type, and what became of them.
Rounding narrow(DType type, const float* from, std::byte* to, std::int64_t count);

}  // namespace baton::exec
