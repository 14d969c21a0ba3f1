#include "baton/exec/host/host_engine.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "unit/ranks/lonely_world.h"

namespace baton::exec {
namespace {

constexpr Nanoseconds millisecond(1'000'000);

/// Devices that do nothing but be late, each by itself.
plan::Plan late(int devices, Nanoseconds delay) {
  plan::Draft draft{.title = "", .devices = {}, .buffers = {}, .tasks = {}};
  for (int d = 0; d < devices; ++d) {
    draft.devices.push_back("cpu:" + std::to_string(d));
    draft.tasks.push_back({.action = plan::Delay{delay}, .device = DeviceId(static_cast<std::size_t>(d))});
  }
  return plan::finish(std::move(draft));
}

/// One device per rank.
cluster::Cluster cores(int devices) {
  std::vector<cluster::Device> list;
  for (int d = 0; d < devices; ++d) {
    list.push_back({.name = "cpu:" + std::to_string(d), .cores = {0}, .memory = Bytes(1 << 20), .rank = d});
  }
  return cluster::Cluster(list);
}

TEST(HostEngine, WhereTheCallersProgressThrowsInAStepNothingMoreIsSharedWithOtherRanks) {
  const auto world = std::make_shared<ranks::test::LonelyWorld>();
  const cluster::Cluster cluster = cores(2);
  const plan::Plan plan = late(2, millisecond * 500);
  const auto backend = make_reference_backend();
  Executor executor(plan, cluster, *backend, {}, world);
  int before = 0;
  const auto progress = [&](std::int64_t, const RunResult&) -> bool {
    before = world->gatherings;
    throw std::runtime_error("enough");
  };
  EXPECT_THROW(executor.run({.steps = 10, .warmup = 0}, progress), std::runtime_error);
  EXPECT_GT(before, 0);
  EXPECT_EQ(world->gatherings, before) << "the others would have been waited for";
}

TEST(HostEngine, KeepsTheWorldOfItsRanksForAsLongAsItLives) {
  const cluster::Cluster cluster = cores(2);
  const plan::Plan plan = late(2, millisecond);
  const auto backend = make_reference_backend();
  std::shared_ptr<ranks::World> world = std::make_shared<ranks::test::LonelyWorld>();
  const std::weak_ptr<ranks::World> seen = world;
  auto executor = std::make_unique<Executor>(plan, cluster, *backend, DataOptions{}, std::move(world));
  EXPECT_EQ(executor->run({.steps = 2, .warmup = 0}).losses.size(), 2U);
  EXPECT_FALSE(seen.expired());
  executor.reset();
  EXPECT_TRUE(seen.expired());
}

/// Those who watch over the ranks would take it for hung.
TEST(HostEngine, ADeviceThatWaitsForAMomentLooksAroundMeanwhile) {
  const std::shared_ptr<ranks::World> world = ranks::make_world_of_one();
  const cluster::Cluster cluster = cores(1);
  const plan::Plan plan = late(1, millisecond * 1000);
  const auto backend = make_reference_backend();
  Executor executor(plan, cluster, *backend, {}, world);
  std::thread run([&] { executor.run({.steps = 1, .warmup = 0}); });
  const auto counts = [&] { return world->progress()->snapshot().devices[0]; };
  while (counts().lanes[0] == 0) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::uint64_t before = counts().looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const ranks::DeviceProgress::Counts after = counts();
  EXPECT_EQ(after.lanes[0], 1U) << "it is still at it";
  EXPECT_GT(after.looks, before);
  run.join();
}

}  // namespace
}  // namespace baton::exec
