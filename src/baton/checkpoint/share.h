#pragma once

#include "baton/checkpoint/safetensors.h"
#include "baton/exec/ranks/world.h"

namespace baton::checkpoint {

/// Gives rank 0's archive to all ranks, which need no file system in common. All of them call it.
void broadcast(exec::World& world, Archive& archive);

}  // namespace baton::checkpoint
