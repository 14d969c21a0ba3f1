#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/plan.h"

/// What a step of a plan moves between devices.
struct Moved {
  /// messages[a][b]: how many transfers device a sends to device b; bytes[a][b]: how many bytes they have together.
  std::vector<std::vector<std::int64_t>> messages;
  std::vector<std::vector<std::int64_t>> bytes;
  /// How many collectives there are (an all-reduce of four devices is one), and the bytes of what one of their members holds: all
  /// buffers of its payload, added up over all collectives.
  std::int64_t collectives = 0;
  std::int64_t collective_bytes = 0;
};

/// Counts them, task by task. In baton/plan/task.h: a task's action is a Transfer, which has two ends that are tasks of their own,
/// a Collective, of which each member is a task, or something that moves nothing. `payload(task)` are the buffers that move, and
/// `plan[buffer].size()` is a buffer's size, in elements of 4 bytes or of 2.
Moved count_transfers(const baton::plan::Plan& plan);
