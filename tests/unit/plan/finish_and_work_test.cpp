#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>

#include "baton/base/error.h"
#include "baton/plan/plan.h"
#include "baton/plan/verify.h"

namespace baton::plan {
namespace {

using Ids = std::vector<TaskId>;

/// Buffers and tasks in few words.
struct Sketch {
  explicit Sketch(std::size_t devices) {
    for (std::size_t d = 0; d < devices; ++d) {
      draft.devices.push_back("cpu:" + std::to_string(d));
    }
  }
  BufferId buffer(std::size_t device, Shape shape = {4}, DType dtype = DType::f32) {
    return draft.add(
        {.device = DeviceId(device), .dtype = dtype, .persistent = true, .shape = std::move(shape), .content = {}, .label = ""});
  }
  TaskId task(std::size_t device, Lane lane, Action action, std::vector<BufferId> reads, std::vector<BufferId> writes,
              Phase phase = Phase::forward) {
    draft.tasks.push_back({.action = std::move(action),
                           .device = DeviceId(device),
                           .lane = lane,
                           .labels = {.phase = phase},
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .after = {}});
    return TaskId(draft.tasks.size() - 1);
  }
  TaskId relu(Lane lane, BufferId from, BufferId to) {
    return task(draft[from].device.index(), lane, Compute{op::Relu{}}, {from}, {to});
  }

  Draft draft;
};

constexpr Lane compute = Lane::compute;
constexpr Lane communication = Lane::communication;
constexpr Lane host = Lane::host;

TEST(Finish, AReadComesAfterTheWriteBeforeIt) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0);
  const TaskId write = sketch.relu(compute, a, b);
  const TaskId read = sketch.relu(communication, b, c);
  const Plan plan = finish(sketch.draft);
  EXPECT_EQ(plan[write].after, Ids{});
  EXPECT_EQ(plan[read].after, Ids{write});
}

TEST(Finish, AWriteComesAfterTheReadsAndTheWriteBeforeIt) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0), d = sketch.buffer(0);
  const TaskId first = sketch.relu(compute, a, b);
  const TaskId reader = sketch.relu(communication, b, c);
  sketch.relu(host, d, d);
  const TaskId again = sketch.relu(host, a, b);
  const Plan plan = finish(sketch.draft);
  EXPECT_EQ(plan[again].after, (Ids{first, reader}));
}

TEST(Finish, KeepsOnlyTheLatestTaskOfEachLaneAndNoneOfItsOwn) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0), d = sketch.buffer(0);
  sketch.relu(compute, a, b);
  const TaskId later = sketch.relu(compute, a, c);
  const TaskId both = sketch.task(0, communication, Compute{op::ReluBackward{}}, {b, c}, {d});
  const TaskId own = sketch.relu(communication, d, d);
  const Plan plan = finish(sketch.draft);
  EXPECT_EQ(plan[both].after, Ids{later});
  EXPECT_EQ(plan[own].after, Ids{});
}

TEST(Finish, TwoReadersOfOneBufferAreFreeOfEachOther) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0);
  sketch.relu(compute, a, b);
  const TaskId other = sketch.relu(communication, a, c);
  EXPECT_EQ(finish(sketch.draft)[other].after, Ids{});
}

TEST(Finish, KeepsAnOrderThatADraftAsksForAndNoBufferDoes) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0);
  sketch.relu(compute, a, b);
  sketch.draft.tasks.push_back(sketch.draft.tasks[0]);
  sketch.draft.tasks[1] = {.action = Compute{op::Relu{}},
                           .device = DeviceId(0),
                           .lane = host,
                           .labels = {},
                           .reads = {a},
                           .writes = {c},
                           .after = {TaskId(0)}};
  EXPECT_EQ(finish(sketch.draft)[TaskId(1)].after, Ids{TaskId(0)});
  sketch.draft.tasks[1].lane = compute;  // then the lane says it already
  EXPECT_EQ(finish(sketch.draft)[TaskId(1)].after, Ids{});
}

TEST(Rearrange, AnOrderAskedForOutlivesWhatIsDroppedAndPutIn) {
  Sketch sketch(1);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), c = sketch.buffer(0), d = sketch.buffer(0);
  sketch.relu(compute, a, b);
  sketch.relu(compute, b, c);
  sketch.relu(host, a, d);
  sketch.draft.tasks[2].after = {TaskId(1)};
  const Task extra = sketch.draft.tasks[0];
  sketch.draft.rearrange({false, true, false}, {{extra}, {}, {}, {extra}});
  ASSERT_EQ(sketch.draft.tasks.size(), 4U);
  EXPECT_EQ(sketch.draft.tasks[1].writes, std::vector{b});
  EXPECT_EQ(sketch.draft.tasks[2].writes, std::vector{d});
  EXPECT_EQ(sketch.draft.tasks[2].after, Ids{TaskId(1)}) << "the task before the dropped one, at its new place";
}

