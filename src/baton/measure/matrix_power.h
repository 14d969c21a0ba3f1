#pragma once

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"
#include "baton/strategy/step.h"

namespace baton::measure {

/// Aⁿ + Bⁿ by repeated squaring, A and B square matrices of `size`: on one device, or Bⁿ on a second one and moved to the
/// first for the sum. The sum is the only buffer of role activation that lives on, labelled "sum". One device holds five matrices
/// at most, and what its products take as workspace. A usage error refuses 16-bit formats.
plan::Plan matrix_power_plan(std::int64_t size, std::int64_t power, const cluster::Cluster& cluster, const plan::Target& target,
                             strategy::Precision precision = strategy::Precision::fp32);

/// The number of products that a matrix needs by repeated squaring: one for each square and one for each further bit that
/// is set.
std::int64_t products_needed(std::int64_t power);

}  // namespace baton::measure
