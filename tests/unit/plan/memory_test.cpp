#include "baton/plan/memory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "unit/plan/brute_force.h"
#include "unit/plan/sample_plans.h"

namespace baton::plan {
namespace {

constexpr std::int64_t alignment = 64;
std::int64_t aligned(std::int64_t size) { return (size + alignment - 1) / alignment * alignment; }

/// A random valid step: layers of small ops over one to five devices and all lanes, values read and
/// overwritten, sent and summed; every value is read in the end.
class RandomDraft {
 public:
  explicit RandomDraft(std::uint32_t seed) : random_(seed) {}

  Draft make() {
    const std::size_t devices = 1 + below(5);
    for (std::size_t d = 0; d < devices; ++d) {
      draft_.devices.push_back(fmt::format("cpu:{}", d));
      for (std::size_t family = 0; family < shapes.size(); ++family) {
        held_[{d, family}].push_back(add(d, family, true));
      }
    }
    const std::size_t steps = 10 + below(80);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::size_t device = below(devices);
      const std::size_t family = below(shapes.size());
      const std::size_t dice = below(10);
      if (devices > 1 && dice == 0) {
        send(device, (device + 1 + below(devices - 1)) % devices, family);
      } else if (devices > 1 && dice == 1) {
        sum(family);
      } else if (dice == 2) {
        task(device, Delay{Nanoseconds(1)}, {}, {});
      } else if (dice == 3) {
        overwrite(device, family);
      } else {
        compute(device, family, add(device, family, false));
      }
    }
    for (std::size_t b = 0; b < draft_.buffers.size(); ++b) {
      if (unread_.size() > b && unread_[b]) {
        const std::size_t device = draft_.buffers[b].device.index();
        Buffer last = draft_.buffers[b];
        last.role = Role::loss;  // lives on after the step
        last.persistent = false;
        const BufferId kept = draft_.add(last);
        task(device, Compute{op::Relu{}}, {BufferId(b)}, {kept});
        unread_[kept.index()] = false;
      }
    }
    return draft_;
  }

 private:
  static inline const std::vector<Shape> shapes{{3}, {16, 1}, {7, 9}, {40, 5}};

  std::size_t below(std::size_t count) { return random_() % count; }

  BufferId add(std::size_t device, std::size_t family, bool persistent) {
    return draft_.add({.device = DeviceId(device), .persistent = persistent, .shape = shapes[family], .content = {}, .label = ""});
  }

  BufferId any(std::size_t device, std::size_t family) {
    const std::vector<BufferId>& list = held_[{device, family}];
    // Mostly something recent, so that older values die.
    return list[list.size() - 1 - below(std::min<std::size_t>(list.size(), 4))];
  }

  void task(std::size_t device, Action action, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    unread_.resize(draft_.buffers.size(), false);
    for (const BufferId id : reads) {
      unread_[id.index()] = false;
    }
    for (const BufferId id : writes) {
      unread_[id.index()] = !draft_[id].persistent;
    }
    draft_.tasks.push_back({.action = std::move(action),
                            .device = DeviceId(device),
                            .lane = static_cast<Lane>(below(lane_count)),
                            .labels = {},
                            .reads = std::move(reads),
                            .writes = std::move(writes),
                            .workspace = Bytes(below(4) == 0 ? static_cast<std::int64_t>(below(500)) : 0),
                            .after = {}});
  }

  void compute(std::size_t device, std::size_t family, BufferId into) {
    const BufferId a = any(device, family);
    if (below(2) == 0) {
      task(device, Compute{op::Relu{}}, {a}, {into});
    } else {
      task(device, Compute{op::ReluBackward{}}, {a, any(device, family)}, {into});
    }
    held_[{device, family}].push_back(into);
  }

  /// Writes a value again, once its old contents have been read.
  void overwrite(std::size_t device, std::size_t family) {
    const BufferId into = any(device, family);
    unread_.resize(draft_.buffers.size(), false);
    if (!unread_[into.index()] && !draft_[into].persistent) {
      compute(device, family, into);
    }
  }

