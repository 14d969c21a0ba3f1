#include "baton/plan/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "support/usage_sentence.h"
#include "unit/plan/sample_plans.h"

namespace baton::plan {
namespace {

using test::sample_plans;

/// A plan that has every field a line can have.
Plan every_feature() {
  Draft draft;
  draft.title = "every \"feature\" at once";
  draft.devices = {"cpu:0", "gpu"};
  const auto add = [&](std::size_t device, Buffer buffer) {
    buffer.device = DeviceId(device);
    return draft.add(std::move(buffer));
  };
  const BufferId x = add(0, {.role = Role::input, .persistent = true, .shape = {4, 3}, .content = BatchRows{4, 8}, .label = "x"});
  const BufferId weight = add(0, {.role = Role::parameter,
                                  .layout = "tiled",
                                  .persistent = true,
                                  .shape = {2, 3},
                                  .content = ParameterPart{"block0.weight", 3, 3, {8, 3}, 0, 2, 4, 0},
                                  .label = "W, a part"});
  const BufferId state = add(0, {.role = Role::optimizer_state,
                                 .dtype = DType::f64,
                                 .persistent = true,
                                 .shape = {8, 1},
                                 .content = ParameterPart{"block0.weight", 3, 3, {8, 3}, 1, 2, 3, 1}});
  const BufferId bias = add(0, {.role = Role::parameter,
                                .persistent = true,
                                .shape = {2},
                                .content = ParameterPart{"block0.bias", 4, 3, {2}, 0, 0, 2, 0},
                                .label = "b"});
  const BufferId y = add(0, {.role = Role::activation, .shape = {4, 2}, .label = "a label with = and b7"});
  const BufferId there = add(1, {.role = Role::communication, .shape = {4, 2}});
  const BufferId labels = add(
      1, {.role = Role::target, .dtype = DType::i32, .persistent = true, .shape = {4}, .content = BatchRows{4, 8}});
  const BufferId loss = add(1,
                            {.role = Role::loss, .dtype = DType::f64, .shape = {4}, .content = BatchRows{4, 8}, .label = "loss"});
  const BufferId gradient = add(1, {.role = Role::gradient, .shape = {4, 2}});
  const BufferId piece = add(
      0, {.role = Role::gradient, .shape = {3}, .content = ParameterPart{"block0.weight", 3, 3, {8, 3}, 1, 2, 3, 1, 5, 8}});
  const BufferId scratch = add(1, {.role = Role::communication, .shape = {2, 1, 3}});
  const auto task = [&](std::size_t device, Lane lane, Labels labels_, Action action, std::vector<BufferId> reads,
                        std::vector<BufferId> writes, std::vector<TaskId> after = {}) {
    draft.tasks.push_back(
        {std::move(action), DeviceId(device), lane, labels_, std::move(reads), std::move(writes), {}, std::move(after)});
  };
  using End = Transfer::End;
  task(0, Lane::compute, {Phase::forward, 0, 1, 2}, Compute{op::Linear{.relu = true}}, {x, weight, bias}, {y});
  task(0, Lane::communication, {Phase::forward, 0, 0, 0}, Transfer{End::send, MeetingId(0), DeviceId(1)}, {y}, {}, {TaskId(0)});
  task(1, Lane::communication, {Phase::forward}, Transfer{End::receive, MeetingId(0), DeviceId(0)}, {}, {there});
  task(1, Lane::compute, {}, Compute{op::CrossEntropy{64}}, {there, labels}, {loss, gradient}, {TaskId(2)});
  task(1, Lane::host, {Phase::backward}, Delay{Nanoseconds(123456789012)}, {}, {}, {TaskId(2), TaskId(3)});
  task(1, Lane::compute, {Phase::backward}, Compute{op::LinearBackwardInput{.mask = true}}, {gradient}, {scratch});
  task(1, Lane::compute, {Phase::backward}, Compute{op::LinearBackwardWeight{true, 0.1}}, {gradient}, {scratch});
  task(1, Lane::compute, {Phase::backward}, Compute{op::MeanSquaredError{1000000}}, {}, {});
  task(1, Lane::compute, {Phase::backward}, Compute{op::ReluBackward{}}, {}, {});
  task(1, Lane::compute, {Phase::backward}, Compute{op::Relu{}}, {}, {});
  for (const Move kind : {Move::all_reduce, Move::broadcast, Move::reduce, Move::reduce_scatter, Move::all_gather}) {
    task(0, Lane::communication, {Phase::backward}, Collective{kind, MeetingId(3), 1, 7}, {bias, weight}, {bias, weight});
  }
  task(0, Lane::communication, {Phase::backward}, Collective{Move::reduce_scatter, MeetingId(4), 1, 7, 0, true}, {bias, piece},
       {piece});
  task(0, Lane::compute, {Phase::update},
       Update{op::Sgd{1.0 / 3, 0.9, 1e-300, {.warmup = 3, .linear_until = 9, .floor = 0.1}, true}}, {bias}, {bias});
  task(0, Lane::compute, {Phase::update}, Update{op::Adam{0, 0.1, 0.2, 0, 1e-4, true}}, {weight}, {weight, state});
  const BufferId master = add(0, {.dtype = DType::f16, .shape = {2, 3}});
  const BufferId copy = add(0, {.dtype = DType::bf16, .shape = {2, 3}});
  const BufferId flag = add(0, {.shape = {1}});
  const BufferId scaler = add(
      0, {.role = Role::optimizer_state, .persistent = true, .shape = {4}, .content = LossScaler{0.1}, .label = "scale"});
  task(0, Lane::compute, {}, Compute{op::Cast{}}, {master}, {copy});
  task(0, Lane::compute, {}, Compute{op::MeanSquaredError{7, true}}, {}, {});
  task(0, Lane::compute, {}, Compute{op::CrossEntropy{7, true}}, {}, {});
  task(0, Lane::compute, {Phase::update}, Compute{op::CheckFinite{}}, {weight, bias}, {flag});
  task(0, Lane::compute, {Phase::update}, Update{op::Sgd{0.1}, true}, {bias, flag, scaler}, {bias});
  task(0, Lane::compute, {Phase::update}, Compute{op::AdjustScale{0}}, {flag, scaler}, {scaler});
  draft.tasks[0].workspace = Bytes(4096);
  task(0, Lane::communication, {Phase::backward},
       Collective{.kind = Move::all_gather, .meeting = MeetingId(5), .size = 7, .row = 3}, {piece}, {weight});
  return Plan(draft.title, draft.devices, draft.buffers, draft.tasks);
}

TEST(PlanText, GivesBackThePlanItPrints) {
  std::size_t count = 0;
  for (const test::Sample& sample : sample_plans()) {
    const std::string text = to_text(sample.plan);
    const Plan again = parse(text);
    EXPECT_TRUE(again == sample.plan) << sample.name;
    EXPECT_EQ(to_text(again), text) << sample.name;
    ++count;
  }
  EXPECT_GE(count, 60U);
}

TEST(PlanText, CarriesEveryFieldThereIs) {
  const Plan plan = every_feature();
  const Plan again = parse(to_text(plan));
  EXPECT_TRUE(again == plan) << to_text(plan) << "became\n" << to_text(again);
  EXPECT_EQ(to_text(again), to_text(plan));
}

TEST(PlanText, TellsPlansApartExactlyWhenTheyDiffer) {
  // Equal plans print equal: built twice, they do. And every single change of a field changes the text.
  EXPECT_EQ(to_text(every_feature()), to_text(every_feature()));
  const Plan base = every_feature();
  std::set<std::string> texts{to_text(base)};
  const auto differs = [&](auto change) {
    std::string title = base.title();
    std::vector<std::string> devices = base.devices();
    std::vector<Buffer> buffers = base.buffers();
    std::vector<Task> tasks = base.tasks();
    change(title, devices, buffers, tasks);
    const Plan changed(title, devices, buffers, tasks);
    EXPECT_FALSE(changed == base);
    EXPECT_TRUE(texts.insert(to_text(changed)).second) << to_text(changed);
    EXPECT_TRUE(parse(to_text(changed)) == changed) << to_text(changed);
  };
  using Names = std::vector<std::string>;
  using Buffers = std::vector<Buffer>;
  using Tasks = std::vector<Task>;
  differs([](std::string& title, Names&, Buffers&, Tasks&) { title = ""; });
  differs([](std::string&, Names& devices, Buffers&, Tasks&) { devices[1] = "tpu"; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].persistent = false; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].dtype = DType::i32; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[1].layout = "column_major"; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].content = BatchRows{0, 4}; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].content = std::monostate(); });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].label = ""; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].label = "y"; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].shape = {4, 9}; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { b[0].role = Role::communication; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { std::get<ParameterPart>(b[1].content).slot = 2; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { std::get<ParameterPart>(b[1].content).end = 5; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { std::get<ParameterPart>(b[1].content).fan_in = 5; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { std::get<ParameterPart>(b[3].content).ordinal = 9; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) { std::get<ParameterPart>(b[3].content).whole = Shape{2, 5}; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<Collective>(t.back().action).row = 2; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].labels.block = 1; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].labels.micro_batch = -1; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].labels.stage = 0; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].labels.phase = Phase::update; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].lane = Lane::host; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].device = DeviceId(1); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].reads.pop_back(); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].writes.clear(); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[1].after.clear(); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].workspace = Bytes(0); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[2].workspace = Bytes(1); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::swap(t[0], t[1]); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<Transfer>(t[1].action).peer = DeviceId(0); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<Collective>(t[10].action).rank = 5; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<Collective>(t[15].action).accumulate = false; });
  differs([](std::string&, Names&, Buffers& b, Tasks&) {
    std::get<ParameterPart>(b[9].content).piece_begin = 4;
    std::get<ParameterPart>(b[9].content).piece_end = 7;
  });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { t[0].action = Compute{op::Linear{}}; });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<Delay>(t[4].action).duration = Nanoseconds(1); });
  differs([](std::string&, Names&, Buffers&, Tasks& t) {
    std::get<op::Sgd>(std::get<Update>(t[16].action).optimizer).rate = 0.333333;
  });
  differs([](std::string&, Names&, Buffers&, Tasks& t) { std::get<op::Adam>(std::get<Update>(t[17].action).optimizer).beta2 = 0; });
}

