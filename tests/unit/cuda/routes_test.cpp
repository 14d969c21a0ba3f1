#include "baton/cuda/routes.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <tuple>

#include "agree/thread_world.h"
#include "baton/base/error.h"
#include "baton/exec/rank_run.h"
#include "unit/cuda/planned.h"

/// What ranks with GPUs agree upon, as far as that takes no GPU: how meetings cross, and who joins whom.
namespace baton::cuda {
namespace {

using test::Gpus;
using test::Planned;

const Gpus whole_gpus{};
const Gpus of_three_ranks{.ranks = 3};
const Gpus one_gpu{.same = true};
const Gpus halves{.of = 2};
const Gpus quarters{.of = 4, .used = 2};

std::set<MeetingRoute> routes_of(const Planned& planned, NcclReach reach) {
  const std::vector<MeetingRoute> routes = choose_routes(planned.plan, planned.cluster, reach);
  EXPECT_EQ(routes.size(), planned.plan.meeting_count());
  return {routes.begin(), routes.end()};
}

TEST(Routes, NcclJoinsWholeGpusOfTheirOwnAndAllElseGoesThroughTheHosts) {
  const NcclReach whole = NcclReach::whole_gpus;
  EXPECT_EQ(routes_of(Planned("ddp", whole_gpus), whole), std::set{MeetingRoute::nccl});
  EXPECT_EQ(routes_of(Planned("ddp", whole_gpus), NcclReach::nothing), std::set{MeetingRoute::staged});
  EXPECT_EQ(routes_of(Planned("ddp", one_gpu), whole), std::set{MeetingRoute::staged}) << "two ranks on one GPU";
  EXPECT_EQ(routes_of(Planned("ddp", halves), whole), std::set{MeetingRoute::staged}) << "parts of a GPU";
  EXPECT_EQ(routes_of(Planned("layers", whole_gpus), whole), std::set{MeetingRoute::nccl}) << "transfers too";
  EXPECT_EQ(routes_of(Planned("layers", quarters), whole), (std::set{MeetingRoute::here, MeetingRoute::staged}))
      << "between devices of one rank";
  EXPECT_EQ(routes_of(Planned("ddp", of_three_ranks), whole), std::set{MeetingRoute::staged}) << "two of three share a GPU";
  Planned apart("ddp", halves);
  std::vector<cluster::Device> devices = apart.cluster.devices();
  devices[1].gpu->unit = 1;
  apart.cluster = cluster::Cluster(devices);
  EXPECT_EQ(routes_of(apart, whole), std::set{MeetingRoute::staged}) << "parts of two GPUs";
}

TEST(Routes, NcclJoinsOneMemberPerRankOfASharedGpuOnlyIfTheEnvironmentAsksForIt) {
  const NcclReach all = NcclReach::all_ranks;
  EXPECT_EQ(routes_of(Planned("ddp", whole_gpus), all), std::set{MeetingRoute::nccl}) << "whole GPUs as always";
  EXPECT_EQ(routes_of(Planned("ddp", one_gpu), all), std::set{MeetingRoute::nccl}) << "two ranks on one GPU";
  EXPECT_EQ(routes_of(Planned("ddp", halves), all), std::set{MeetingRoute::nccl}) << "parts of a GPU";
  EXPECT_EQ(routes_of(Planned("ddp", quarters), all), std::set{MeetingRoute::staged})
      << "NCCL refuses two members of a rank on one GPU";
  EXPECT_EQ(routes_of(Planned("layers", quarters), all), (std::set{MeetingRoute::here, MeetingRoute::nccl}))
      << "a transfer has one of each rank";
}

TEST(Routes, TheEnvironmentSaysWhatNcclCarriesAndOtherWordsAreRefused) {
  EXPECT_EQ(wanted_reach(nullptr, true), NcclReach::whole_gpus);
  EXPECT_EQ(wanted_reach("", true), NcclReach::whole_gpus);
  EXPECT_EQ(wanted_reach(nullptr, false), NcclReach::nothing);
  EXPECT_EQ(wanted_reach("staged", true), NcclReach::nothing);
  EXPECT_EQ(wanted_reach("nccl", true), NcclReach::all_ranks);
  for (const auto& [word, has_nccl, sentence] :
       {std::tuple("fast", true, "BATON_CUDA_RANKS is 'fast': it may be staged or nccl, or not set"),
        std::tuple("nccl", false, "BATON_CUDA_RANKS is nccl, but libnccl.so.2 is not found: add its folder to LD_LIBRARY_PATH")}) {
    try {
      wanted_reach(word, has_nccl);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      EXPECT_EQ(std::string(error.what()), sentence);
    }
  }
}

TEST(Routes, WhatOneRankDoesNotSayNobodyDoes) {
  for (const int silent : {-1, 0, 2}) {
    baton::test::run_as_ranks(3, [&](ranks::World& world) {
      const NcclReach mine = world.rank() == silent ? NcclReach::whole_gpus : NcclReach::all_ranks;
      EXPECT_EQ(agree_on(world, mine), silent == -1 ? NcclReach::all_ranks : NcclReach::whole_gpus);
    });
  }
}

TEST(Routes, NcclIsToldThatEachRankOfASharedGpuIsAHostOfItsOwn) {
  std::mutex mutex;
  std::set<std::string> ids;
  baton::test::run_as_ranks(4, [&](ranks::World& world) {
    const std::vector<std::pair<std::string, std::string>> variables = host_variables(world);
    const std::lock_guard lock(mutex);
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[0].first, "NCCL_HOSTID");
    ids.insert(variables[0].second);
    EXPECT_EQ(variables[1], std::pair(std::string("NCCL_SOCKET_IFNAME"), std::string("lo"))) << "all are on one node";
  });
  EXPECT_EQ(ids.size(), 4U);
}

/// Stands in for NCCL: remembers who joined under which id.
class Register final : public CommunicatorFactory {
 public:
  struct Entry {
    std::size_t group;
    ranks::Blob id;
    std::size_t size;
    std::vector<GroupMember> members;
  };

