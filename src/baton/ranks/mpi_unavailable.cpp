#include "baton/base/error.h"
#include "baton/ranks/mpi.h"

namespace baton::ranks {

std::unique_ptr<World> open_mpi_world(const Launch& launch) {
  throw usage_error(
      "{} started this as one of several ranks, but baton was built without MPI: install libopenmpi-dev and "
      "openmpi-bin and build "
      "it again, or start it alone",
      launch.launcher);
}

}  // namespace baton::ranks
