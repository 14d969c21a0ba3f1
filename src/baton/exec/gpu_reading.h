#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "baton/base/units.h"

namespace baton::exec {

/// The figures that a GPU's driver gave while steps ran.
struct GpuReading {
  int ordinal = 0;           // the GPU's number in the process
  int rank = 0;              // the rank that asked
  std::int64_t samples = 0;  // none: the driver's library for it is not there, and nothing below holds
  double utilization = 0;    // the largest share of time in which a kernel ran, as the driver counts it; 0: it has not counted yet
  Bytes memory_used;         // by all programs, at most
  Bytes memory;
  int clock_mhz = 0;  // lowest clock of the multiprocessors that was seen
  int highest_clock_mhz = 0;
  int memory_clock_mhz = 0;
  double watts = 0;                    // at most
  int celsius = 0;                     // likewise
  std::vector<std::string> slowed_by;  // what held the clock down at any time
};

}  // namespace baton::exec
