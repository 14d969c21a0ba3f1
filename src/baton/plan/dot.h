#pragma once

#include <string>

#include "baton/plan/plan.h"

namespace baton::plan {

/// The graph for Graphviz: one cluster per device, one colour per phase.
std::string to_dot(const Plan& plan);

}  // namespace baton::plan
