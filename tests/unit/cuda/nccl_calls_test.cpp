#include "baton/cuda/nccl_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "unit/cuda/planned.h"

/// What NCCL is asked for, done in one memory.
namespace baton::cuda {
namespace {

using test::Gpus;
using test::Planned;

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
    for (const Gpus& gpus :
         {Gpus{.ranks = 1, .of = 2, .used = 2}, Gpus{.ranks = 1, .of = 4, .used = 3}}) {  // even and uneven pieces
      if (strategy.name() == "single") {
        continue;
      }
      const Planned planned(strategy.name(), gpus);
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
              nccl_calls(planned.plan, *task, exec::addresses_of(*task, nullptr, [&](BufferId id) { return after.at(id); })));
        }
        PretendedNccl(std::move(calls)).run();
        expect_met(planned.plan, tasks, before, after);
        seen.insert(plan::move_of(*tasks[0]));
        ASSERT_FALSE(HasFatalFailure()) << strategy.name() << " on " << gpus.used << " parts, "
                                        << planned.plan.describe(planned.plan.members(MeetingId(m))[0]);
      }
    }
  }
  EXPECT_EQ(seen.size(), 6U) << "every kind of meeting was among them";
}

}  // namespace
}  // namespace baton::cuda
