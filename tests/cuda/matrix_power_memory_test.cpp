#include <gtest/gtest.h>

#include "baton/cuda/launch.h"
#include "baton/measure/matrix_power.h"
#include "baton/plan/target.h"
#include "baton/plan/verify.h"

namespace baton::cuda {
namespace {

/// What a GPU's arena takes for A¹⁰ + B¹⁰ of 10000 rows: planned by the backend's own workspaces, so no GPU is needed.
Bytes arena(strategy::Precision precision) {
  const Capability h200{.code = 90, .shared_bytes = 227 * 1024};
  const plan::Target target{.workspace = [=](std::span<const plan::Buffer> buffers, const plan::Task& task, std::size_t) {
    return launch_workspace(buffers, task, h200);
  }};
  const cluster::Cluster whole({cluster::Device{"cuda:0", {}, Bytes(std::int64_t{100} << 30)}});
  const plan::Verdict verdict = plan::verify(measure::matrix_power_plan(10000, 10, whole, target, precision));
  EXPECT_TRUE(verdict.holds());
  return verdict.memory.peak[0];
}

constexpr std::int64_t matrix = 4 * 10000 * 10000;
constexpr std::int64_t most_workspace = (32 << 20) + 4096;
/// What PyTorch takes for the same on an H200 (docs/performance.md).
constexpr std::int64_t peer = std::int64_t{2324} << 20;

TEST(MatrixPowerMemory, InTf32FiveMatricesAndAWorkspaceAreHeld) {
  EXPECT_GE(arena(strategy::Precision::tf32), Bytes(5 * matrix));
  EXPECT_LE(arena(strategy::Precision::tf32), Bytes(5 * matrix + most_workspace));
  EXPECT_LT(arena(strategy::Precision::tf32), Bytes(peer));
}

TEST(MatrixPowerMemory, InFp32ATurnedOperandIsTheSixth) {
  EXPECT_GE(arena(strategy::Precision::fp32), Bytes(6 * matrix));
  EXPECT_LE(arena(strategy::Precision::fp32), Bytes(6 * matrix + most_workspace));
  EXPECT_LT(arena(strategy::Precision::fp32), Bytes(peer));
}

}  // namespace
}  // namespace baton::cuda