  void send(std::size_t from, std::size_t to, std::size_t family) {
    const MeetingId meeting = draft_.new_meeting();
    const BufferId copy = add(to, family, false);
    task(from, Transfer{Transfer::End::send, meeting, DeviceId(to)}, {any(from, family)}, {});
    task(to, Transfer{Transfer::End::receive, meeting, DeviceId(from)}, {}, {copy});
    held_[{to, family}].push_back(copy);
  }

  void sum(std::size_t family) {
    const MeetingId meeting = draft_.new_meeting();
    const std::size_t devices = draft_.devices.size();
    const std::size_t size = 2 + below(devices - 1);
    const std::size_t first = below(devices);
    for (std::size_t rank = 0; rank < size; ++rank) {
      const std::size_t device = (first + rank) % devices;
      const BufferId own = any(device, family);
      task(device, Collective{Move::all_reduce, meeting, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size)}, {own},
           {own});
    }
  }

  std::mt19937 random_;
  Draft draft_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<BufferId>> held_;  // by device and family
  std::vector<bool> unread_;
};

/// A piece of an arena and the tasks that use it.
struct Piece {
  std::size_t device;
  std::int64_t begin;
  std::int64_t end;
  std::vector<std::size_t> users;
  bool always;      // it has contents before the step, and keeps them
  bool to_the_end;  // its contents are wanted after the step
  std::string name;
  BufferId buffer = {};  // none: it is a workspace
};

std::vector<Piece> pieces_of(const Plan& plan, const Memory& memory) {
  std::vector<Piece> pieces;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const Buffer& buffer = plan.buffers()[b];
    Piece piece{buffer.device.index(),
                memory.offset[b],
                memory.offset[b] + buffer.size().count,
                {},
                buffer.persistent,
                buffer.role == Role::loss,
                fmt::format("b{}", b),
                BufferId(b)};
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      for (const auto* list : {&plan.tasks()[t].reads, &plan.tasks()[t].writes}) {
        if (std::find(list->begin(), list->end(), BufferId(b)) != list->end()) {
          piece.users.push_back(t);
        }
      }
    }
    if (piece.always || !piece.users.empty()) {
      pieces.push_back(piece);
    }
  }
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (const Bytes size = plan.tasks()[t].workspace; size.count > 0) {
      pieces.push_back({plan.tasks()[t].device.index(),
                        memory.workspace[t],
                        memory.workspace[t] + size.count,
                        {t},
                        false,
                        false,
                        fmt::format("workspace of t{}", t)});
    }
  }
  return pieces;
}

/// Whether every use of the one is certainly over when any use of the other begins.
bool precedes(const Piece& first, const Piece& second, const test::Before& before) {
  if (first.always || second.always || first.to_the_end) {
    return false;
  }
  for (const std::size_t a : first.users) {
    for (const std::size_t b : second.users) {
      if (!before(a, b)) {
        return false;
      }
    }
  }
  return true;
}

/// The task that may put a result in the place of an operand, of two buffers that have one place: every other task that touches the
/// operand comes before it, and every other one that touches the result comes after it.
std::optional<std::size_t> overwriting_task(const Plan& plan, const Piece& operand, const Piece& result,
                                            const test::Before& before) {
  if (!operand.buffer.valid() || !result.buffer.valid() || operand.always || operand.begin != result.begin ||
      operand.end != result.end) {
    return std::nullopt;
  }
  for (const std::size_t t : result.users) {
    const auto* compute = std::get_if<Compute>(&plan.tasks()[t].action);
    const std::optional<op::Overwritten> pair = compute == nullptr ? std::nullopt : op::overwritten(compute->op);
    if (pair && plan.tasks()[t].reads[pair->read] == operand.buffer && plan.tasks()[t].writes[pair->written] == result.buffer) {
      const bool last = std::all_of(operand.users.begin(), operand.users.end(),
                                    [&](std::size_t u) { return u == t || before(u, t); });
      const bool first = std::all_of(result.users.begin(), result.users.end(),
                                     [&](std::size_t u) { return u == t || before(t, u); });
      return last && first ? std::optional(t) : std::nullopt;
    }
  }
  return std::nullopt;
}

