#pragma once

#include <memory>

#include "baton/exec/engine.h"
#include "baton/exec/host/host_backend.h"

namespace baton::exec {

/// Devices that are sets of cores: one thread per device, which serves all its lanes, and a team that helps with kernels;
/// while a message is in transit the thread computes. The steps after the warm-up are traced; of very many steps only the
/// first.
std::unique_ptr<Engine> make_host_engine(Assignment assignment, const HostBackend& backend);

}  // namespace baton::exec