TEST(Rearrange, PutsRandomTasksWhereAListWrittenAnewHasThem) {
  std::mt19937 engine(17);
  const auto below = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(engine); };
  for (int trial = 0; trial < 300; ++trial) {
    Sketch sketch(1);
    std::size_t made = 0;
    const auto fresh = [&](std::size_t before) {  // a task that is known by what it writes
      Task task{.action = Compute{op::Relu{}},
                .device = DeviceId(0),
                .lane = below(2) == 0 ? compute : host,
                .labels = {},
                .reads = {BufferId(0)},
                .writes = {BufferId(++made)},
                .after = {}};
      if (before > 0 && below(2) == 0) {
        task.after = {TaskId(below(before))};
      }
      return task;
    };
    const std::size_t count = below(12);
    for (std::size_t i = 0; i < count; ++i) {
      sketch.draft.tasks.push_back(fresh(i));
    }
    std::vector<bool> dropped(count);
    std::vector<std::vector<Task>> insertions(count + 1);
    std::vector<Task> expected;
    std::vector<TaskId> place(count);
    std::array<TaskId, 2> latest;
    const auto put = [&](Task task) {
      std::vector<TaskId> after;
      for (const TaskId id : task.after) {
        if (place[id.index()].valid()) {
          after.push_back(place[id.index()]);
        }
      }
      task.after = after;
      latest.at(task.lane == compute ? 0 : 1) = TaskId(expected.size());
      expected.push_back(std::move(task));
    };
    for (std::size_t i = 0; i <= count; ++i) {
      if (i > 0) {
        const Task& task = sketch.draft.tasks[i - 1];
        dropped[i - 1] = below(3) == 0;
        if (!dropped[i - 1]) {
          put(task);
        }
        place[i - 1] = latest.at(task.lane == compute ? 0 : 1);
      }
      for (std::size_t n = below(3) == 0 ? below(4) : 0; n > 0; --n) {
        insertions[i].push_back(fresh(i));
        put(insertions[i].back());
      }
    }
    sketch.draft.rearrange(dropped, insertions);
    ASSERT_EQ(sketch.draft.tasks, expected) << "trial " << trial;
  }
}

TEST(Finish, ATaskThatReachesAcrossDevicesIsABug) {
  Sketch sketch(2);
  const BufferId here = sketch.buffer(0), there = sketch.buffer(1);
  sketch.task(0, compute, Compute{op::Relu{}}, {there}, {here});
  EXPECT_THROW(finish(sketch.draft), BugError);
  sketch.draft.tasks[0].reads = {here};
  sketch.draft.tasks[0].writes = {there};
  EXPECT_THROW(finish(sketch.draft), BugError);
}

TEST(Plan, KnowsItsLanesAndMeetings) {
  Sketch sketch(2);
  const BufferId a = sketch.buffer(0), b = sketch.buffer(0), there = sketch.buffer(1);
  const TaskId first = sketch.relu(compute, a, b);
  const TaskId send = sketch.task(0, communication, Transfer{Transfer::End::send, MeetingId(1), DeviceId(1)}, {b}, {});
  const TaskId receive = sketch.task(1, communication, Transfer{Transfer::End::receive, MeetingId(1), DeviceId(0)}, {}, {there});
  const TaskId second = sketch.relu(compute, a, b);
  const Plan plan = finish(sketch.draft);
  const auto list = [](std::span<const TaskId> ids) { return Ids(ids.begin(), ids.end()); };
  EXPECT_EQ(list(plan.lane(DeviceId(0), compute)), (Ids{first, second}));
  EXPECT_EQ(list(plan.lane(DeviceId(0), communication)), Ids{send});
  EXPECT_EQ(list(plan.lane(DeviceId(1), communication)), Ids{receive});
  EXPECT_TRUE(plan.lane(DeviceId(1), host).empty());
  EXPECT_EQ(plan.meeting_count(), 2U);
  EXPECT_TRUE(plan.members(MeetingId(0)).empty());
  EXPECT_EQ(list(plan.members(MeetingId(1))), (Ids{send, receive}));
  EXPECT_EQ(plan.describe(send), "t1 (send in the forward, on cpu:0)");
}

