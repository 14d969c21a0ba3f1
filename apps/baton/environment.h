#pragma once

#include <nlohmann/json.hpp>

#include "baton/cluster/cluster.h"
#include "baton/cluster/machine.h"

namespace baton::app {

/// What a result depends on besides the command: processor, cores, system, versions, load.
nlohmann::ordered_json environment(const cluster::Machine& machine, const cluster::Cluster& cluster);

}  // namespace baton::app
