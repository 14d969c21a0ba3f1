#pragma once

#include <functional>
#include <memory>

#include "baton/ranks/world.h"

namespace baton::test {

/// Calls `rank` in as many threads as there are to be ranks, each with a world of its own, and returns when
/// all are done. A message is over only when its other end was posted: nothing is ever kept in between.
void run_as_ranks(int ranks, const std::function<void(ranks::World& world)>& rank);
/// The same, for what keeps its world.
void run_as_ranks(int ranks, const std::function<void(const std::shared_ptr<ranks::World>& world)>& rank);

}  // namespace baton::test
