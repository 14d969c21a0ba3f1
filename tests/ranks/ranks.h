#pragma once

#include "baton/exec/ranks/world.h"

namespace baton::test {

/// The ranks that this test was started as.
exec::World& world();

}  // namespace baton::test
