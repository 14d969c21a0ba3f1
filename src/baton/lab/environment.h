#pragma once

#include "baton/cluster/machine.h"
#include "baton/lab/json.h"

namespace baton::lab {

/// What a result depends on besides the command: processor, cores, system, versions, load.
Json environment(const cluster::Machine& machine);

}  // namespace baton::lab
