#pragma once

#include <string_view>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

namespace baton::measure {

/// A core lets its wide vector units sleep once no product has needed them for about this long, and the next product pays for
/// waking them. Seen to lie between 0.4 and 0.7 ms on a server of Intel's Ice Lake.
constexpr Nanoseconds long_idle(600'000);

/// The key, in a calibration, of the extra time of the first product after such a rest.
constexpr std::string_view wake_up_key = "rest";

/// Measures it with the plan's largest product, on its device, while the others rest. Zero if the plan has no product.
Nanoseconds time_wake_up(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend);

}  // namespace baton::measure
