#pragma once

#include <cuda.h>

namespace baton::cuda {

/// The functions of CUDA's driver that parts of GPUs need. Found at run time, so that a program built with CUDA starts
/// on a machine without a driver too.
struct Driver {
  decltype(&::cuDeviceGet) cuDeviceGet;
  decltype(&::cuCtxSetCurrent) cuCtxSetCurrent;
  decltype(&::cuDeviceGetDevResource) cuDeviceGetDevResource;
  decltype(&::cuDevSmResourceSplitByCount) cuDevSmResourceSplitByCount;
  decltype(&::cuDevResourceGenerateDesc) cuDevResourceGenerateDesc;
  decltype(&::cuGreenCtxCreate) cuGreenCtxCreate;
  decltype(&::cuGreenCtxDestroy) cuGreenCtxDestroy;
  decltype(&::cuCtxFromGreenCtx) cuCtxFromGreenCtx;
  decltype(&::cuGreenCtxStreamCreate) cuGreenCtxStreamCreate;
};

/// A failure says which driver is needed.
const Driver& driver();

}  // namespace baton::cuda
