#include "exercise.h"

Rows schedule(const Pipeline& pipeline, const Simulate& simulate) {
  // To do: no device does anything.
  return Rows(pipeline.devices);
}
