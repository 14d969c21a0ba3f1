#pragma once

#include <cstdint>

namespace baton::exercise {

/// The resources that a checked program may use.
struct Limits {
  double seconds = 10;                            // for the answer to one case
  double all_seconds = 60;                        // for all cases of an exercise
  std::int64_t memory = std::int64_t{1} << 30;    // bytes of address space
  std::int64_t output = std::int64_t{256} << 10;  // bytes that it may print; more is lost
};

/// Confines the calling process, which is about to become the checked program: memory, processor time, what it prints; and, by a
/// filter of system calls, no network, no further processes, no file opened for writing, no signal to another process. Threads and
/// reading of files stay allowed. Calls nothing that may not be called between fork and exec. False if the system has no such
/// filters: then only the limits hold.
bool confine(const Limits& limits);

/// True if `confine` can filter system calls here.
bool can_filter();

}  // namespace baton::exercise
