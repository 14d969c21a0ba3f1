#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"

namespace baton::measure {

/// What all processes have had of the cores since the machine started, by the contents of /proc/stat, in clock ticks; none if
/// that does not say.
std::optional<double> busy_ticks(std::string_view stat);

/// What others had of the cores, and what there was to have, in seconds of one core.
struct CoreTime {
  double others = 0;
  double all = 0;
  Nanoseconds elapsed;

  CoreTime& operator+=(const CoreTime& more);
  /// The share of others; nothing if the time was too short to tell. The system counts in ticks of some milliseconds and gives a
  /// whole tick to whoever runs when it ends, so over a few of them work of this process would be taken for others'.
  std::optional<double> share() const;
};

/// How much of this machine's cores other processes use from now on: what is timed meanwhile is longer than it would be alone.
class OtherProcesses {
 public:
  OtherProcesses();
  /// Since construction; nothing if this system does not say.
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

/// Whether so much was used that times are not what the machine can do.
constexpr bool disturbs(double others_share) { return others_share >= 0.1; }

}  // namespace baton::measure
