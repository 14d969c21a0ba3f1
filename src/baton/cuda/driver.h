#pragma once

#include <cuda.h>

namespace baton::cuda {

/// The functions of CUDA's driver that parts of GPUs need. Found at run time, so that a program built with CUDA starts
/// where there is no driver.
struct Driver {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuCtxSetCurrent) set_current;
  decltype(&cuDeviceGetDevResource) get_resource;
  decltype(&cuDevSmResourceSplitByCount) split;
  decltype(&cuDevResourceGenerateDesc) describe;
  decltype(&cuGreenCtxCreate) create;
  decltype(&cuGreenCtxDestroy) destroy;
  decltype(&cuCtxFromGreenCtx) context_of;
  decltype(&cuGreenCtxStreamCreate) create_stream;
};

/// A failure says which driver is needed.
const Driver& driver();

}  // namespace baton::cuda
