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

/// The law of the plan. Each rule can be broken by itself, and a violation names the tasks that break it.
enum class Rule : std::uint8_t {
  place,    // a task touches buffers of its own device, and comes after tasks of its own device
  shape,    // operands suit what the task does
  meet,     // a send has its receive; a collective has all its members, with equal buffers
  written,  // every buffer is written before it is read
  read,     // what is written is read, or lives on after the step, or is a loss
  ordered,  // of two tasks that touch one buffer, one of them writing, one comes first for certain
  waiting,  // no tasks wait for one another in a circle
  kernel,   // the backend can run the task
  memory    // each device's arena fits
};

std::string_view to_text(Rule rule);

struct Violation {
  Rule rule;
  std::vector<TaskId> tasks;
  std::string text;  // one sentence
};

/// What the machine that is to run the plan can do. What is left out is not checked.
struct Limits {
  std::function<bool(const Task&)> has_kernel;
  std::vector<Bytes> memory;  // by device
  bool slice = false;         // of a larger plan: members of a collective may be elsewhere
};

/// What was found, and what was worked out on the way: an executor needs both.
struct Verdict {
  std::vector<Violation> violations;  // at most `max_violations`
  Ordering ordering;
  Memory memory;  // empty when an earlier rule is broken

  static constexpr std::size_t max_violations = 20;
  bool holds() const { return violations.empty(); }
};

/// Checks the whole law in time linear in the plan.
Verdict verify(const Plan& plan, const Limits& limits = {});

/// Throws a usage error with the first violation's sentence.
void require(const Verdict& verdict);

}  // namespace baton::plan
