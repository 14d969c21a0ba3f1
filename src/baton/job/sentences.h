#pragma once

#include <string>
#include <vector>

#include "baton/job/scenario.h"

namespace baton::job {

/// The sentence of `verify` about a plan that breaks no rule.
std::string correct_sentence(const plan::Plan& plan, bool memory_checked);

/// True if the request's devices are stages of a pipeline, or replicas of such stages.
bool is_pipeline(const strategy::Request& request);

/// Findings about a simulated step, the answer first: where its time goes, what would shorten it, which device the others
/// wait for, what the schedule leaves idle, and how full memory is.
std::vector<std::string> findings_of(const Scenario& scenario, const std::vector<Sensitivity>& sensitivities);

}  // namespace baton::job
