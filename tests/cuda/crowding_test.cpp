#include "baton/lab/crowding.h"

#include "baton/exec/devices.h"
#include "cuda/device_array.h"

namespace baton::lab {
namespace {

TEST(CrowdingOnGpu, PartsOfOneGpuAreMeasuredOnceAndTakeNoLessThanAlone) {
  BATON_NEEDS_GPU();
  const cluster::Machine machine = cluster::probe();
  const cluster::Cluster cut(exec::open_devices("cuda:0/4", machine));
  const auto backend = exec::make_backend("cuda");
  const std::optional<Crowding> seen = crowding(cut, *backend, strategy::Precision::tf32);
  ASSERT_TRUE(seen.has_value());
  EXPECT_EQ(seen->parts, 4U);
  EXPECT_GT(seen->multiprocessors, 0);
  EXPECT_GT(seen->alone.count, 0);
  EXPECT_GT(static_cast<double>(seen->beside.count), 0.97 * static_cast<double>(seen->alone.count));
  const std::optional<Crowding> again = crowding(cut, *backend, strategy::Precision::tf32);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->alone, seen->alone);
  EXPECT_EQ(again->beside, seen->beside);
}

TEST(CrowdingOnGpu, AWholeGpuHasNone) {
  BATON_NEEDS_GPU();
  const cluster::Cluster whole(exec::open_devices("cuda:0", cluster::probe()));
  EXPECT_FALSE(crowding(whole, *exec::make_backend("cuda"), strategy::Precision::tf32).has_value());
}

}  // namespace
}  // namespace baton::lab
