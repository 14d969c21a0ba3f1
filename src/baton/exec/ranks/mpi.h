#pragma once

#include <memory>

#include "baton/exec/ranks/world.h"

namespace baton::exec {

/// The world of the MPI library. Throws a usage error if the program was built without MPI.
std::unique_ptr<World> open_mpi_world(const Launch& launch);

}  // namespace baton::exec
