#pragma once

#include "baton/base/units.h"

namespace baton {

/// A time that was computed from figures of a file or a flag, rounded to whole nanoseconds. A usage error if it is longer than
/// that, or no number: some rate or bandwidth is too small.
Nanoseconds to_duration(double nanoseconds);

}  // namespace baton
