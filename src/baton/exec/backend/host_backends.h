#pragma once

#include <memory>

#include "baton/exec/host/host_backend.h"

namespace baton::exec {

/// Plain loops, one thread, no library; every floating type. The correctness reference for the other backends.
std::unique_ptr<HostBackend> make_reference_backend();
/// A device's cores together; products by libxsmm, weights in tiles; float32.
std::unique_ptr<HostBackend> make_cpu_backend();

}  // namespace baton::exec
