#pragma once

#include "baton/cluster/machine.h"
#include "baton/job/json.h"

namespace baton::measure {

/// What a result depends on besides the command: processor, cores, system, versions, load.
job::Json environment(const cluster::Machine& machine);

}  // namespace baton::measure
