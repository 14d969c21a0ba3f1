#include "baton/ranks/world.h"

#include <gtest/gtest.h>

#include <map>

namespace baton::ranks {
namespace {

Launch found_in(const std::map<std::string, std::string>& environment) {
  return find_launch([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, AProcessThatNobodyLaunchedIsAlone) {
  EXPECT_EQ(found_in({}).ranks, 1);
  EXPECT_EQ(found_in({{"HOME", "/"}}).launcher, "");
}

TEST(Launch, MpirunMpiexecAndSrunSayHowManyRanksThereAre) {
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "4"}}).ranks, 4);
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "4"}}).launcher, "mpirun");
  EXPECT_EQ(found_in({{"PMI_SIZE", "3"}}).ranks, 3);
  EXPECT_EQ(found_in({{"SLURM_STEP_NUM_TASKS", "2"}}).launcher, "srun");
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "1"}}).ranks, 1);
}

TEST(Launch, ABatchScriptOfSlurmIsNoRank) { EXPECT_EQ(found_in({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).ranks, 1); }

TEST(Launch, WhereTheNumberIsNotSaidThereMayBeSeveral) {
  EXPECT_EQ(found_in({{"PMIX_RANK", "0"}}).ranks, 0);
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "many"}}).ranks, 1);
}

TEST(World, OfOneHandsBackWhatItWasGiven) {
  const std::unique_ptr<World> world = make_world_of_one();
  EXPECT_TRUE(world->alone());
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->all_gather(to_blob("mine")), std::vector<Blob>{to_blob("mine")});
  EXPECT_EQ(world->gather(to_blob("mine")), std::vector<Blob>{to_blob("mine")});
  Blob blob = to_blob("mine");
  world->broadcast(blob, 0);
  EXPECT_EQ(to_text(blob), "mine");
  world->barrier();
  EXPECT_TRUE(world->poll());
  EXPECT_FALSE(world->hosts()[0].host.empty());
}

}  // namespace
}  // namespace baton::ranks
