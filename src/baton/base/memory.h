#pragma once

#include "baton/base/units.h"

namespace baton {

/// Throws std::bad_alloc if this much memory is not available: called before a library that allocates memory and does not check
/// the result.
void require_memory(Bytes size);

}  // namespace baton