TEST(PlanText, ForgivesBlankLinesAndAMissingLastNewline) {
  const Plan plan = every_feature();
  std::string text = to_text(plan);
  text.pop_back();
  text.insert(text.find("device"), "\n\n");
  EXPECT_TRUE(parse(text) == plan);
}

/// A small text whose lines each corruption below breaks in one place.
constexpr std::string_view sound = R"(baton-plan 1
title "t"
device d0 cpu:0
device d1 cpu:1
buffer b0 d0 input f32 4x3 persistent rows=0:4 "x"
buffer b1 d0 parameter f32 2x3 tiled persistent of=block0.weight ordinal=0 fan_in=3 "W"
buffer b2 d0 parameter f32 2 persistent of=block0.bias ordinal=1 fan_in=3
buffer b3 d0 activation f32 4x2
buffer b4 d1 communication f32 4x2
task t0 d0 compute forward linear relu=1 block=0 workspace=64 reads=b0,b1,b2 writes=b3
task t1 d0 communication forward send meeting=m0 peer=d1 reads=b3 after=t0
task t2 d1 communication forward receive meeting=m0 peer=d0 writes=b4
task t3 d1 compute forward delay ns=5 after=t2
)";

struct Corruption {
  std::size_t line;
  std::string from;
  std::string to;
};
void PrintTo(const Corruption& broken, std::ostream* out) { *out << broken.from << " becomes " << broken.to; }

