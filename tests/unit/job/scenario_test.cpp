#include "baton/job/scenario.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace baton::job {
namespace {

namespace fs = std::filesystem;

/// The time of a step by a program that issues forwards more slowly than the GPU runs them, and backwards without delay.
std::int64_t step_of(const std::string& waits, std::int64_t micro_batches) {
  const fs::path profile = fs::path(testing::TempDir()) / "profile.toml";
  std::ofstream(profile) << "[host]\nforward = \"100us\"\nrecompute = \"0us\"\nbackward = \"0us\"\n" << waits;
  JobSpec spec;
  spec.model = "mlp:dim=2048,depth=4";
  spec.cluster = "pcie-4";
  spec.devices = 1;
  spec.batch = 4096 * micro_batches;
  spec.micro_batches = micro_batches;
  spec.software = profile.string();
  return Scenario(spec).step().duration.count;
}

TEST(Software, AHostThatWaitsForItsDeviceBeforeEachBatchLosesItsLead) {
  const std::string ahead = "waits = true\n";
  const std::string waiting = "waits = true\nwaits_for_batches = true\n";
  EXPECT_EQ(step_of(ahead, 1), step_of(waiting, 1)) << "nothing comes before the only batch";
  EXPECT_GT(step_of(waiting, 4), step_of(ahead, 4));
  EXPECT_EQ(step_of("waits_for_batches = true\n", 4), step_of("", 4)) << "it goes with waits = true";
}

}  // namespace
}  // namespace baton::job
