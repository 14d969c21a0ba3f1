#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

namespace baton::plan::test {

/// Runs a step in plain loops of doubles, one task after the other: buffers are filled by what they say they hold. Independent of
/// `verify` and of the backends. Gives the contents of every buffer at the end.
std::vector<std::vector<double>> evaluate(const Plan& plan, const Ordering& ordering);

/// Whether two plans of the same buffers leave the same parameters, states and losses.
bool same_result(const Plan& plan, const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b);

/// Where two plans of one step leave different parameters, states or losses, however each of them divides these; none: nowhere. So
/// do devices of one plan that hold the same.
std::optional<std::string> difference(const Plan& a, const std::vector<std::vector<double>>& left_by_a, const Plan& b,
                                      const std::vector<std::vector<double>>& left_by_b);

}  // namespace baton::plan::test