TEST(Plan, CopiesShareTheGraphAndKeepItWhenTheFirstIsGone) {
  Sketch sketch(1);
  sketch.relu(compute, sketch.buffer(0), sketch.buffer(0));
  auto first = std::make_unique<Plan>(finish(std::move(sketch.draft)));
  const Plan copy = *first;
  const Task* const task = &(*first)[TaskId(0)];
  first.reset();
  EXPECT_EQ(&copy[TaskId(0)], task);
  EXPECT_EQ(verb(*task), "relu");
  EXPECT_EQ(copy.lane(DeviceId(0), compute).size(), 1U);
}

TEST(Plan, PartsThatPointNowhereAreABug) {
  const Buffer buffer{.device = DeviceId(0), .shape = {4}, .content = {}, .label = ""};
  const Task good{.action = Compute{op::Relu{}},
                  .device = DeviceId(0),
                  .labels = {},
                  .reads = {BufferId(0)},
                  .writes = {BufferId(0)},
                  .after = {}};
  EXPECT_NO_THROW(Plan("", {"cpu:0"}, {buffer}, {good}));
  Task bad = good;
  bad.reads = {BufferId(1)};
  EXPECT_THROW(Plan("", {"cpu:0"}, {buffer}, {bad}), BugError);
  bad = good;
  bad.after = {TaskId(1)};
  EXPECT_THROW(Plan("", {"cpu:0"}, {buffer}, {bad}), BugError);
  bad = good;
  bad.device = DeviceId(1);
  EXPECT_THROW(Plan("", {"cpu:0"}, {buffer}, {bad}), BugError);
  EXPECT_THROW(Plan("", {}, {buffer}, {}), BugError);
}

TEST(Work, OfAComputationIsItsOps) {
  Sketch sketch(1);
  const BufferId x = sketch.buffer(0, {5, 3}), weight = sketch.buffer(0, {4, 3}), bias = sketch.buffer(0, {4}),
                 y = sketch.buffer(0, {5, 4});
  const TaskId id = sketch.task(0, compute, Compute{op::Linear{}}, {x, weight, bias}, {y});
  const TaskWork cost = work(finish(sketch.draft), id);
  EXPECT_EQ(cost.flops, Flops(120));
  EXPECT_EQ(cost.read, Bytes(4 * 31));
  EXPECT_EQ(cost.written, Bytes(4 * 20));
  EXPECT_EQ(cost.sent + cost.received, Bytes(0));
}

TEST(Work, ATransferCrossesOnce) {
  Sketch sketch(2);
  const BufferId a = sketch.buffer(0, {3, 5}), b = sketch.buffer(1, {3, 5});
  const TaskId send = sketch.task(0, communication, Transfer{Transfer::End::send, MeetingId(0), DeviceId(1)}, {a}, {});
  const TaskId receive = sketch.task(1, communication, Transfer{Transfer::End::receive, MeetingId(0), DeviceId(0)}, {}, {b});
  const Plan plan = finish(sketch.draft);
  EXPECT_EQ(work(plan, send).sent, Bytes(60));
  EXPECT_EQ(work(plan, send).read, Bytes(60));
  EXPECT_EQ(work(plan, send).received, Bytes(0));
  EXPECT_EQ(work(plan, receive).received, Bytes(60));
  EXPECT_EQ(work(plan, receive).written, Bytes(60));
  EXPECT_EQ(work(plan, receive).sent, Bytes(0));
}

/// A collective of n members over buffers of these shapes.
Plan collective(Move kind, std::size_t n, const std::vector<Shape>& shapes, DType dtype = DType::f32) {
  Sketch sketch(n);
  for (std::size_t rank = 0; rank < n; ++rank) {
    std::vector<BufferId> buffers;
    for (const Shape& shape : shapes) {
      buffers.push_back(sketch.buffer(rank, shape, dtype));
    }
    const bool reads = kind != Move::broadcast || rank == 0;
    const bool writes = kind == Move::all_reduce || (kind == Move::broadcast ? rank != 0 : rank == 0);
    sketch.task(rank, communication,
                Collective{kind, MeetingId(0), static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(n)},
                reads ? buffers : std::vector<BufferId>{}, writes ? buffers : std::vector<BufferId>{});
  }
  return finish(sketch.draft);
}

