#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/plan/memory.h"
#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

namespace baton::plan {

/// The rules of a plan. Each rule can be broken alone, and a violation names the tasks that break it.
enum class Rule : std::uint8_t {
  place,    // a task touches buffers of its own device, and comes after tasks of its own device
  shape,    // operands have the shapes and types that the task needs
  meet,     // a send has its receive; a collective has all its members, with equal buffers
  written,  // every buffer is written before it is read
  read,     // every written buffer is read, or persists after the step, or is a loss
  ordered,  // two tasks that touch one buffer, at least one of them writing, are ordered
  waiting,  // no tasks wait for each other in a cycle (deadlock)
  kernel,   // the backend can run the task
  memory,   // each device's arena fits
  // For plans that say what they compute (their graph):
  value,  // operands are the values and the indices that the model's op takes, and members of a collective hold the same
  sum,    // a term of a sum is not read as the sum, and none is counted twice
  update  // each parameter is updated once, by its complete gradient, after its last use
};

std::string_view to_text(Rule rule);

struct Violation {
  Rule rule;
  std::vector<TaskId> tasks;
  std::string text;  // one sentence
};

/// The limits of the machine that runs the plan. Fields that are not set are not checked.
struct Limits {
  std::function<bool(const Task&)> has_kernel;
  std::vector<Bytes> memory;  // by device
  bool slice = false;         // true if it is a part of a larger plan: members of a collective may be elsewhere
  bool unread = false;        // a task may overwrite what nothing has read, as in plans that only time tasks
  /// If more than two: tensors are divided into this many parts, of which the plan has the first two, on devices 2i and 2i + 1.
  /// The rule that the split computes the model is then checked for all parts: each further one continues the row of these two.
  std::int64_t alike_parts = 0;
};

/// The violations, and the ordering and memory layout that the check computed: an executor needs both.
struct Verdict {
  std::vector<Violation> violations;  // at most `max_violations`
  Ordering ordering;
  Memory memory;  // empty when an earlier rule is broken

  static constexpr std::size_t max_violations = 20;
  bool holds() const { return violations.empty(); }
};

/// Checks all rules in time linear in the plan. The rule that the split computes the model is checked for whole plans and for plans
/// with alike parts, but not for slices, whose other members are elsewhere.
Verdict verify(const Plan& plan, const Limits& limits = {});

/// Throws a usage error with the first violation's sentence.
void require(const Verdict& verdict);

}  // namespace baton::plan