  explicit Register(int rank) : rank_(rank) {}
  ranks::Blob make_id() override { return ranks::to_blob("rank " + std::to_string(rank_) + " number " + std::to_string(made_++)); }
  void join(std::size_t group, const ranks::Blob& id, std::size_t size, const std::vector<GroupMember>& members) override {
    entries.push_back({group, id, size, members});
  }

  std::vector<Entry> entries;

 private:
  int rank_;
  int made_ = 0;
};

TEST(Routes, EverySetOfGpusIsJoinedOnceUnderOneIdByAllItsMembersInOneOrder) {
  for (const std::string strategy : {"ddp", "layers", "1f1b", "zero-2"}) {
    const Planned planned(strategy, whole_gpus);
    const std::vector<MeetingRoute> routes = choose_routes(planned.plan, planned.cluster, NcclReach::whole_gpus);
    const std::vector<int> ranks_of_devices = exec::ranks_of(planned.cluster);
    std::vector<std::vector<Register::Entry>> entries(2);
    std::vector<std::vector<std::size_t>> groups(2);
    baton::test::run_as_ranks(2, [&](ranks::World& world) {
      Register factory(world.rank());
      groups[static_cast<std::size_t>(world.rank())] = join_groups(planned.plan, routes, ranks_of_devices, world, factory);
      entries[static_cast<std::size_t>(world.rank())] = factory.entries;
    });
    EXPECT_EQ(groups[0], groups[1]);
    ASSERT_EQ(entries[0].size(), entries[1].size()) << "here every set has a member on each";
    ASSERT_GE(entries[0].size(), 1U);
    std::set<std::string> ids;
    for (std::size_t e = 0; e < entries[0].size(); ++e) {
      EXPECT_EQ(entries[0][e].id, entries[1][e].id);
      EXPECT_EQ(entries[0][e].group, entries[1][e].group);
      EXPECT_EQ(entries[0][e].size, 2U);
      EXPECT_NE(entries[0][e].members.at(0).member, entries[1][e].members.at(0).member);
      ids.insert(ranks::to_text(entries[0][e].id));
    }
    EXPECT_EQ(ids.size(), entries[0].size()) << "no id is used twice";
    EXPECT_LE(entries[0].size(), 3U) << "sets, and not meetings, are joined";
  }
}

}  // namespace
}  // namespace baton::cuda
