#include "baton/cuda/status.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"

namespace baton::cuda {
namespace {

template <typename Status>
std::string said(Status status) {
  try {
    require(status, "a step");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Status, SaysWhatFailedAndWhatToDoWhereAGpuIsLost) {
  EXPECT_EQ(said(cudaSuccess), "");
  EXPECT_NE(said(cudaErrorLaunchFailure).find("the GPU failed at a step"), std::string::npos);
  for (const cudaError_t lost : {cudaErrorECCUncorrectable, cudaErrorDevicesUnavailable, cudaErrorNvlinkUncorrectable,
                                 cudaErrorHardwareStackError, cudaErrorUnknown}) {
    EXPECT_NE(said(lost).find("the GPU was lost at a step"), std::string::npos);
    EXPECT_NE(said(lost).find("checkpoint"), std::string::npos);
  }
}

TEST(Status, TheDriversOwnErrorsAreToldAlike) {
  EXPECT_EQ(said(CUDA_SUCCESS), "");
  EXPECT_EQ(said(CUDA_ERROR_LAUNCH_FAILED), said(cudaErrorLaunchFailure));
  EXPECT_EQ(said(CUDA_ERROR_ECC_UNCORRECTABLE), said(cudaErrorECCUncorrectable));
  EXPECT_EQ(said(CUDA_ERROR_NVLINK_UNCORRECTABLE), said(cudaErrorNvlinkUncorrectable));
}

}  // namespace
}  // namespace baton::cuda
