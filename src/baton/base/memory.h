#pragma once

#include "baton/base/units.h"

namespace baton {

/// Throws std::bad_alloc where so much memory is not to be had: asked before a library is called that takes memory by itself and
/// does not look whether it got it.
void require_memory(Bytes size);

}  // namespace baton
