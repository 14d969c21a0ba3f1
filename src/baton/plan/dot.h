#pragma once

#include <string>

#include "baton/plan/plan.h"

namespace baton::plan {

/// The graph for Graphviz: a cluster a device, a colour a phase.
std::string to_dot(const Plan& plan);

}  // namespace baton::plan
