#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/exec/rounding.h"

namespace baton::exec {

/// The operation on one run of elements of a meeting. Sums are taken in the order of `from`, so the bits do not depend on the
/// thread that runs it; sums of 16-bit types are taken in float and rounded once.
struct Operation {
  enum class Function : std::uint8_t {
    copy,   // the only one of `from`, to all of `to`
    sum,    // the sum of `from` to all of `to`, which may be among `from`
    add,    // the same, added to what the only one of `to` holds
    apply,  // w −= rate · sum, to all of `to`
  };
  Function kind = Function::copy;
  DType type = DType::f32;
  std::int64_t count = 0;  // elements
  std::vector<std::byte*> from;
  std::vector<std::byte*> to;
  double rate = 0;

  /// Runs the operation, and returns the effects of rounding.
  Rounding run() const;
};

}  // namespace baton::exec