TEST(Work, AnAllReduceMovesTwiceItsSizeButForOnesOwnShare) {
  for (const std::int64_t n : {1, 2, 3, 4, 5}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Plan plan = collective(Move::all_reduce, static_cast<std::size_t>(n), {{7, 11}, {13}}, dtype);
      const std::int64_t elements = 7 * 11 + 13;
      TaskWork sum;
      for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
        const TaskWork one = work(plan, TaskId(i));
        sum.sent += one.sent;
        sum.received += one.received;
        sum.flops += one.flops;
        EXPECT_EQ(one.read, Bytes(elements * size_of(dtype)));
        EXPECT_EQ(one.written, Bytes(elements * size_of(dtype)));
        // 2 (n-1)/n S for each, but for the rounding of its share.
        EXPECT_NEAR(static_cast<double>(one.sent.count),
                    2.0 * static_cast<double>((n - 1) * elements * size_of(dtype)) / static_cast<double>(n),
                    static_cast<double>(n * size_of(dtype)));
      }
      EXPECT_EQ(sum.sent, Bytes(2 * (n - 1) * elements * size_of(dtype))) << n;
      EXPECT_EQ(sum.received, sum.sent);
      EXPECT_EQ(sum.flops, Flops((n - 1) * elements)) << n;
    }
  }
}

TEST(Work, ABroadcastLeavesTheRootOnceForEachOther) {
  const Plan plan = collective(Move::broadcast, 4, {{10}, {5, 2}});
  EXPECT_EQ(work(plan, TaskId(0)).sent, Bytes(3 * 80));
  EXPECT_EQ(work(plan, TaskId(0)).received, Bytes(0));
  EXPECT_EQ(work(plan, TaskId(0)).read, Bytes(80));
  for (std::size_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(work(plan, TaskId(rank)).received, Bytes(80));
    EXPECT_EQ(work(plan, TaskId(rank)).sent, Bytes(0));
    EXPECT_EQ(work(plan, TaskId(rank)).written, Bytes(80));
    EXPECT_EQ(work(plan, TaskId(rank)).flops, Flops(0));
  }
}

TEST(Work, AReduceReachesTheRootFromEachOtherAndIsSummedThere) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Plan plan = collective(Move::reduce, 4, {{10}, {5, 2}}, dtype);
    const Bytes size(20 * size_of(dtype));
    EXPECT_EQ(work(plan, TaskId(0)).received, size * 3);
    EXPECT_EQ(work(plan, TaskId(0)).sent, Bytes(0));
    EXPECT_EQ(work(plan, TaskId(0)).flops, Flops(60)) << to_text(dtype);
    for (std::size_t rank = 1; rank < 4; ++rank) {
      EXPECT_EQ(work(plan, TaskId(rank)).sent, size);
      EXPECT_EQ(work(plan, TaskId(rank)).received, Bytes(0));
      EXPECT_EQ(work(plan, TaskId(rank)).flops, Flops(0));
    }
  }
}

TEST(Work, AReduceScatterAndAnAllGatherTogetherMoveWhatAnAllReduceMoves) {
  for (const std::uint32_t n : {2U, 3U, 5U}) {
    const std::vector<Shape> shapes{{7, 11}, {13}, {2}};
    const Plan whole = collective(Move::all_reduce, n, shapes);
    Sketch sketch(n);
    for (const auto kind : {Move::reduce_scatter, Move::all_gather}) {
      for (std::uint32_t rank = 0; rank < n; ++rank) {
        std::vector<BufferId> buffers, held;
        for (const Shape& shape : shapes) {
          buffers.push_back(sketch.buffer(rank, shape));
          if (const Piece piece = piece_of(shape.elements(), rank, n); piece.size() > 0) {
            held.push_back(sketch.buffer(rank, {piece.size()}));
          }
        }
        const bool gathers = kind == Move::all_gather;
        sketch.task(rank, communication, Collective{kind, MeetingId(gathers ? 1 : 0), rank, n}, gathers ? held : buffers,
                    gathers ? buffers : held);
      }
    }
    const Plan plan = finish(sketch.draft);
    EXPECT_TRUE(verify(plan).violations.empty() || verify(plan).violations[0].rule != Rule::meet);
    Bytes apart;
    Bytes together;
    Flops flops;
    for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
      apart += work(plan, TaskId(i)).sent;
      flops += work(plan, TaskId(i)).flops;
    }
    Bytes received;
    for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
      received += work(plan, TaskId(i)).received;
    }
    for (std::size_t i = 0; i < whole.tasks().size(); ++i) {
      together += work(whole, TaskId(i)).sent;
    }
    EXPECT_EQ(apart, together);
    EXPECT_EQ(received, together);
    EXPECT_EQ(flops, Flops((n - 1) * (7 * 11 + 13 + 2)));
  }
}

