#include "baton/lab/part_slowdown.h"

#include "baton/training/job.h"
#include "cuda/device_array.h"

namespace baton::lab {
namespace {

training::Job job_on(const std::string& devices) {
  job::JobSpec spec;
  spec.model = "mlp:dim=1024,depth=2";
  spec.strategy = "ddp";
  spec.devices = devices;
  return training::Job(spec, cluster::probe());
}

TEST(CrowdingOnGpu, PartsOfOneGpuTakeNoLessThanAloneAndAStepOfSeparateOnesIsSimulated) {
  BATON_NEEDS_GPU();
  const training::Job job = job_on("cuda:0/4");
  const std::optional<PartSlowdown> seen = part_slowdown(job.compile(), job);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->parts, 4U);
  EXPECT_GT(seen->multiprocessors, 0);
  EXPECT_GT(seen->alone.count, 0);
  EXPECT_GT(static_cast<double>(seen->beside.count), 0.9 * static_cast<double>(seen->alone.count));
  EXPECT_GE(seen->separate, seen->alone);
}

TEST(CrowdingOnGpu, AWholeGpuHasNone) {
  BATON_NEEDS_GPU();
  const training::Job job = job_on("cuda:0");
  EXPECT_FALSE(part_slowdown(job.compile(), job).has_value());
}

}  // namespace
}  // namespace baton::lab
