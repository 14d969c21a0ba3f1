#pragma once

#include <ctime>

#include "baton/base/units.h"

namespace baton {

/// The one clock of measured time: monotonic, read in user space.
inline Nanoseconds now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Nanoseconds(static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec);
}

}  // namespace baton