TEST(Pieces, CoverABufferOnceAndFallToNobodyWhereThereAreTooFew) {
  for (const std::int64_t elements : {1, 2, 7, 64, 1000}) {
    for (const std::uint32_t size : {1U, 2U, 3U, 8U}) {
      std::int64_t next = 0;
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const Piece piece = piece_of(elements, rank, size);
        EXPECT_EQ(piece.begin, next);
        EXPECT_LE(piece.size(), elements / size + 1);
        next = piece.end;
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(Work, AnUpdateCountsItsParametersAndNotItsStates) {
  for (const auto& [name, slots, flops] : {std::tuple{"sgd", 0, 2}, {"momentum", 1, 4}, {"adam", 2, 12}}) {
    Sketch sketch(1);
    std::vector<BufferId> gradients{sketch.buffer(0, {3, 2}), sketch.buffer(0, {3})};
    std::vector<BufferId> writes{sketch.buffer(0, {3, 2}), sketch.buffer(0, {3})};
    for (const Shape& shape : {Shape{3, 2}, Shape{3}}) {
      for (int slot = 0; slot < slots; ++slot) {
        writes.push_back(sketch.buffer(0, shape));
      }
    }
    std::vector<BufferId> reads = gradients;
    reads.insert(reads.end(), writes.begin(), writes.end());
    const TaskId id = sketch.task(0, compute, Update{op::optimizer_by_name(name)}, reads, writes);
    const TaskWork cost = work(finish(sketch.draft), id);
    EXPECT_EQ(cost.flops, Flops(9 * flops)) << name;
    EXPECT_EQ(cost.written, Bytes(36 * (1 + slots))) << name;
    EXPECT_EQ(cost.read, Bytes(36 * (2 + slots))) << name;
  }
}

TEST(Work, ADelayDoesNothing) {
  Sketch sketch(1);
  const TaskId id = sketch.task(0, compute, Delay{Nanoseconds(5)}, {}, {});
  const TaskWork cost = work(finish(sketch.draft), id);
  EXPECT_EQ(cost.flops, Flops(0));
  EXPECT_EQ(cost.read + cost.written + cost.sent + cost.received, Bytes(0));
}

TEST(Totals, AddUpADevicesWorkAndCountTransfersAtTheSender) {
  Sketch sketch(2);
  const BufferId a = sketch.buffer(0, {6}), b = sketch.buffer(0, {6}), there = sketch.buffer(1, {6});
  sketch.relu(compute, a, b);
  sketch.task(0, communication, Transfer{Transfer::End::send, MeetingId(0), DeviceId(1)}, {b}, {});
  sketch.task(1, communication, Transfer{Transfer::End::receive, MeetingId(0), DeviceId(0)}, {}, {there});
  sketch.task(1, communication, Transfer{Transfer::End::send, MeetingId(1), DeviceId(0)}, {there}, {}, Phase::backward);
  sketch.task(0, communication, Transfer{Transfer::End::receive, MeetingId(1), DeviceId(1)}, {}, {a}, Phase::backward);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const BufferId own = rank == 0 ? a : there;
    sketch.task(rank, communication, Collective{Move::all_reduce, MeetingId(2), static_cast<std::uint32_t>(rank), 2}, {own}, {own});
  }
  const std::vector<Totals> totals = totals_by_device(finish(sketch.draft));
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].tasks, 4);
  EXPECT_EQ(totals[1].tasks, 3);
  EXPECT_EQ(totals[0].transfers, 1);
  EXPECT_EQ(totals[0].transfers_forward, 1);
  EXPECT_EQ(totals[1].transfers, 1);
  EXPECT_EQ(totals[1].transfers_forward, 0);
  EXPECT_EQ(totals[0].collectives, 1);
  EXPECT_EQ(totals[1].collectives, 1);
  EXPECT_EQ(totals[0].work.flops, Flops(6 + 3));
  EXPECT_EQ(totals[0].work.sent, Bytes(24 + 24));
  EXPECT_EQ(totals[0].work.received, Bytes(24 + 24));
  EXPECT_EQ(totals[0].work.read, Bytes(24 + 24 + 24));
  EXPECT_EQ(totals[0].work.written, Bytes(24 + 24 + 24));
}

TEST(Totals, OfSeveralDevicesAreTheirSumAndOfCopiesAMultiple) {
  const Totals one{{Flops(1), Bytes(2), Bytes(3), Bytes(4), Bytes(5)}, 6, 7, 8, 9};
  const Totals three{{Flops(3), Bytes(6), Bytes(9), Bytes(12), Bytes(15)}, 18, 21, 24, 27};
  Totals sum;
  for (int device = 0; device < 3; ++device) {
    sum += one;
  }
  EXPECT_EQ(sum, three);
  EXPECT_EQ(one * 3, three);
}

}  // namespace
}  // namespace baton::plan