void expect_sound_memory(const Plan& plan, const Memory& memory, const std::string& name) {
  const test::Before before(plan);
  const std::vector<Piece> pieces = pieces_of(plan, memory);
  std::vector<std::int64_t> end(plan.devices().size(), 0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& a = pieces[i];
    EXPECT_EQ(a.begin % alignment, 0) << name << ", " << a.name;
    EXPECT_LE(a.end, memory.peak[a.device].count) << name << ", " << a.name;
    end[a.device] = std::max(end[a.device], aligned(a.end));
    for (std::size_t j = 0; j < i; ++j) {
      const Piece& b = pieces[j];
      if (a.device == b.device && a.begin < b.end && b.begin < a.end) {
        EXPECT_TRUE(precedes(a, b, before) || precedes(b, a, before) || overwriting_task(plan, a, b, before) ||
                    overwriting_task(plan, b, a, before))
            << name << ": " << a.name << " and " << b.name << " share addresses while both are in use\n"
            << to_text(plan);
      }
    }
  }
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    EXPECT_EQ(memory.peak[d].count, end[d]) << name << ": the arena is not as large as what lies in it";
  }
  // What is in use for certain while some task runs must fit all at once.
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    std::int64_t live = 0;
    for (const Piece& piece : pieces) {
      const auto used = [&](auto when) { return std::any_of(piece.users.begin(), piece.users.end(), when); };
      const bool begun = used([&](std::size_t u) { return u == t || before(u, t); });
      const bool wanted = piece.to_the_end || used([&](std::size_t u) { return u == t || before(t, u); });
      const bool overwritten = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& result) {
        return &result != &piece && overwriting_task(plan, piece, result, before) == t;
      });
      if (piece.device == plan.tasks()[t].device.index() && (piece.always || (begun && wanted)) && !overwritten) {
        live += aligned(piece.end - piece.begin);
      }
    }
    EXPECT_LE(live, memory.peak[plan.tasks()[t].device.index()].count) << name << ", at t" << t;
  }
}

TEST(Memory, OfRandomStepsNeverSharesWhatMayBeInUseAtOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::uint32_t rounds = 60;
#else
  constexpr std::uint32_t rounds = 400;
#endif
  std::int64_t needed = 0;
  std::int64_t without_sharing = 0;
  for (std::uint32_t seed = 0; seed < rounds && !::testing::Test::HasFailure(); ++seed) {
    const Plan plan = finish(RandomDraft(seed).make());
    const Verdict verdict = verify(plan);
    ASSERT_TRUE(verdict.holds()) << "seed " << seed << ": " << verdict.violations[0].text << "\n" << to_text(plan);
    ASSERT_TRUE(test::judge(plan).right()) << "seed " << seed;
    expect_sound_memory(plan, verdict.memory, fmt::format("seed {}", seed));
    for (const Bytes peak : verdict.memory.peak) {
      needed += peak.count;
    }
    for (const Piece& piece : pieces_of(plan, verdict.memory)) {
      without_sharing += aligned(piece.end - piece.begin);
    }
    EXPECT_TRUE(parse(to_text(plan)) == plan);
  }
  EXPECT_LT(needed, without_sharing * 9 / 10) << "hardly anything is shared";
}

TEST(Memory, OfEveryStrategyNeverSharesWhatMayBeInUseAtOnce) {
  for (const test::Sample& sample : test::sample_plans()) {
    const Verdict verdict = verify(sample.plan);
    ASSERT_TRUE(verdict.holds()) << sample.name;
    expect_sound_memory(sample.plan, verdict.memory, sample.name);
  }
}

/// x → t0 → t1 → ... → kept, each of 64 floats.
Plan chain(std::size_t length, Bytes workspace, bool two_lanes) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](bool persistent) {
    return draft.add({.device = DeviceId(0), .persistent = persistent, .shape = {64}, .content = {}, .label = ""});
  };
  BufferId at = add(true);
  for (std::size_t i = 0; i < length; ++i) {
    const BufferId next = add(i + 1 == length);
    draft.tasks.push_back({.action = Compute{op::Relu{}},
                           .device = DeviceId(0),
                           .lane = two_lanes && i % 2 == 1 ? Lane::host : Lane::compute,
                           .labels = {},
                           .reads = {at},
                           .writes = {next},
                           .workspace = workspace,
                           .after = {}});
    at = next;
  }
  return finish(draft);
}

