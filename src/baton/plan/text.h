#pragma once

#include <string>
#include <string_view>

#include "baton/plan/plan.h"

namespace baton::plan {

/// The plan as text, one line per device, buffer and task. Equal plans print equal, and `parse` gives the plan back.
std::string to_text(const Plan& plan);

/// The plan that such a text describes; a usage error names the line that is not what it should be.
Plan parse(std::string_view text);

}  // namespace baton::plan
