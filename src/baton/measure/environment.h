#pragma once

#include "baton/cluster/machine.h"
#include "baton/job/json.h"

namespace baton::measure {

/// The facts besides the command on which a result depends: processor, cores, system, versions, load.
job::Json environment(const cluster::Machine& machine);

}  // namespace baton::measure