/// Where each temporary buffer would lie, looked for among all that were placed before it.
void expect_lowest_places(const Plan& plan, const Verdict& verdict, const std::string& name) {
  const Ordering& ordering = verdict.ordering;
  struct Placed {
    std::int64_t begin;
    std::int64_t end;
    VectorClock last;
  };
  std::vector<std::vector<Placed>> placed(plan.devices().size());
  std::vector<std::int64_t> base(plan.devices().size(), 0);
  std::vector<VectorClock> last(plan.buffers().size());
  std::vector<bool> seen(plan.buffers().size(), false);
  for (const Buffer& buffer : plan.buffers()) {
    base[buffer.device.index()] += buffer.persistent || buffer.role == Role::loss ? aligned(buffer.size().count) : 0;
  }
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    for (const auto* list : {&plan.tasks()[t].reads, &plan.tasks()[t].writes}) {
      for (const BufferId id : *list) {
        std::uint32_t& done = last[id.index()][static_cast<std::size_t>(plan.tasks()[t].lane)];
        done = std::max(done, plan.position(TaskId(t)) + 1);
      }
    }
  }
  const auto lowest = [&](TaskId id, std::int64_t size, const VectorClock& until) {
    std::vector<Placed>& others = placed[plan[id].device.index()];
    const VectorClock& start = ordering.start[id.index()];
    std::int64_t at = base[plan[id].device.index()];
    for (bool moved = true; moved;) {
      moved = false;
      for (const Placed& other : others) {
        const bool over = other.last[0] <= start[0] && other.last[1] <= start[1] && other.last[2] <= start[2];
        if (!over && at < other.end && other.begin < at + size) {
          at = other.end;
          moved = true;
        }
      }
    }
    others.push_back({at, at + size, until});
    return at;
  };
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {  // a draft's order, which each device could follow
    const TaskId id(t);
    for (const BufferId buffer : plan[id].writes) {
      if (!seen[buffer.index()] && !plan[buffer].persistent && plan[buffer].role != Role::loss) {
        const auto* compute = std::get_if<Compute>(&plan[id].action);
        const std::optional<op::Overwritten> pair = compute == nullptr ? std::nullopt : op::overwritten(compute->op);
        const BufferId operand = pair && plan[id].writes[pair->written] == buffer ? plan[id].reads[pair->read] : BufferId();
        if (operand.valid() && verdict.memory.offset[buffer.index()] == verdict.memory.offset[operand.index()]) {
          const std::int64_t at = verdict.memory.offset[buffer.index()];
          placed[plan[id].device.index()].push_back({at, at + aligned(plan[buffer].size().count), last[buffer.index()]});
          seen[buffer.index()] = true;
          continue;
        }
        ASSERT_EQ(verdict.memory.offset[buffer.index()], lowest(id, aligned(plan[buffer].size().count), last[buffer.index()]))
            << name << ", b" << buffer.value;
      }
      seen[buffer.index()] = true;
    }
    if (plan[id].workspace.count > 0) {
      VectorClock only{};
      only[static_cast<std::size_t>(plan[id].lane)] = plan.position(id) + 1;
      ASSERT_EQ(verdict.memory.workspace[id.index()], lowest(id, aligned(plan[id].workspace.count), only)) << name;
    }
  }
}

TEST(Memory, EachTemporaryLiesInTheLowestGapThatIsCertainToBeFree) {
  for (std::uint32_t seed = 1000; seed < 1200 && !::testing::Test::HasFailure(); ++seed) {
    const Plan plan = finish(RandomDraft(seed).make());
    expect_lowest_places(plan, verify(plan), fmt::format("seed {}", seed));
  }
  for (const test::Sample& sample : test::sample_plans()) {
    expect_lowest_places(sample.plan, verify(sample.plan), sample.name);
  }
}

TEST(Memory, AChainOfTemporariesNeedsTwoAtATime) {
  for (const bool two_lanes : {false, true}) {
    for (const std::size_t length : {3U, 10U, 500U}) {
      EXPECT_EQ(verify(chain(length, Bytes(0), two_lanes)).memory.peak[0], Bytes(2 * 256 + 2 * 256)) << length;
    }
  }
}

