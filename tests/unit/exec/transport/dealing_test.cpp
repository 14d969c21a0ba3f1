#include "baton/exec/transport/dealing.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"

namespace baton::exec {
namespace {

using plan::Collective;

constexpr std::uint32_t members = 3;
const std::vector<std::int64_t> extents{10, 7, 2};  // elements of the buffers that cross; the last has fewer than there are members

/// A collective over buffers of those extents: the whole ones stand first in the list of a device's buffers, then its pieces.
plan::Plan meeting(plan::Move kind, DType type = DType::f32) {
  plan::Draft draft{.title = "", .devices = {}, .buffers = {}, .tasks = {}};
  for (std::uint32_t rank = 0; rank < members; ++rank) {
    draft.devices.push_back("cpu:" + std::to_string(rank));
    const auto add = [&](std::int64_t extent) {
      draft.buffers.push_back({.device = DeviceId(rank), .dtype = type, .shape = {extent}});
      return BufferId(draft.buffers.size() - 1);
    };
    std::vector<BufferId> whole;
    std::vector<BufferId> pieces;
    for (const std::int64_t extent : extents) {
      whole.push_back(add(extent));
    }
    for (const std::int64_t extent : extents) {
      if (const std::int64_t size = plan::piece_of(extent, rank, members).size(); size > 0) {
        pieces.push_back(add(size));
      }
    }
    plan::Task task{.action = Collective{.kind = kind, .meeting = MeetingId(0), .rank = rank, .size = members},
                    .device = DeviceId(rank),
                    .lane = plan::Lane::communication};
    switch (kind) {
      case plan::Move::copy:  // a transfer's, and no collective
        break;
      case plan::Move::all_reduce:
        task.reads = task.writes = whole;
        break;
      case plan::Move::broadcast:
        (rank == 0 ? task.reads : task.writes) = whole;
        break;
      case plan::Move::reduce:
        task.reads = whole;
        task.writes = rank == 0 ? whole : std::vector<BufferId>{};
        break;
      case plan::Move::reduce_scatter:
        task.reads = whole;
        task.writes = pieces;
        break;
      case plan::Move::all_gather:
        task.reads = pieces;
        task.writes = whole;
        break;
    }
    draft.tasks.push_back(std::move(task));
  }
  return plan::finish(std::move(draft));
}

/// By buffer and element: to how many members it falls.
std::vector<std::vector<int>> covered(const std::vector<Share>& shares) {
  std::vector<std::vector<int>> times;
  for (const std::int64_t extent : extents) {
    times.emplace_back(static_cast<std::size_t>(extent), 0);
  }
  for (const Share& share : shares) {
    for (const ElementRun& run : share.runs) {
      for (std::int64_t i = run.begin; i < run.begin + run.count; ++i) {
        ++times[run.buffer][static_cast<std::size_t>(i)];
      }
    }
  }
  return times;
}

std::int64_t elements(const Share& share) {
  std::int64_t sum = 0;
  for (const ElementRun& run : share.runs) {
    sum += run.count;
  }
  return sum;
}

TEST(Dealing, EveryElementFallsToOneMemberOrOfWhatIsHandedOutToAllButTheFirst) {
  for (const plan::Move kind :
       {plan::Move::all_reduce, plan::Move::broadcast, plan::Move::reduce, plan::Move::reduce_scatter, plan::Move::all_gather}) {
    for (const std::int64_t run_elements : {1, 4, 1000}) {
      const std::vector<Share> shares = deal(meeting(kind), MeetingId(0), run_elements);
      ASSERT_EQ(shares.size(), members);
      const int times = kind == plan::Move::broadcast ? 2 : 1;
      for (const std::vector<int>& buffer : covered(shares)) {
        EXPECT_EQ(buffer, std::vector<int>(buffer.size(), times)) << plan::to_text(kind);
      }
      for (const Share& share : shares) {
        for (const ElementRun& run : share.runs) {
          EXPECT_LE(run.count, run_elements);
          EXPECT_GT(run.count, 0);
        }
      }
    }
  }
}

TEST(Dealing, ASumIsDividedEvenlyOverAllBuffersAndAReduceFallsToTheFirst) {
  for (const Share& share : deal(meeting(plan::Move::all_reduce, DType::f64), MeetingId(0), 1000)) {
    EXPECT_NEAR(static_cast<double>(elements(share)), 19.0 / 3, 1);
  }
  const std::vector<Share> reduced = deal(meeting(plan::Move::reduce), MeetingId(0), 1000);
  EXPECT_EQ(elements(reduced[0]), 19);
  EXPECT_TRUE(reduced[1].runs.empty());
}

TEST(Dealing, PiecesAreThoseOfThePlansRule) {
  for (const plan::Move kind : {plan::Move::reduce_scatter, plan::Move::all_gather}) {
    const plan::Plan plan = meeting(kind);
    const std::vector<Share> shares = deal(plan, MeetingId(0), 2);
    for (std::uint32_t rank = 0; rank < members; ++rank) {
      for (const ElementRun& run : shares[rank].runs) {
        const plan::Piece piece = plan::piece_of(extents[run.buffer], rank, members);
        EXPECT_GE(run.begin, piece.begin);
        EXPECT_LE(run.begin + run.count, piece.end);
        EXPECT_EQ(run.piece_begin, run.begin - piece.begin);
        const BufferId held = plan::pieces(plan.tasks()[rank])[run.piece];
        EXPECT_EQ(plan[held].shape.elements(), piece.size()) << "the piece of that buffer, where empty ones are left out";
      }
    }
  }
}

TEST(Dealing, ATransferGoesFromTheSenderToTheReceiver) {
  plan::Draft draft{.title = "", .devices = {"cpu:0", "cpu:1"}, .buffers = {}, .tasks = {}};
  for (const std::size_t device : {0U, 1U}) {
    draft.buffers.push_back({.device = DeviceId(device), .shape = {6}});
    plan::Task task{.action = plan::Transfer{device == 0 ? plan::Transfer::End::send : plan::Transfer::End::receive, MeetingId(0),
                                             DeviceId(1 - device)},
                    .device = DeviceId(device)};
    (device == 0 ? task.reads : task.writes) = std::vector{BufferId(device)};
    draft.tasks.push_back(std::move(task));
  }
  const plan::Plan plan = plan::finish(std::move(draft));
  EXPECT_EQ(move_of(plan.tasks()[0]), Move::copy);
  EXPECT_EQ(rank_of(plan.tasks()[0]), 0U);
  EXPECT_EQ(rank_of(plan.tasks()[1]), 1U);
  const std::vector<Share> shares = deal(plan, MeetingId(0), 4);
  EXPECT_TRUE(shares[0].runs.empty());
  EXPECT_EQ(shares[1].runs.size(), 2U);
}

TEST(Dealing, AMembersRunsLieInItsOwnBuffersAndPieces) {
  std::vector<std::byte> memory(1000);
  Addresses addresses;
  addresses.reads = {memory.data(), memory.data() + 100};
  addresses.writes = {memory.data() + 200, memory.data() + 300};
  const ElementRun run{.buffer = 1, .begin = 3, .count = 2, .piece = 1, .piece_begin = 1};
  const plan::Plan scatter = meeting(plan::Move::reduce_scatter);
  const MemberMemory summed(scatter.tasks()[0], addresses, DType::f32);
  EXPECT_EQ(summed.at(run), memory.data() + 100 + 3 * 4);
  EXPECT_EQ(summed.piece_at(run), memory.data() + 300 + 1 * 4);
  const plan::Plan gather = meeting(plan::Move::all_gather, DType::bf16);
  const MemberMemory gathered(gather.tasks()[0], addresses, DType::bf16);
  EXPECT_EQ(gathered.at(run), memory.data() + 300 + 3 * 2);
  EXPECT_EQ(gathered.piece_at(run), memory.data() + 100 + 1 * 2);
}

TEST(Dealing, ASumIsAppliedToTheParametersAndNeverIn16Bits) {
  std::vector<std::byte> memory(400);
  Addresses addresses;
  addresses.reads = {memory.data(), memory.data() + 100};
  addresses.writes = {memory.data() + 200};
  plan::Task task{.action = Collective{.meeting = MeetingId(0), .size = 2, .sgd_rate = 0.1}, .device = DeviceId(0)};
  task.reads = {BufferId(0), BufferId(1)};
  task.writes = {BufferId(1)};
  const ElementRun run{.buffer = 0, .begin = 5, .count = 1};
  const MemberMemory member(task, addresses, DType::f32);
  EXPECT_EQ(member.at(run), memory.data() + 20);
  EXPECT_EQ(member.parameter_at(run), memory.data() + 220);
  EXPECT_THROW(MemberMemory(task, addresses, DType::bf16), BugError);
}

struct Traffic {
  Bytes sent;
  Bytes received;
};

/// What a member sends and receives when every share goes straight from one member to another.
Traffic traffic(Move move, const std::vector<Bytes>& shares, std::size_t rank) {
  Traffic all;
  const auto others = static_cast<std::int64_t>(shares.size()) - 1;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    const Bytes moved = shares[r];
    const Bytes own = r == rank ? moved * others : moved;
    switch (move) {
      case Move::copy:
      case Move::broadcast:
        all.sent += rank == 0 ? moved : Bytes(0);
        all.received += rank != 0 && rank == r ? moved : Bytes(0);
        break;
      case Move::reduce:
        all.sent += rank == 0 ? Bytes(0) : moved;
        all.received += rank == 0 ? moved * others : Bytes(0);
        break;
      case Move::all_reduce:  // the one whose share it is takes it from the others and hands the sum back to each
        all.sent += own;
        all.received += own;
        break;
      case Move::reduce_scatter:
        (r == rank ? all.received : all.sent) += own;
        break;
      case Move::all_gather:
        (r == rank ? all.sent : all.received) += own;
        break;
    }
  }
  return all;
}

TEST(Dealing, WhatMembersAreDealtAddsUpToTheBytesThatThePlanCounts) {
  const model::Model model = model::mlp({7, 13, 5, 6});
  std::size_t meetings = 0;
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const strategy::Precision precision : {strategy::Precision::fp32, strategy::Precision::bf16}) {
      const cluster::Cluster three(std::vector<cluster::Device>(3, {.name = "cpu", .cores = {0}, .memory = Bytes(1 << 30)}));
      plan::Plan plan("", {}, {}, {});
      try {
        plan = strategy::compile(
            {.model = model, .cluster = three, .strategy = strategy.name(), .step = {.global_batch = 11, .precision = precision}});
      } catch (const Error&) {
        continue;  // it needs more blocks than there are
      }
      for (std::size_t m = 0; m < plan.meeting_count(); ++m, ++meetings) {
        ASSERT_FALSE(plan.members(MeetingId(m)).empty());
        const plan::Task& first = plan[plan.members(MeetingId(m))[0]];
        const std::int64_t width = size_of(plan[plan::payload(first)[0]].dtype);
        std::vector<Bytes> moved;
        for (const Share& share : deal(plan, MeetingId(m), 10)) {
          moved.emplace_back(0);
          for (const ElementRun& run : share.runs) {
            EXPECT_LE(run.count, 10);
            moved.back() += Bytes(run.count * width);
          }
        }
        for (const TaskId id : plan.members(MeetingId(m))) {
          const Traffic dealt = traffic(move_of(plan[id]), moved, rank_of(plan[id]));
          EXPECT_EQ(plan::work(plan, id).sent, dealt.sent) << strategy.name() << ": " << plan.describe(id);
          EXPECT_EQ(plan::work(plan, id).received, dealt.received) << strategy.name() << ": " << plan.describe(id);
        }
      }
    }
  }
  EXPECT_GT(meetings, 100U);
}

}  // namespace
}  // namespace baton::exec
