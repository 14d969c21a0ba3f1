#include <gtest/gtest.h>

#include "agree/thread_world.h"
#include "baton/devices/devices.h"

/// Which GPUs the ranks of a machine get, which takes no GPU to be tested.
namespace baton::devices {
namespace {

const std::vector<cluster::Gpu> two_gpus{{"a GPU", Bytes(8000), 132, "0000:01:00.0"}, {"a GPU", Bytes(8000), 132, "0000:02:00.0"}};

/// The devices that all of some ranks of one machine come to.
std::vector<cluster::Device> deal(int ranks, const std::string& words, std::optional<Bytes> memory = {}) {
  std::vector<std::vector<cluster::Device>> lists(static_cast<std::size_t>(ranks));
  baton::test::run_as_ranks(ranks, [&](ranks::World& world) {
    lists[static_cast<std::size_t>(world.rank())] = open_gpus_of_ranks(cluster::parse_gpu_names(words), two_gpus, memory, world);
  });
  for (const std::vector<cluster::Device>& list : lists) {
    EXPECT_EQ(list.size(), lists[0].size());
    for (std::size_t d = 0; d < list.size(); ++d) {
      EXPECT_EQ(list[d].gpu, lists[0][d].gpu);
      EXPECT_EQ(list[d].memory, lists[0][d].memory);
    }
  }
  return lists[0];
}

TEST(GpusOfRanks, EachHasAGpuOfItsOwnWhileThereAreEnough) {
  const std::vector<cluster::Device> devices = deal(2, "cuda");
  ASSERT_EQ(devices.size(), 2U);
  for (int r = 0; r < 2; ++r) {
    const cluster::Device& device = devices[static_cast<std::size_t>(r)];
    EXPECT_EQ(device.name, "cuda:" + std::to_string(r));
    EXPECT_EQ(device.rank, r);
    EXPECT_EQ(device.gpu, (cluster::GpuPart{r, 0, 1, 132, r}));
    EXPECT_EQ(device.memory, Bytes(8000));
  }
}

TEST(GpusOfRanks, MoreRanksThanGpusShareThemAndTheirMemory) {
  const std::vector<cluster::Device> devices = deal(3, "cuda");
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[2].gpu->unit, devices[0].gpu->unit);
  EXPECT_EQ(devices[0].memory, Bytes(4000));
  EXPECT_EQ(devices[1].memory, Bytes(8000));
  EXPECT_EQ(cluster::Cluster(devices).most_ranks_on_a_gpu(), 2U);
}

TEST(GpusOfRanks, PartsAreWhatTheWordsSayOnEveryRank) {
  const std::vector<cluster::Device> devices = deal(2, "cuda:0/4:2");
  ASSERT_EQ(devices.size(), 4U);
  EXPECT_EQ(devices[3].rank, 1);
  EXPECT_EQ(devices[3].gpu, (cluster::GpuPart{0, 1, 4, 33, 0}));
  EXPECT_EQ(devices[3].memory, Bytes(1000)) << "a quarter of the GPU, which two ranks share";
  EXPECT_EQ(deal(2, "cuda:0/4:2", Bytes(77))[3].memory, Bytes(77));
}

}  // namespace
}  // namespace baton::devices