/// Scores from a ReLU, their cross entropy, and what reads the gradient; with `again` something reads the scores once more.
Plan scored(bool overwrites, bool again) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](bool persistent, Shape shape, DType type) {
    return draft.add(
        {.device = DeviceId(0), .dtype = type, .persistent = persistent, .shape = std::move(shape), .content = {}, .label = ""});
  };
  const auto task = [&](op::Op op, std::vector<BufferId> reads, std::vector<BufferId> writes) {
    draft.tasks.push_back({.action = Compute{std::move(op)},
                           .device = DeviceId(0),
                           .labels = {},
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .after = {}});
  };
  const BufferId x = add(true, {16, 8}, DType::f32);
  const BufferId labels = add(true, {16}, DType::i32);
  const BufferId scores = add(false, {16, 8}, DType::f32);
  const BufferId losses = add(true, {16}, DType::f64);
  const BufferId slopes = add(false, {16, 8}, DType::f32);
  task(op::Relu{}, {x}, {scores});
  task(op::CrossEntropy{.rows = 16, .overwrites = overwrites}, {scores, labels}, {losses, slopes});
  task(op::Relu{}, {slopes}, {add(true, {16, 8}, DType::f32)});
  if (again) {
    task(op::Relu{}, {scores}, {add(true, {16, 8}, DType::f32)});
  }
  return finish(draft);
}

TEST(Memory, AResultLiesWhereAnOperandDoesIfTheOpAllowsThatAndNothingReadsTheOperandLater) {
  const auto lies_in_its_place = [](const Plan& plan) {
    const Verdict verdict = verify(plan);
    EXPECT_TRUE(verdict.holds());
    expect_sound_memory(plan, verdict.memory, "scored");
    const Task& entropy = plan.tasks()[1];
    return verdict.memory.offset[entropy.reads[0].index()] == verdict.memory.offset[entropy.writes[1].index()];
  };
  EXPECT_TRUE(lies_in_its_place(scored(true, false)));
  EXPECT_FALSE(lies_in_its_place(scored(false, false))) << "the op does not allow it";
  EXPECT_FALSE(lies_in_its_place(scored(true, true))) << "the scores are read again";
}

TEST(Memory, TasksOfOneLaneShareTheirWorkspace) {
  EXPECT_EQ(verify(chain(500, Bytes(1000), false)).memory.peak[0], Bytes(4 * 256 + 1024));
}

TEST(Memory, LanesThatRunSideBySideShareNothing) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](bool persistent) {
    return draft.add({.device = DeviceId(0), .persistent = persistent, .shape = {64}, .content = {}, .label = ""});
  };
  const BufferId x = add(true);
  for (const Lane lane : {Lane::compute, Lane::communication, Lane::host}) {
    const BufferId temporary = add(false);
    draft.tasks.push_back({.action = Compute{op::Relu{}},
                           .device = DeviceId(0),
                           .lane = lane,
                           .labels = {},
                           .reads = {x},
                           .writes = {temporary},
                           .after = {}});
    draft.tasks.push_back({.action = Compute{op::Relu{}},
                           .device = DeviceId(0),
                           .lane = lane,
                           .labels = {},
                           .reads = {temporary},
                           .writes = {add(true)},
                           .after = {}});
  }
  EXPECT_EQ(verify(finish(draft)).memory.peak[0], Bytes((4 + 3) * 256));
}

TEST(Memory, ALossKeepsItsPlaceToTheEnd) {
  Draft draft;
  draft.devices = {"cpu:0"};
  const auto add = [&](Role role, bool persistent) {
    return draft.add({.device = DeviceId(0), .role = role, .persistent = persistent, .shape = {64}, .content = {}, .label = ""});
  };
  const BufferId x = add(Role::input, true), loss = add(Role::loss, false), later = add(Role::activation, false),
                 out = add(Role::activation, true);
  for (const auto& [from, to] : {std::pair{x, loss}, {x, later}, {later, out}}) {
    draft.tasks.push_back(
        {.action = Compute{op::Relu{}}, .device = DeviceId(0), .labels = {}, .reads = {from}, .writes = {to}, .after = {}});
  }
  const Memory memory = verify(finish(draft)).memory;
  EXPECT_NE(memory.offset[loss.index()], memory.offset[later.index()]);
  EXPECT_EQ(memory.peak[0], Bytes(4 * 256));
}

}  // namespace
}  // namespace baton::plan
