#pragma once

#include <vector>

#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

namespace baton::plan {

/// The addresses of all buffers and workspaces in the arenas of their devices. Two share addresses only if
/// every task that touches the one is certainly done before any task that touches the other starts; or if they are an operand and a
/// result of one task that may lie in one place (op::overwritten), of one size, and no other task touches the operand later.
struct Memory {
  static constexpr std::int64_t alignment = 64;

  std::vector<std::int64_t> offset;     // by buffer, in bytes from the start of its device's arena
  std::vector<std::int64_t> workspace;  // by task, likewise
  std::vector<Bytes> peak;              // by device: the arena's size
};

/// Before: every buffer is written before it is read, and conflicting touches are ordered.
Memory plan_memory(const Plan& plan, const Ordering& ordering);

}  // namespace baton::plan
