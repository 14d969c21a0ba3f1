#pragma once

#include <functional>
#include <string>
#include <vector>

#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

namespace baton::plan {

enum class Rule : std::uint8_t;

/// Called for each breach of a rule, with the tasks that break it and a sentence.
using Report = std::function<void(Rule rule, std::vector<TaskId> tasks, std::string text)>;

/// Reports where a plan does not compute its graph, whatever the split: walks the tasks in order and follows which terms of which
/// sum every buffer holds. Rules are `value`, `sum` and `update`. Linear in the plan. A plan without a graph is not judged. Before:
/// all other rules hold, and the plan is whole except for alike parts (`Limits::alike_parts`; 0: it has all).
void check_split(const Plan& plan, const Ordering& ordering, std::int64_t alike_parts, const Report& report);

}  // namespace baton::plan
