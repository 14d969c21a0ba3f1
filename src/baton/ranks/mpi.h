#pragma once

#include <memory>

#include "baton/ranks/world.h"

namespace baton::ranks {

/// The world of the MPI library. Throws a usage error if the program was built without MPI.
std::unique_ptr<World> open_mpi_world(const Launch& launch);

}  // namespace baton::ranks
