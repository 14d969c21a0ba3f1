#include "baton/job/scenario.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "baton/job/sentences.h"

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

TEST(Scenario, TakesAStrategyOfTheProgramsOwn) {
  JobSpec spec;
  spec.model = "mlp:dim=8,depth=4";
  spec.cluster = "ideal";
  spec.devices = 4;
  spec.strategy = {"own", "the same as dp",
                   [](const strategy::Request& request) { return strategy::Strategy("dp").build(request); }};
  const Scenario scenario(spec);
  EXPECT_FALSE(is_pipeline(scenario.request()));
  EXPECT_TRUE(scenario.laid().plan.title().starts_with("own of mlp:dim=8,depth=4"));
  EXPECT_FALSE(findings_of(scenario, scenario.sensitivities()).empty());

  spec.strategy = {"own", "a pipeline", strategy::NamedLayout{.rest = strategy::NamedLayout::Axis::pp, .schedule = "1f1b"}};
  const Scenario pipeline(spec);
  EXPECT_TRUE(is_pipeline(pipeline.request()));
  EXPECT_TRUE(pipeline.laid().plan.title().starts_with("own of mlp:dim=8,depth=4"));
}

}  // namespace
}  // namespace baton::job
