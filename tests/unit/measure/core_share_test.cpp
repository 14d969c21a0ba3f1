#include "baton/measure/core_share.h"

#include <gtest/gtest.h>

#include "baton/devices/backends.h"
#include "baton/exec/backend.h"
#include "baton/exec/executor.h"
#include "baton/plan/verify.h"

namespace baton::measure {
namespace {

TEST(CoreShare, IsMeasuredByPlansThatObeyTheLawAndRun) {
  const cluster::Cluster cluster({{"a", {0}, Bytes(1 << 28)}, {"b", {0}, Bytes(1 << 28)}, {"c", {0}, Bytes(1 << 28)}});
  const std::unique_ptr<exec::Backend> backend = devices::make_backend("cpu");
  for (const std::int64_t gathers : {0, 1, 5}) {
    const plan::Plan plan = products_beside_messages(3, gathers, 4096, cluster, backend->target());
    EXPECT_TRUE(plan::verify(plan, exec::limits(plan, cluster, *backend)).holds()) << gathers;
    exec::Executor(plan, cluster, *backend).run({.steps = 1, .warmup = 0});
    EXPECT_EQ(plan.meeting_count(), static_cast<std::size_t>(gathers));
    EXPECT_EQ(plan.lane(DeviceId(1), plan::Lane::compute).size(), 3U);
    EXPECT_EQ(plan.lane(DeviceId(1), plan::Lane::communication).size(), static_cast<std::size_t>(gathers));
  }
}

TEST(CoreShare, IsNothingWhereAllDevicesAreInOneProcess) {
  const cluster::Cluster cluster({{"a", {0}, Bytes(1 << 20)}, {"b", {0}, Bytes(1 << 20)}});
  EXPECT_EQ(measure_core_share(cluster, *devices::make_backend("reference"), 1e9, ranks::make_world_of_one()), 0);
}

}  // namespace
}  // namespace baton::measure
