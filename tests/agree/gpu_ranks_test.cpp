#include <cstring>
#include <mutex>
#include <set>
#include <tuple>

#include "agree/thread_world.h"
#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/devices/devices.h"
#include "baton/exec/rank_run.h"
#include "baton/exec/transport/dealing.h"
#include "baton/exec/transport/gpus.h"
#include "baton/exec/transport/nccl_calls.h"
#include "baton/model/zoo.h"

/// What ranks with GPUs agree upon, as far as that takes no GPU: which are theirs, how meetings cross, who joins whom, and what
/// NCCL is asked for.
namespace baton::test {
namespace {

using exec::MeetingRoute;
using exec::NcclCall;
using exec::NcclReach;

const std::vector<cluster::Gpu> two_gpus{{"a GPU", Bytes(8000), 132, "0000:01:00.0"}, {"a GPU", Bytes(8000), 132, "0000:02:00.0"}};

/// The devices that all of some ranks of one machine come to.
std::vector<cluster::Device> deal(int ranks, const std::string& words, std::optional<Bytes> memory = {}) {
  std::vector<std::vector<cluster::Device>> lists(static_cast<std::size_t>(ranks));
  run_as_ranks(ranks, [&](ranks::World& world) {
    lists[static_cast<std::size_t>(world.rank())] = devices::open_gpus_of_ranks(cluster::parse_gpu_names(words), two_gpus, memory,
                                                                                world);
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

TEST(GpuRanks, EachHasAGpuOfItsOwnWhileThereAreEnough) {
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

TEST(GpuRanks, MoreRanksThanGpusShareThemAndTheirMemory) {
  const std::vector<cluster::Device> devices = deal(3, "cuda");
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[2].gpu->unit, devices[0].gpu->unit);
  EXPECT_EQ(devices[0].memory, Bytes(4000));
  EXPECT_EQ(devices[1].memory, Bytes(8000));
  EXPECT_EQ(cluster::Cluster(devices).most_ranks_on_a_gpu(), 2U);
}

TEST(GpuRanks, PartsAreWhatTheWordsSayOnEveryRank) {
  const std::vector<cluster::Device> devices = deal(2, "cuda:0/4:2");
  ASSERT_EQ(devices.size(), 4U);
  EXPECT_EQ(devices[3].rank, 1);
  EXPECT_EQ(devices[3].gpu, (cluster::GpuPart{0, 1, 4, 33, 0}));
  EXPECT_EQ(devices[3].memory, Bytes(1000)) << "a quarter of the GPU, which two ranks share";
  EXPECT_EQ(deal(2, "cuda:0/4:2", Bytes(77))[3].memory, Bytes(77));
}

/// A plan of collectives and transfers over four devices of two ranks.
struct Planned {
  explicit Planned(const std::string& strategy, const std::string& words, int ranks = 2)
      : cluster(deal(ranks, words)),
        plan(strategy::compile({.model = model,
                                .cluster = cluster,
                                .strategy = strategy,
                                .step = {.global_batch = 8, .optimizer = op::Sgd{.rate = 0.1}},
                                .layout = {},
                                .target = {.all_reduce_with_sgd = true},
                                .delays = {}})),
        rank_of_device(exec::ranks_of(cluster)) {}

  model::Model model = model::mlp({6, 7, 5, 6, 5, 7, 6});
  cluster::Cluster cluster;
  plan::Plan plan;
  std::vector<int> rank_of_device;
};

std::set<MeetingRoute> routes_of(const Planned& planned, NcclReach reach) {
  const std::vector<MeetingRoute> routes = exec::choose_routes(planned.plan, planned.cluster, reach);
  EXPECT_EQ(routes.size(), planned.plan.meeting_count());
  return {routes.begin(), routes.end()};
}

TEST(GpuRanks, NcclJoinsWholeGpusOfTheirOwnAndAllElseGoesThroughTheHosts) {
  const NcclReach whole = NcclReach::whole_gpus;
  EXPECT_EQ(routes_of(Planned("ddp", "cuda"), whole), std::set{MeetingRoute::nccl});
  EXPECT_EQ(routes_of(Planned("ddp", "cuda"), NcclReach::nothing), std::set{MeetingRoute::staged});
  EXPECT_EQ(routes_of(Planned("ddp", "cuda:0"), whole), std::set{MeetingRoute::staged}) << "two ranks on one GPU";
  EXPECT_EQ(routes_of(Planned("ddp", "cuda:0/2:1"), whole), std::set{MeetingRoute::staged}) << "parts of a GPU";
  EXPECT_EQ(routes_of(Planned("layers", "cuda"), whole), std::set{MeetingRoute::nccl}) << "transfers too";
  EXPECT_EQ(routes_of(Planned("layers", "cuda:0/4:2"), whole), (std::set{MeetingRoute::here, MeetingRoute::staged}))
      << "between devices of one rank";
  EXPECT_EQ(routes_of(Planned("ddp", "cuda", 3), whole), std::set{MeetingRoute::staged}) << "two of three share a GPU";
  Planned apart("ddp", "cuda:0/2:1");
  std::vector<cluster::Device> devices = apart.cluster.devices();
  devices[1].gpu->unit = 1;
  apart.cluster = cluster::Cluster(devices);
  EXPECT_EQ(routes_of(apart, whole), std::set{MeetingRoute::staged}) << "parts of two GPUs";
}

TEST(GpuRanks, NcclJoinsOneMemberPerRankOfASharedGpuOnlyIfTheEnvironmentAsksForIt) {
  const NcclReach all = NcclReach::all_ranks;
  EXPECT_EQ(routes_of(Planned("ddp", "cuda"), all), std::set{MeetingRoute::nccl}) << "whole GPUs as always";
  EXPECT_EQ(routes_of(Planned("ddp", "cuda:0"), all), std::set{MeetingRoute::nccl}) << "two ranks on one GPU";
  EXPECT_EQ(routes_of(Planned("ddp", "cuda:0/2:1"), all), std::set{MeetingRoute::nccl}) << "parts of a GPU";
  EXPECT_EQ(routes_of(Planned("ddp", "cuda:0/4:2"), all), std::set{MeetingRoute::staged})
      << "NCCL refuses two members of a rank on one GPU";
  EXPECT_EQ(routes_of(Planned("layers", "cuda:0/4:2"), all), (std::set{MeetingRoute::here, MeetingRoute::nccl}))
      << "a transfer has one of each rank";
}

TEST(GpuRanks, TheEnvironmentSaysWhatNcclCarriesAndOtherWordsAreRefused) {
  EXPECT_EQ(exec::wanted_reach(nullptr, true), NcclReach::whole_gpus);
  EXPECT_EQ(exec::wanted_reach("", true), NcclReach::whole_gpus);
  EXPECT_EQ(exec::wanted_reach(nullptr, false), NcclReach::nothing);
  EXPECT_EQ(exec::wanted_reach("staged", true), NcclReach::nothing);
  EXPECT_EQ(exec::wanted_reach("nccl", true), NcclReach::all_ranks);
  for (const auto& [word, has_nccl, sentence] :
       {std::tuple("fast", true, "BATON_CUDA_RANKS is 'fast': it may be staged or nccl, or not set"),
        std::tuple("nccl", false, "BATON_CUDA_RANKS is nccl, but libnccl.so.2 is not found: add its folder to LD_LIBRARY_PATH")}) {
    try {
      exec::wanted_reach(word, has_nccl);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      EXPECT_EQ(std::string(error.what()), sentence);
    }
  }
}

TEST(GpuRanks, WhatOneRankDoesNotSayNobodyDoes) {
  for (const int silent : {-1, 0, 2}) {
    run_as_ranks(3, [&](ranks::World& world) {
      const NcclReach mine = world.rank() == silent ? NcclReach::whole_gpus : NcclReach::all_ranks;
      EXPECT_EQ(exec::agree_on(world, mine), silent == -1 ? NcclReach::all_ranks : NcclReach::whole_gpus);
    });
  }
}

TEST(GpuRanks, NcclIsToldThatEachRankOfASharedGpuIsAHostOfItsOwn) {
  std::mutex mutex;
  std::set<std::string> ids;
  run_as_ranks(4, [&](ranks::World& world) {
    const std::vector<std::pair<std::string, std::string>> variables = exec::host_variables(world);
    const std::lock_guard lock(mutex);
    ASSERT_EQ(variables.size(), 2U);
    EXPECT_EQ(variables[0].first, "NCCL_HOSTID");
    ids.insert(variables[0].second);
    EXPECT_EQ(variables[1], std::pair(std::string("NCCL_SOCKET_IFNAME"), std::string("lo"))) << "all are on one node";
  });
  EXPECT_EQ(ids.size(), 4U);
}

/// Stands in for NCCL: remembers who joined under which id.
class Register final : public exec::CommunicatorFactory {
 public:
  struct Entry {
    std::size_t group;
    ranks::Blob id;
    std::size_t size;
    std::vector<exec::GroupMember> members;
  };

  explicit Register(int rank) : rank_(rank) {}
  ranks::Blob make_id() override { return ranks::to_blob("rank " + std::to_string(rank_) + " number " + std::to_string(made_++)); }
  void join(std::size_t group, const ranks::Blob& id, std::size_t size, const std::vector<exec::GroupMember>& members) override {
    entries.push_back({group, id, size, members});
  }

  std::vector<Entry> entries;

 private:
  int rank_;
  int made_ = 0;
};

TEST(GpuRanks, EverySetOfGpusIsJoinedOnceUnderOneIdByAllItsMembersInOneOrder) {
  for (const std::string strategy : {"ddp", "layers", "1f1b", "zero-2"}) {
    const Planned planned(strategy, "cuda");
    const std::vector<MeetingRoute> routes = exec::choose_routes(planned.plan, planned.cluster, NcclReach::whole_gpus);
    std::vector<std::vector<Register::Entry>> entries(2);
    std::vector<std::vector<std::size_t>> groups(2);
    run_as_ranks(2, [&](ranks::World& world) {
      Register factory(world.rank());
      groups[static_cast<std::size_t>(world.rank())] = exec::join_groups(planned.plan, routes, planned.rank_of_device, world,
                                                                         factory);
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

// ---- what NCCL is asked for, done in one memory

/// Runs the calls of all members, each in turn, as NCCL promises to.
class PretendedNccl {
 public:
  explicit PretendedNccl(std::vector<std::vector<NcclCall>> calls) : calls_(std::move(calls)) {}

  void run() {
    for (std::vector<NcclCall>& mine : calls_) {  // copies before them are not messages
      for (const NcclCall& call : mine) {
        if (is_own_copy(call)) {
          std::memcpy(call.to, call.from, static_cast<std::size_t>(call.elements) * sizeof(float));
        }
      }
      std::erase_if(mine, [](const NcclCall& call) { return is_own_copy(call); });
      ASSERT_EQ(mine.size(), calls_[0].size());
    }
    for (std::size_t c = 0; c < calls_[0].size(); ++c) {
      run(c);
    }
  }

 private:
  static bool is_own_copy(const NcclCall& call) {
    return call.move == plan::Move::copy && call.from != nullptr && call.to != nullptr;
  }

  void run(std::size_t c) {
    const NcclCall& first = calls_[0][c];
    const std::size_t members = calls_.size();
    for (std::size_t m = 1; m < members && first.move != plan::Move::copy; ++m) {
      ASSERT_EQ(calls_[m][c].move, first.move);
      ASSERT_EQ(calls_[m][c].elements, first.elements);
      ASSERT_EQ(calls_[m][c].peer, first.peer);
    }
    const auto put = [&](const std::vector<float>& values, std::byte* to) {
      std::memcpy(to, values.data(), values.size() * sizeof(float));
    };
    const auto get = [&](const std::byte* from, std::int64_t begin, std::int64_t count) {
      std::vector<float> values(static_cast<std::size_t>(count));
      std::memcpy(values.data(), from + begin * 4, values.size() * sizeof(float));
      return values;
    };
    const auto sum = [&](std::int64_t begin) {
      std::vector<float> total = get(calls_[0][c].from, begin, first.elements);
      for (std::size_t m = 1; m < members; ++m) {
        const std::vector<float> other = get(calls_[m][c].from, begin, first.elements);
        std::transform(total.begin(), total.end(), other.begin(), total.begin(), std::plus<>());
      }
      return total;
    };
    switch (first.move) {
      case plan::Move::copy:
        ASSERT_NE(first.from, nullptr) << "member 0 sends";
        ASSERT_EQ(calls_[1][c].move, plan::Move::copy);
        ASSERT_NE(calls_[1][c].to, nullptr) << "member 1 receives";
        ASSERT_EQ(first.peer, 1);
        ASSERT_EQ(calls_[1][c].peer, 0);
        put(get(first.from, 0, first.elements), calls_[1][c].to);
        break;
      case plan::Move::all_reduce: {
        const std::vector<float> total = sum(0);
        for (const std::vector<NcclCall>& mine : calls_) {
          put(total, mine[c].to);
        }
        break;
      }
      case plan::Move::broadcast: {
        const std::vector<float> values = get(calls_[static_cast<std::size_t>(first.peer)][c].from, 0, first.elements);
        for (const std::vector<NcclCall>& mine : calls_) {
          put(values, mine[c].to);
        }
        break;
      }
      case plan::Move::reduce:
        put(sum(0), calls_[static_cast<std::size_t>(first.peer)][c].to);
        break;
      case plan::Move::reduce_scatter:
        for (std::size_t m = 0; m < members; ++m) {
          put(sum(static_cast<std::int64_t>(m) * first.elements), calls_[m][c].to);
        }
        break;
      case plan::Move::all_gather:
        for (std::size_t m = 0; m < members; ++m) {
          const std::vector<float> piece = get(calls_[m][c].from, 0, first.elements);
          for (const std::vector<NcclCall>& mine : calls_) {
            put(piece, mine[c].to + static_cast<std::int64_t>(m) * first.elements * 4);
          }
        }
        break;
    }
  }

  std::vector<std::vector<NcclCall>> calls_;
};

/// The buffers of a plan, each in memory of its own and filled with whole numbers, which sum without rounding.
class Buffers {
 public:
  explicit Buffers(const plan::Plan& plan) {
    float next = 1;
    for (const plan::Buffer& buffer : plan.buffers()) {
      memory_.emplace_back(static_cast<std::size_t>(buffer.shape.elements()) + 2);
      for (float& value : memory_.back()) {
        value = next;
        next = next > 1000 ? 1 : next + 1;
      }
    }
  }
  std::byte* at(BufferId id) { return reinterpret_cast<std::byte*>(memory_[id.index()].data()); }
  float& element(BufferId id, std::int64_t i) { return memory_[id.index()][static_cast<std::size_t>(i)]; }

 private:
  std::vector<std::vector<float>> memory_;
};

/// What a meeting is to leave, by the words of plan/task.h.
void expect_met(const plan::Plan& plan, const std::vector<const plan::Task*>& tasks, Buffers& before, Buffers& after) {
  const plan::Move move = plan::move_of(*tasks[0]);
  const std::span<const BufferId> first = plan::payload(*tasks[0]);
  std::vector<std::size_t> piece(tasks.size(), 0);
  for (std::size_t b = 0; b < first.size(); ++b) {
    const std::int64_t elements = plan[first[b]].shape.elements();
    const auto sum = [&](std::int64_t i) {
      float total = 0;
      for (const plan::Task* task : tasks) {
        total += before.element(plan::payload(*task)[b], i);
      }
      return total;
    };
    for (std::size_t m = 0; m < tasks.size(); ++m) {
      const BufferId whole = plan::payload(*tasks[m])[b];
      const plan::Piece range = plan::piece_of(elements, static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(tasks.size()));
      const bool pieces = move == plan::Move::reduce_scatter || move == plan::Move::all_gather;
      const BufferId own = pieces && range.size() > 0 ? plan::pieces(*tasks[m])[piece[m]++] : BufferId();
      for (std::int64_t i = 0; i < elements; ++i) {
        if (move == plan::Move::copy || move == plan::Move::broadcast) {
          ASSERT_EQ(after.element(whole, i), before.element(first[b], i));
        } else if (move == plan::Move::all_reduce || (move == plan::Move::reduce && m == 0)) {
          ASSERT_EQ(after.element(whole, i), sum(i));
        } else if (move == plan::Move::reduce_scatter && i >= range.begin && i < range.end) {
          ASSERT_EQ(after.element(own, i - range.begin), sum(i));
        } else if (move == plan::Move::all_gather && i >= range.begin && i < range.end) {
          for (const plan::Task* other : tasks) {
            ASSERT_EQ(after.element(plan::payload(*other)[b], i), before.element(own, i - range.begin));
          }
        }
      }
    }
  }
}

TEST(NcclCalls, LeaveInEveryMeetingOfEveryStrategyWhatTheMeetingIsTo) {
  std::set<plan::Move> seen;
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const std::string words : {"cuda:0/2", "cuda:0/4:3"}) {  // pieces of even and uneven size
      if (strategy.name() == "single") {
        continue;
      }
      const Planned planned(strategy.name(), words, 1);
      for (std::size_t m = 0; m < planned.plan.meeting_count(); ++m) {
        std::vector<const plan::Task*> tasks(planned.plan.members(MeetingId(m)).size());
        for (const TaskId member : planned.plan.members(MeetingId(m))) {
          tasks[plan::rank_of(planned.plan[member])] = &planned.plan[member];
        }
        if (planned.plan[plan::payload(*tasks[0])[0]].dtype != DType::f32) {
          continue;
        }
        Buffers before(planned.plan);
        Buffers after(planned.plan);
        std::vector<std::vector<NcclCall>> calls;
        for (const plan::Task* task : tasks) {
          calls.push_back(
              exec::nccl_calls(planned.plan, *task, exec::addresses_of(*task, nullptr, [&](BufferId id) { return after.at(id); })));
        }
        PretendedNccl(std::move(calls)).run();
        expect_met(planned.plan, tasks, before, after);
        seen.insert(plan::move_of(*tasks[0]));
        ASSERT_FALSE(HasFatalFailure()) << strategy.name() << " on " << words << ", "
                                        << planned.plan.describe(planned.plan.members(MeetingId(m))[0]);
      }
    }
  }
  EXPECT_EQ(seen.size(), 6U) << "every kind of meeting was among them";
}

}  // namespace
}  // namespace baton::test
