#pragma once

#include <memory>

#include "baton/exec/ranks/world.h"

namespace baton::exec {

/// The world that the MPI library sees. Where the program was built without MPI, a usage error says so.
std::unique_ptr<World> open_mpi_world(const Launch& launch);

}  // namespace baton::exec
