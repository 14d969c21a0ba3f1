#pragma once

#include "baton/cluster/machine.h"

namespace baton::test {

/// One core, and little memory.
inline cluster::Machine small_machine() {
  cluster::Machine machine;
  machine.cpu = "a test";
  machine.cores = {0};
  machine.memory = Bytes(1 << 30);
  machine.cache = Bytes(1 << 16);
  return machine;
}

}  // namespace baton::test