class PlanTextRefuses : public ::testing::TestWithParam<Corruption> {};

TEST_P(PlanTextRefuses, ABrokenLineByItsNumber) {
  ASSERT_NO_THROW(parse(sound));
  const Corruption& corruption = GetParam();
  std::string text(sound);
  std::size_t at = 0;
  for (std::size_t line = 1; line < corruption.line; ++line) {
    at = text.find('\n', at) + 1;
  }
  const std::size_t found = text.find(corruption.from, at);
  ASSERT_LT(found, text.find('\n', at)) << "the table is wrong: '" << corruption.from << "' is not on that line";
  text.replace(found, corruption.from.size(), corruption.to);
  const std::string sentence = baton::test::usage_sentence([&] { parse(text); });
  if (corruption.line == 1) {
    EXPECT_TRUE(baton::test::says(sentence, "baton-plan 1"));
  } else {
    EXPECT_TRUE(baton::test::says(sentence, fmt::format("line {} of the plan", corruption.line)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, PlanTextRefuses,
    ::testing::Values(
        Corruption{1, "baton-plan 1", "baton-plan 2"}, Corruption{1, "baton-plan", "plan"}, Corruption{2, "\"t\"", "\"t"},
        Corruption{2, "title", "titel"}, Corruption{2, "\"t\"", "\""}, Corruption{3, "d0", "d1"}, Corruption{3, " cpu:0", ""},
        Corruption{4, "d1", "d7"}, Corruption{4, "cpu:1", "cpu 1"}, Corruption{5, "b0", "b9"}, Corruption{5, "d0", "d2"},
        Corruption{5, "d0", "d-1"}, Corruption{5, "input", "inputs"}, Corruption{5, "f32", "f8"}, Corruption{5, "4x3", "4x"},
        Corruption{5, "4x3", "0x3"}, Corruption{5, "4x3", "-4x3"}, Corruption{5, "4x3", "4000000000x4000000000"},
        Corruption{5, "rows=0:4", "rows=4:0"}, Corruption{5, "rows=0:4", "rows=4"}, Corruption{5, "rows=0:4", "rows=a:b"},
        Corruption{5, "rows=0:4", "rows=0:4 rows=0:4"}, Corruption{5, "rows=0:4", "columns=0:4"},
        Corruption{5, "persistent", "permanent"}, Corruption{6, " ordinal=0", ""}, Corruption{6, " fan_in=3", ""},
        Corruption{6, "ordinal=0", "ordinal=-1"}, Corruption{6, "fan_in=3", "fan_in=3 whole=8x3"},
        Corruption{6, "tiled persistent", "persistent tiled"}, Corruption{6, "tiled", "Tiled"},
        Corruption{6, "tiled", "tiled tiled"}, Corruption{5, "persistent", "tiled persistent"}, Corruption{8, " 4x2", ""},
        Corruption{10, "t0", "t1"}, Corruption{10, "t0", "0"}, Corruption{10, "d0", "b0"}, Corruption{10, "compute", "computer"},
        Corruption{10, "forward", "sideways"}, Corruption{10, "linear", "conv"}, Corruption{10, "relu=1", "relu=yes"},
        Corruption{10, "relu=1", "gelu=1"}, Corruption{10, "block=0", "block=0.5"}, Corruption{10, "block=0", "block="},
        Corruption{10, "workspace=64", "workspace=-1"}, Corruption{10, "workspace=64", "workspace=4611686018427387904"},
        Corruption{10, "workspace=64", "workspace=64K"}, Corruption{10, "b0,b1", "b0,,b1"}, Corruption{10, "b0,b1", "b0,b5"},
        Corruption{10, "b0,b1", "b0,t1"}, Corruption{10, "b0,b1", "b0,b4294967296"}, Corruption{10, "linear", "linear linear"},
        Corruption{11, "meeting=m0", "meeting=0"}, Corruption{11, "meeting=m0", "meeting=m4000000000"},
        Corruption{11, "meeting=m0", "meeting=m4294967295"}, Corruption{11, " meeting=m0", ""}, Corruption{11, " peer=d1", ""},
        Corruption{11, "peer=d1", "peer=d2"}, Corruption{11, "after=t0", "after=t4"}, Corruption{11, "after=t0", "after=b0"},
        Corruption{11, "after=t0", "before=t0"}, Corruption{11, "send meeting=m0 peer=d1", "all_reduce meeting=m0 rank=0"},
        Corruption{11, "send meeting=m0 peer=d1", "all_reduce meeting=m0 rank=-1 size=2"},
        Corruption{11, "send meeting=m0 peer=d1", "sgd rate=fast"}, Corruption{13, "ns=5", "ns=5s"}, Corruption{13, " ns=5", ""},
        Corruption{13, "delay", ""}, Corruption{13, "task", "tusk"}, Corruption{13, "forward delay ns=5 after=t2", ""}));

TEST(PlanText, NoTruncationAndNoLostLineCrashesIt) {
  const std::string whole = to_text(every_feature());
  std::size_t refused = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage);
      ++refused;
    }  // anything else escapes and fails the test
  };
  for (std::size_t length = 0; length < whole.size(); ++length) {
    attempt(whole.substr(0, length));
  }
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = whole.find('\n', begin) + 1;
    attempt(whole.substr(0, begin) + whole.substr(end));
    begin = end;
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char c : {' ', '=', '"', '0', 'x', '\n'}) {
      std::string changed = whole;
      changed[i] = c;
      attempt(changed);
    }
  }
  EXPECT_GT(refused, whole.size());
}

}  // namespace
}  // namespace baton::plan
