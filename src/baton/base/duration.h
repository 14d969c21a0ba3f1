#pragma once

#include "baton/base/units.h"

namespace baton {

/// The longest time that one task or message may take, so that sums of times cannot overflow.
inline constexpr double longest_duration = 1e17;  // nanoseconds: three years

/// A time that was computed from figures of a file or a flag, rounded to whole nanoseconds. A usage error if it is longer than
/// that, or no number: some rate or bandwidth is too small.
Nanoseconds to_duration(double nanoseconds);

}  // namespace baton
