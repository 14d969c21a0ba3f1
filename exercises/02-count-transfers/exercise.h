#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/plan.h"

/// The transfers and collectives of a step of a plan.
struct Moved {
  /// messages[a][b]: the number of transfers that device a sends to device b; bytes[a][b]: the bytes of all of them together.
  std::vector<std::vector<std::int64_t>> messages;
  std::vector<std::vector<std::int64_t>> bytes;
  /// The number of collectives (an all-reduce of four devices is one), and their bytes: all buffers of the payload of one member,
  /// added up over all collectives.
  std::int64_t collectives = 0;
  std::int64_t collective_bytes = 0;
};

/// Counts them, task by task. In baton/plan/task.h: a task's action is a Transfer, which has two ends that are tasks of their own,
/// a Collective, of which each member is a task, or something that moves nothing. `payload(task)` are the buffers that move, and
/// `plan[buffer].size()` is a buffer's size, in elements of 4 bytes or of 2.
Moved count_transfers(const baton::plan::Plan& plan);
