#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"

namespace baton::measure {

/// The time that all processes have used of the cores since the machine started, from the contents of /proc/stat, in clock ticks;
/// nullopt if that does not say.
std::optional<double> busy_ticks(std::string_view stat);

/// The core time that others used, and all that was available, in seconds of one core.
struct CoreTime {
  double others = 0;
  double all = 0;
  Nanoseconds elapsed;

  CoreTime& operator+=(const CoreTime& more);
  /// The share of others; nullopt if the time was too short to tell. The system counts in ticks of some milliseconds and assigns a
  /// whole tick to the process that runs when it ends, so over a few ticks work of this process could count as others'.
  std::optional<double> share() const;
};

/// Measures the time that other processes use this machine's cores from now on: tasks timed meanwhile take longer than they
/// would alone.
class OtherProcesses {
 public:
  OtherProcesses();
  /// The time used since construction; nullopt if this system does not say.
  std::optional<CoreTime> used() const;

 private:
  struct Reading {
    Nanoseconds time;
    double all = 0;  // seconds of cores
    double own = 0;
  };
  static std::optional<Reading> read();

  std::optional<Reading> begin_;
};

/// True if others used so much that times are too long.
constexpr bool disturbs(double others_share) { return others_share >= 0.1; }

}  // namespace baton::measure
