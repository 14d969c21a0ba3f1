#include "baton/devices/devices.h"

#include <gtest/gtest.h>

#include "agree/thread_world.h"
#include "support/usage_sentence.h"

namespace baton::devices {
namespace {

cluster::Machine machine(std::vector<int> cores) {
  return {.host = "here", .cpu = "", .cores = std::move(cores), .memory = Bytes(1200), .cache = Bytes(0)};
}

TEST(Devices, RanksThatMayUseTheSameCoresDivideThem) {
  baton::test::run_as_ranks(3, [](ranks::World& world) {
    const cluster::Machine share = share_of(machine({0, 1, 2, 3, 4, 5}), world);
    EXPECT_EQ(share.cores, (std::vector<int>{2 * world.rank(), 2 * world.rank() + 1}));
    EXPECT_EQ(share.memory.count, 400);
  });
}

TEST(Devices, RanksThatWereBoundToCoresOfTheirOwnKeepThem) {
  baton::test::run_as_ranks(2, [](ranks::World& world) {
    const std::vector<int> own{world.rank() + 4};
    const cluster::Machine share = share_of(machine(own), world);
    EXPECT_EQ(share.cores, own);
    EXPECT_EQ(share.memory.count, 600) << "the memory is one";
  });
}

TEST(Devices, ThoseOfAllRanksAreOneListInTheOrderOfTheRanksOnEveryRank) {
  baton::test::run_as_ranks(2, [](ranks::World& world) {
    const auto devices = open_devices_of_ranks("cpu:2", machine({2 * world.rank(), 2 * world.rank() + 1}), Bytes(77), world);
    ASSERT_EQ(devices.size(), 4U);
    for (int d = 0; d < 4; ++d) {
      const cluster::Device& device = devices[static_cast<std::size_t>(d)];
      EXPECT_EQ(device.name, "cpu:" + std::to_string(d));
      EXPECT_EQ(device.rank, d / 2);
      EXPECT_EQ(device.cores, std::vector<int>{d});
      EXPECT_EQ(device.memory.count, 77);
    }
  });
}

TEST(Devices, ARankAloneHasThoseOfItsMachine) {
  const std::unique_ptr<ranks::World> world = ranks::make_world_of_one();
  EXPECT_EQ(open_devices_of_ranks("cpu:2", machine({0, 1}), std::nullopt, *world).size(), 2U);
  EXPECT_EQ(open_devices("cpu", machine({0, 1}))[0].cores, (std::vector<int>{0, 1}));
  EXPECT_EQ(open_devices(cluster::CpuNames{.count = 2}, machine({0, 1}))[1].cores, (std::vector<int>{1}));
  EXPECT_EQ(share_of(machine({0, 1}), *world).cores, (std::vector<int>{0, 1}));
}

TEST(Devices, TheBackendIsTheOneThatRunsThem) {
  const std::vector<cluster::Device> cores{{"cpu:0", {0}, Bytes(1)}};
  std::vector<cluster::Device> gpus{{"cuda:0", {}, Bytes(1)}};
  gpus[0].gpu = cluster::GpuPart{};
  EXPECT_EQ(backend_for(cores, "").name, "cpu");
  EXPECT_EQ(backend_for(gpus, "").name, "cuda");
  EXPECT_EQ(backend_for(cores, "reference").name, "reference");
  EXPECT_EQ(backend_for(gpus, "CUDA").name, "cuda");
  EXPECT_EQ(baton::test::usage_sentence([&] { backend_for(gpus, "referense"); }),
            baton::test::usage_sentence([] { make_backend("referense"); }));
  EXPECT_TRUE(baton::test::says(baton::test::usage_sentence([&] { backend_for(cores, "cuda"); }), "--devices cuda"));
  EXPECT_TRUE(baton::test::says(baton::test::usage_sentence([&] { backend_for(gpus, "cpu"); }), "--devices cpu"));
}

}  // namespace
}  // namespace baton::devices
