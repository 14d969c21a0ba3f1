#include "baton/strategy/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/model/zoo.h"
#include "baton/op/traits.h"
#include "baton/plan/verify.h"
#include "support/tiled_weights.h"
#include "support/usage_sentence.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

using plan::Draft;
using plan::Lane;
using plan::Phase;
using plan::Role;
using test::says;
using test::usage_sentence;
using Labels = std::vector<std::string>;

const model::Model& model() {
  static const model::Model two_blocks = model::mlp({3, 5, 2});
  return two_blocks;
}

/// Two blocks, two rows per device, everything on its own device.
Draft replicas(std::size_t count) {
  return training_step(model(), {.global_batch = 2 * static_cast<std::int64_t>(count)}, replicated(model(), count, 2));
}

/// The same, but device 0 owns data, parameters and losses.
Draft owned(std::size_t count) {
  Placement placement = replicated(model(), count, 2);
  placement.owner = DeviceId(0);
  return training_step(model(), {.global_batch = 2 * static_cast<std::int64_t>(count)}, placement);
}

Draft two_stages() {
  return training_step(model(), {.global_batch = 4},
                       {.replicas = {{{0, 4}, {DeviceId(0), DeviceId(1)}}}, .owner = {}, .devices = {"cpu:0", "cpu:1"}});
}

// ---- training_step and even_split

TEST(EvenSplit, TheFirstPartsGetOneMore) {
  EXPECT_EQ(even_split(7, 3), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(even_split(13, 5), (std::vector<std::int64_t>{3, 3, 3, 2, 2}));
  EXPECT_EQ(even_split(6, 3), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_EQ(even_split(5, 5), (std::vector<std::int64_t>{1, 1, 1, 1, 1}));
  EXPECT_EQ(even_split(4, 1), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(even_split(1, 2), (std::vector<std::int64_t>{1, 0}));
}

TEST(TrainingStep, IsForwardThenLossThenBackwardFromTheLastBlockWithoutTheGradientOfTheData) {
  const Draft draft = replicas(1);
  std::vector<std::string> verbs;
  for (const plan::Task& task : draft.tasks) {
    verbs.push_back(fmt::format("{} {}", plan::verb(task), task.labels.block));
    EXPECT_EQ(task.lane, Lane::compute);
  }
  EXPECT_EQ(verbs, (std::vector<std::string>{"linear 0", "relu 0", "linear 1", "relu 1", "mean_squared_error 1", "relu_backward 1",
                                             "linear_backward_input 1", "linear_backward_weight 1", "relu_backward 0",
                                             "linear_backward_weight 0"}));
  for (const plan::Task& task : draft.tasks) {
    EXPECT_EQ(task.labels.phase, plan::verb(task).find("backward") == std::string_view::npos ? Phase::forward : Phase::backward);
  }
}

TEST(TrainingStep, DividesTheLossByTheWholeBatchSoThatPartsAddUp) {
  const Draft draft = replicas(3);
  for (const std::size_t i : places(draft.tasks, "mean_squared_error")) {
    EXPECT_EQ(std::get<plan::Compute>(draft.tasks[i].action).op, op::Op(op::MeanSquaredError{6 * 2}));
  }
  EXPECT_EQ(places(draft.tasks, "mean_squared_error").size(), 3U);
}

TEST(TrainingStep, AnOwnerHoldsDataParametersAndLossesOfAllReplicasOnce) {
  const Draft draft = owned(3);
  int parameters = 0;
  for (const plan::Buffer& buffer : draft.buffers) {
    if (buffer.persistent || buffer.role == Role::loss) {
      EXPECT_EQ(buffer.device, DeviceId(0)) << buffer.label;
    }
    parameters += buffer.role == Role::parameter ? 1 : 0;
  }
  EXPECT_EQ(parameters, 4);
}

// ---- replicate_parameters

TEST(ReplicateParameters, GivesEveryDeviceACopyInOneBroadcastBeforeEverythingElse) {
  const Draft draft = replicate_parameters(owned(3));
  ASSERT_EQ(places(draft.tasks, "broadcast"), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(draft.tasks[0].device, DeviceId(0));
  EXPECT_EQ(labels(draft, draft.tasks[0].reads), (Labels{"block0.weight", "block0.bias", "block1.weight", "block1.bias"}));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const plan::Task& task = draft.tasks[rank];
    EXPECT_EQ(task.lane, Lane::communication);
    EXPECT_EQ(task.device, DeviceId(rank));
    const auto& collective = std::get<plan::Collective>(task.action);
    EXPECT_EQ(collective.rank, rank);
    EXPECT_EQ(collective.size, 3U);
    if (rank > 0) {
      EXPECT_EQ(labels(draft, task.writes), labels(draft, draft.tasks[0].reads));
      for (const BufferId id : task.writes) {
        EXPECT_FALSE(draft[id].persistent) << "a copy does not live on: the owner's is the one that is trained";
      }
    }
  }
  for (const plan::Task& task : draft.tasks) {
    for (const BufferId id : task.reads) {
      EXPECT_TRUE(draft[id].role != Role::parameter || draft[id].device == task.device) << draft[id].label;
    }
  }
}

TEST(ReplicateParameters, LeavesADraftAloneWhereEveryDeviceOwnsItsParameters) {
  const Draft before = replicas(2);
  const Draft after = replicate_parameters(before);
  EXPECT_EQ(after.tasks, before.tasks);
  EXPECT_EQ(after.buffers, before.buffers);
}

// ---- add_transfers

TEST(AddTransfers, SendsWhatTheNextStageReadsRightBehindTheTaskThatWroteIt) {
  ASSERT_FALSE(local(two_stages()));
  const Draft draft = add_transfers(two_stages());
  EXPECT_TRUE(local(draft));
  const std::vector<std::size_t> sends = places(draft.tasks, "send");
  const std::vector<std::size_t> receives = places(draft.tasks, "receive");
  ASSERT_EQ(sends.size(), 2U);
  ASSERT_EQ(receives.size(), 2U);
  // Forward: the activation of block 0, device 0 to 1. Backward: its gradient, the other way.
  EXPECT_EQ(plan::verb(draft.tasks[sends[0] - 1]), "relu");
  EXPECT_EQ(labels(draft, draft.tasks[sends[0]].reads), Labels{"block0.relu"});
  EXPECT_EQ(draft.tasks[sends[0]].device, DeviceId(0));
  EXPECT_EQ(draft.tasks[receives[0]].device, DeviceId(1));
  EXPECT_EQ(plan::verb(draft.tasks[sends[1] - 1]), "linear_backward_input");
  EXPECT_EQ(labels(draft, draft.tasks[sends[1]].reads), Labels{"d block0.relu"});
  EXPECT_EQ(draft.tasks[sends[1]].device, DeviceId(1));
  EXPECT_EQ(draft.tasks[receives[1]].device, DeviceId(0));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(receives[i], sends[i] + 1);
    EXPECT_EQ(plan::meeting_of(draft.tasks[sends[i]]), plan::meeting_of(draft.tasks[receives[i]]));
    EXPECT_EQ(draft.tasks[sends[i]].lane, Lane::communication);
    const plan::Buffer& arrived = draft[draft.tasks[receives[i]].writes[0]];
    EXPECT_EQ(arrived.role, Role::communication);
    EXPECT_EQ(arrived.shape, draft[draft.tasks[sends[i]].reads[0]].shape);
  }
}

TEST(AddTransfers, SendsAValueOnceHoweverManyTasksOfADeviceReadIt) {
  Draft draft = two_stages();
  const auto reader = std::find_if(draft.tasks.begin(), draft.tasks.end(),
                                   [](const plan::Task& task) { return task.device == DeviceId(1); });
  draft.tasks.insert(reader, *reader);
  EXPECT_EQ(places(add_transfers(std::move(draft)).tasks, "send").size(), 2U);
}

TEST(AddTransfers, SendsAgainWhatWasWrittenAgain) {
  Draft draft = two_stages();
  std::size_t writer = 1;
  ASSERT_EQ(plan::verb(draft.tasks[writer]), "relu");
  const plan::Task write = draft.tasks[writer];
  const plan::Task read = draft.tasks[writer + 1];
  draft.tasks.insert(draft.tasks.begin() + 3, {write, read});  // written and read a second time
  const Draft after = add_transfers(std::move(draft));
  ASSERT_EQ(places(after.tasks, "send").size(), 3U);
  const std::vector<std::size_t> receives = places(after.tasks, "receive");
  EXPECT_NE(after.tasks[receives[0]].writes, after.tasks[receives[1]].writes);
}

TEST(AddTransfers, LeavesADraftAloneWhereNothingCrosses) {
  const Draft before = replicas(2);
  EXPECT_EQ(add_transfers(before).tasks, before.tasks);
}

// ---- all_reduce_gradients

/// The labels of what each all-reduce of device 0 sums, in order.
std::vector<Labels> buckets(const Draft& draft) {
  std::vector<Labels> list;
  for (const std::size_t i : places(draft.tasks, "all_reduce")) {
    if (draft.tasks[i].device == DeviceId(0)) {
      list.push_back(labels(draft, draft.tasks[i].reads));
    }
  }
  return list;
}

// The gradients, in reverse order of the parameters, and their bytes:
//   block1.bias 2·4 = 8, block1.weight 2·5·4 = 40, block0.bias 5·4 = 20, block0.weight 5·3·4 = 60
TEST(AllReduceGradients, ClosesABucketWhenItReachesItsLimitAsPyTorchDoes) {
  const auto with = [](std::int64_t first, std::int64_t others) {
    return buckets(all_reduce_gradients(replicas(2), Bytes(first), Bytes(others)));
  };
  EXPECT_EQ(with(1, 1), (std::vector<Labels>{{"d block1.bias"}, {"d block1.weight"}, {"d block0.bias"}, {"d block0.weight"}}));
  EXPECT_EQ(with(48, 1000), (std::vector<Labels>{{"d block1.bias", "d block1.weight"}, {"d block0.bias", "d block0.weight"}}))
      << "48 bytes are there after two gradients: reached is enough";
  EXPECT_EQ(with(49, 1000), (std::vector<Labels>{{"d block1.bias", "d block1.weight", "d block0.bias"}, {"d block0.weight"}}));
  EXPECT_EQ(with(8, 60), (std::vector<Labels>{{"d block1.bias"}, {"d block1.weight", "d block0.bias"}, {"d block0.weight"}}))
      << "the first limit counts for the first bucket only";
  EXPECT_EQ(with(1 << 20, 25 << 20),
            (std::vector<Labels>{{"d block1.bias", "d block1.weight", "d block0.bias", "d block0.weight"}}));
}

TEST(AllReduceGradients, HasPyTorchsLimitsByDefault) {
  EXPECT_EQ(Layout{}.first_bucket, Bytes(1024 * 1024));
  EXPECT_EQ(Layout{}.bucket, Bytes(25 * 1024 * 1024));
}

TEST(AllReduceGradients, StandsOnEachDeviceRightBehindItsLastGradientOfTheBucketOnTheCommunicationLane) {
  const Draft draft = all_reduce_gradients(replicas(3), Bytes(48), Bytes(1000));
  const std::vector<std::size_t> members = places(draft.tasks, "all_reduce");
  ASSERT_EQ(members.size(), 6U);  // two buckets, three devices
  const std::vector<std::size_t> weights = places(draft.tasks, "linear_backward_weight");
  ASSERT_EQ(weights.size(), 6U);
  EXPECT_LT(members[2], weights[3]) << "before the backward of block 0, which it overlaps";
  for (std::size_t i = 0; i < members.size(); ++i) {
    EXPECT_EQ(members[i], weights[i] + 1);
    const plan::Task& task = draft.tasks[members[i]];
    EXPECT_EQ(task.device, draft.tasks[weights[i]].device);
    EXPECT_EQ(task.lane, Lane::communication);
    EXPECT_EQ(task.labels.phase, Phase::backward);
    EXPECT_EQ(task.reads, task.writes);
    const auto& collective = std::get<plan::Collective>(task.action);
    EXPECT_EQ(collective.rank, i % 3);
    EXPECT_EQ(collective.size, 3U);
    EXPECT_EQ(collective.meeting, std::get<plan::Collective>(draft.tasks[members[i / 3 * 3]].action).meeting);
  }
}

TEST(AllReduceGradients, AddsNothingOnOneDevice) {
  const Draft before = replicas(1);
  EXPECT_EQ(all_reduce_gradients(before, Bytes(1), Bytes(1)).tasks, before.tasks);
}

// ---- reduce_gradients_to

TEST(ReduceGradientsTo, SumsAllGradientsIntoTheOwnersInOneReductionAfterTheLast) {
  for (const std::uint32_t owner : {0U, 2U}) {
    const Draft draft = reduce_gradients_to(replicas(3), DeviceId(owner));
    const std::vector<std::size_t> members = places(draft.tasks, "reduce");
    ASSERT_EQ(members.size(), 3U);
    EXPECT_EQ(members[0], draft.tasks.size() - 3) << "after everything else";
    std::vector<bool> seen(3, false);
    for (const std::size_t i : members) {
      const plan::Task& task = draft.tasks[i];
      const auto& collective = std::get<plan::Collective>(task.action);
      EXPECT_EQ(collective.rank == 0, task.device == DeviceId(owner));
      EXPECT_EQ(task.writes, collective.rank == 0 ? task.reads : std::vector<BufferId>{});
      EXPECT_EQ(labels(draft, task.reads), (Labels{"d block0.weight", "d block0.bias", "d block1.weight", "d block1.bias"}));
      seen[task.device.index()] = true;
    }
    EXPECT_EQ(seen, std::vector<bool>(3, true));
  }
}

TEST(ReduceGradientsTo, AddsNothingOnOneDevice) {
  const Draft before = replicas(1);
  EXPECT_EQ(reduce_gradients_to(before, DeviceId(0)).tasks, before.tasks);
}

// ---- add_updates

TEST(AddUpdates, AddsATaskABlockAndDeviceFromTheLastBlockToTheFirst) {
  const Draft draft = add_updates(replicas(2), op::Sgd{});
  const std::vector<std::size_t> updates = places(draft.tasks, "sgd");
  ASSERT_EQ(updates.size(), 4U);
  EXPECT_EQ(updates[0], draft.tasks.size() - 4);
  std::vector<std::pair<int, int>> block_and_device;
  for (const std::size_t i : updates) {
    const plan::Task& task = draft.tasks[i];
    block_and_device.emplace_back(task.labels.block, task.device.value);
    EXPECT_EQ(task.labels.phase, Phase::update);
    const std::string block = fmt::format("block{}.", task.labels.block);
    EXPECT_EQ(labels(draft, task.writes), (Labels{block + "weight", block + "bias"}));
    EXPECT_EQ(labels(draft, task.reads),
              (Labels{"d " + block + "weight", "d " + block + "bias", block + "weight", block + "bias"}));
  }
  std::sort(block_and_device.begin(), block_and_device.end());
  EXPECT_EQ(block_and_device, (std::vector<std::pair<int, int>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(draft.tasks[updates[0]].labels.block, 1);
  EXPECT_EQ(draft.tasks[updates[3]].labels.block, 0);
}

TEST(AddUpdates, KeepsTheStateThatTheOptimizerNeeds) {
  const std::size_t plain = add_updates(replicas(1), op::Sgd{}).buffers.size();
  const Draft momentum = add_updates(replicas(1), op::Sgd{.momentum = 0.9});
  const Draft adam = add_updates(replicas(1), op::Adam{});
  EXPECT_EQ(plain, replicas(1).buffers.size());
  EXPECT_EQ(momentum.buffers.size(), plain + 4);
  EXPECT_EQ(adam.buffers.size(), plain + 8);
  const plan::Task& last = adam.tasks.back();
  EXPECT_EQ(labels(adam, last.writes), (Labels{"block0.weight", "block0.bias", "state 0 of block0.weight",
                                               "state 1 of block0.weight", "state 0 of block0.bias", "state 1 of block0.bias"}));
  for (std::size_t i = 2; i < last.writes.size(); ++i) {
    const plan::Buffer& state = adam[last.writes[i]];
    EXPECT_TRUE(state.persistent);
    EXPECT_EQ(state.role, Role::optimizer_state);
    EXPECT_EQ(std::get<plan::ParameterPart>(state.content).slot, i % 2);
  }
}

TEST(AddUpdates, UpdatesOnlyTheOwnersParametersAndNotTheCopies) {
  Draft draft = reduce_gradients_to(add_transfers(replicate_parameters(owned(3))), DeviceId(0));
  draft = add_updates(std::move(draft), op::Sgd{});
  for (const std::size_t i : places(draft.tasks, "sgd")) {
    EXPECT_EQ(draft.tasks[i].device, DeviceId(0));
  }
  EXPECT_EQ(places(draft.tasks, "sgd").size(), 2U);
}

// ---- fuse

const plan::Target all{.joined = op::joint_ops(), .gradient_with_sgd = true};

bool fuses_sgd(const Draft& draft) {
  const Draft fused = fuse(draft, all);
  int rated = 0;
  int plain = 0;
  for (const std::size_t i : places(fused.tasks, "linear_backward_weight")) {
    const auto& op = std::get<op::LinearBackwardWeight>(std::get<plan::Compute>(fused.tasks[i].action).op);
    (op.sgd_rate > 0 ? rated : plain) += 1;
  }
  EXPECT_TRUE(rated == 0 || plain == 0) << rated << " fused and " << plain << " not";
  EXPECT_EQ(rated == 0, !places(fused.tasks, "sgd").empty() || !places(fused.tasks, "adam").empty());
  return rated > 0;
}

TEST(Fuse, JoinsA16BitGradientWithItsStepOnlyForATargetThatDoesSo) {
  const Draft before = cast_parameters(
      narrow_values(add_updates(replicas(1), op::Sgd{.rate = 0.5}), Step{.precision = Precision::bf16}), DType::bf16);
  EXPECT_FALSE(places(fuse(before, all).tasks, "sgd").empty());
  plan::Target mixed = all;
  mixed.narrow_gradient_with_sgd = {DType::bf16, DType::f16};
  const Draft after = fuse(before, mixed);
  EXPECT_TRUE(places(after.tasks, "sgd").empty());
  for (const std::size_t i : places(after.tasks, "linear_backward_weight")) {
    EXPECT_EQ(after[after.tasks[i].reads[0]].dtype, DType::bf16);
    EXPECT_EQ(after[after.tasks[i].writes[0]].dtype, DType::f32);
  }
}

TEST(Fuse, UsesTf32InEveryProductAndNothingElse) {
  const Draft before = add_updates(replicas(1), op::Sgd{});
  const Draft after = use_tf32(before);
  ASSERT_EQ(after.tasks.size(), before.tasks.size());
  for (std::size_t i = 0; i < after.tasks.size(); ++i) {
    const std::string_view verb = plan::verb(after.tasks[i]);
    EXPECT_EQ(after.tasks[i] == before.tasks[i], !verb.starts_with("linear")) << verb;
  }
}

TEST(Fuse, JoinsNothingForATargetThatJoinsNothing) {
  const Draft before = add_updates(replicas(1), op::Sgd{});
  const Draft after = fuse(before, plan::Target{});
  EXPECT_EQ(after.tasks, before.tasks);
  EXPECT_EQ(after.buffers, before.buffers);
}

TEST(Fuse, JoinsALinearAndItsReluAndDropsTheBufferBetween) {
  const Draft before = replicas(1);
  const Draft after = fuse(before, {.joined = {op::Linear{.relu = true}}});
  EXPECT_TRUE(places(after.tasks, "relu").empty());
  EXPECT_EQ(after.tasks.size(), before.tasks.size() - 2);
  EXPECT_EQ(after.buffers.size(), before.buffers.size() - 2);
  for (const std::size_t i : places(after.tasks, "linear")) {
    EXPECT_EQ(std::get<plan::Compute>(after.tasks[i].action).op, op::Op(op::Linear{.relu = true}));
    EXPECT_EQ(labels(after, after.tasks[i].writes), Labels{fmt::format("block{}.relu", after.tasks[i].labels.block)});
  }
}

TEST(Fuse, KeepsALinearApartFromItsReluWhereSomethingElseReadsBetween) {
  Draft draft = replicas(1);
  ASSERT_EQ(plan::verb(draft.tasks[1]), "relu");
  draft.tasks.insert(draft.tasks.begin() + 2, draft.tasks[1]);
  const plan::Buffer output = draft[draft.tasks[1].writes[0]];
  draft.tasks[2].writes = {draft.add(output)};
  const Draft after = fuse(draft, {.joined = {op::Linear{.relu = true}}});
  EXPECT_EQ(places(after.tasks, "relu").size(), 2U) << "those of block 0; block 1's is joined";
}

TEST(Fuse, JoinsAnInputGradientAndTheReluBackwardBeforeItAsAMask) {
  const Draft before = replicas(1);
  const Draft after = fuse(before, {.joined = {op::LinearBackwardInput{.mask = true}}});
  EXPECT_EQ(places(after.tasks, "relu_backward").size(), 1U) << "the last block's has no product before it";
  const std::vector<std::size_t> masked = places(after.tasks, "linear_backward_input");
  ASSERT_EQ(masked.size(), 1U);
  EXPECT_EQ(std::get<plan::Compute>(after.tasks[masked[0]].action).op, op::Op(op::LinearBackwardInput{.mask = true}));
  EXPECT_EQ(labels(after, after.tasks[masked[0]].reads), (Labels{"d block1.linear", "block1.weight", "block0.relu"}));
  EXPECT_EQ(labels(after, after.tasks[masked[0]].writes), Labels{"d block0.linear"});
}

TEST(Fuse, KeepsAMaskApartWhereTheGradientCrossesToAnotherDevice) {
  const Draft after = fuse(add_transfers(two_stages()), all);
  EXPECT_EQ(places(after.tasks, "relu_backward").size(), 2U);
  const std::vector<std::size_t> products = places(after.tasks, "linear_backward_input");
  ASSERT_EQ(products.size(), 1U);
  EXPECT_EQ(std::get<plan::Compute>(after.tasks[products[0]].action).op, op::Op(op::LinearBackwardInput{}));
}

TEST(Fuse, JoinsThePlainSgdStepIntoTheWeightGradient) {
  const Draft before = add_updates(replicas(1), op::Sgd{.rate = 0.5});
  const Draft after = fuse(before, {.gradient_with_sgd = true});
  EXPECT_TRUE(places(after.tasks, "sgd").empty());
  EXPECT_EQ(after.buffers.size(), before.buffers.size() - 4) << "no gradient of a parameter is kept";
  for (const std::size_t i : places(after.tasks, "linear_backward_weight")) {
    const plan::Task& task = after.tasks[i];
    EXPECT_EQ(std::get<plan::Compute>(task.action).op, op::Op(op::LinearBackwardWeight{.sgd_rate = 0.5}));
    const std::string block = fmt::format("block{}.", task.labels.block);
    EXPECT_EQ(labels(after, task.writes), (Labels{block + "weight", block + "bias"}));
    ASSERT_EQ(task.reads.size(), 4U);
    EXPECT_EQ(task.reads[2], task.writes[0]) << "what is changed is read";
    EXPECT_EQ(task.reads[3], task.writes[1]);
  }
}

TEST(Fuse, KeepsTheSgdStepApartWhereACollectiveStandsBetween) {
  const auto ddp = [](std::size_t count) {
    return add_updates(all_reduce_gradients(replicas(count), Bytes(1), Bytes(1)), op::Sgd{});
  };
  EXPECT_TRUE(fuses_sgd(ddp(1))) << "on one device nothing does";
  EXPECT_FALSE(fuses_sgd(ddp(2)));
  EXPECT_FALSE(fuses_sgd(add_updates(reduce_gradients_to(add_transfers(replicate_parameters(owned(2))), DeviceId(0)), op::Sgd{})));
  EXPECT_TRUE(fuses_sgd(add_updates(add_transfers(two_stages()), op::Sgd{}))) << "stages share no parameter";
}

TEST(Fuse, KeepsTheStepApartUnlessItIsPlainSgd) {
  EXPECT_TRUE(fuses_sgd(add_updates(replicas(1), op::Sgd{.rate = 0.1})));
  EXPECT_FALSE(fuses_sgd(add_updates(replicas(1), op::Sgd{.rate = 0.1, .momentum = 0.9})));
  EXPECT_FALSE(fuses_sgd(add_updates(replicas(1), op::Sgd{.rate = 0.1, .weight_decay = 0.1})));
  EXPECT_FALSE(fuses_sgd(add_updates(replicas(1), op::Sgd{.rate = 0.1, .schedule = {.warmup = 3}})));
  EXPECT_FALSE(fuses_sgd(add_updates(replicas(1), op::Adam{})));
}

TEST(Fuse, KeepsTheSgdStepApartWhereTheGradientIsAddedTo) {
  Draft draft = add_updates(replicas(1), op::Sgd{});
  for (const std::size_t i : places(draft.tasks, "linear_backward_weight")) {
    draft.tasks[i].action = plan::Compute{op::LinearBackwardWeight{.accumulate = true}};
  }
  EXPECT_FALSE(fuses_sgd(draft));
}

TEST(Fuse, KeepsTheSgdStepApartWhereTheWeightsAreReadBeforeIt) {
  Draft draft = add_updates(replicas(1), op::Sgd{});
  const std::size_t weight_gradient = places(draft.tasks, "linear_backward_weight")[0];
  const std::size_t input_gradient = places(draft.tasks, "linear_backward_input")[0];
  ASSERT_EQ(weight_gradient, input_gradient + 1);
  std::swap(draft.tasks[weight_gradient], draft.tasks[input_gradient]);  // as a schedule may order them
  const Draft after = fuse(std::move(draft), {.gradient_with_sgd = true});
  EXPECT_EQ(places(after.tasks, "sgd").size(), 1U) << "block 1's step stays, block 0's is joined";
}

// ---- set_layouts

TEST(SetLayouts, GivesWeightsTheirGradientsStatesAndCopiesTheLayoutThatTheTargetWantsAndNothingElse) {
  Draft draft = add_updates(replicate_parameters(owned(2)), op::Sgd{.momentum = 0.9});
  draft = set_layouts(std::move(draft), {.layout = test::tiled_weights});
  int tiled = 0;
  for (const plan::Buffer& buffer : draft.buffers) {
    const bool weight = buffer.label.find("weight") != std::string::npos;
    EXPECT_EQ(buffer.layout == "tiled", weight) << buffer.label;
    tiled += weight ? 1 : 0;
  }
  EXPECT_EQ(tiled, 2 + 2 + 2 + 4) << "two weights, two copies, two states, a gradient each on two devices";
}

TEST(SetLayouts, RefusesABackendThatContradictsItselfOrNamesALayoutByNoName) {
  const auto both = [](std::span<const plan::Buffer>, const plan::Task& task, BufferId) {
    return std::string(plan::verb(task) == "linear" ? "rows" : "columns");
  };
  EXPECT_THROW(set_layouts(owned(2), {.layout = both}), BugError);
  for (const std::string name : {"Rows", "two words", "persistent", "1d", "a=b"}) {
    const auto wrong = [&](std::span<const plan::Buffer>, const plan::Task&, BufferId) { return name; };
    EXPECT_THROW(set_layouts(owned(2), {.layout = wrong}), BugError) << name;
  }
}

// ---- inject_delays

TEST(InjectDelays, PutsADelayBeforeThePhasesFirstComputationOnEachDeviceAskedFor) {
  for (const auto& [phase, verb] : std::vector<std::pair<Phase, std::string>>{
           {Phase::forward, "linear"}, {Phase::backward, "relu_backward"}, {Phase::update, "sgd"}}) {
    for (const std::int64_t rank : {-1, 0, 1}) {
      const std::vector<DelayRequest> asked{{phase, rank, Nanoseconds(5)}};
      const Draft before = add_updates(all_reduce_gradients(replicas(2), Bytes(1), Bytes(1)), op::Sgd{});
      const Draft after = inject_delays(before, asked);
      const std::vector<std::size_t> delays = places(after.tasks, "delay");
      ASSERT_EQ(delays.size(), rank < 0 ? 2U : 1U);
      EXPECT_EQ(after.tasks.size(), before.tasks.size() + delays.size());
      for (const std::size_t i : delays) {
        const plan::Task& delay = after.tasks[i];
        EXPECT_TRUE(rank < 0 || delay.device == DeviceId(static_cast<std::size_t>(rank)));
        EXPECT_EQ(delay.lane, Lane::compute);
        EXPECT_EQ(std::get<plan::Delay>(delay.action).duration, Nanoseconds(5));
        const auto of_lane = [&](const plan::Task& task) { return task.device == delay.device && task.lane == Lane::compute; };
        const auto next = std::find_if(after.tasks.begin() + static_cast<std::ptrdiff_t>(i) + 1, after.tasks.end(), of_lane);
        ASSERT_NE(next, after.tasks.end());
        EXPECT_EQ(plan::verb(*next), verb);
        EXPECT_EQ(next->labels.phase, phase);
        for (std::size_t earlier = 0; earlier < i; ++earlier) {
          EXPECT_TRUE(!of_lane(after.tasks[earlier]) || after.tasks[earlier].labels.phase != phase);
        }
      }
    }
  }
}

TEST(InjectDelays, LeavesOutDevicesWithoutThatPhaseAndDelaysOfNoTime) {
  const Draft draft = add_updates(reduce_gradients_to(add_transfers(replicate_parameters(owned(2))), DeviceId(0)), op::Sgd{});
  const std::vector<DelayRequest> everywhere{{Phase::update, -1, Nanoseconds(5)}};
  EXPECT_EQ(places(inject_delays(draft, everywhere).tasks, "delay").size(), 1U) << "only the owner updates";
  const std::vector<DelayRequest> nothing{{Phase::backward, -1, Nanoseconds(0)}};
  EXPECT_EQ(inject_delays(draft, nothing).tasks, draft.tasks);
}

TEST(InjectDelays, RefusesADeviceThatIsNotThere) {
  const std::vector<DelayRequest> asked{{Phase::forward, 2, Nanoseconds(5)}};
  const std::string said = usage_sentence([&] { inject_delays(replicas(2), asked); });
  EXPECT_TRUE(says(said, "device 2"));
  EXPECT_TRUE(says(said, "2 devices"));
}

// ---- all passes together

TEST(Passes, LeaveADraftThatFinishesToALawfulPlan) {
  const auto updated = [](Draft draft, const op::Optimizer& optimizer) {
    draft.graph.optimizer = optimizer;  // as the step that it was written for has it
    return add_updates(std::move(draft), optimizer);
  };
  const std::vector<Draft> drafts{
      updated(replicas(1), op::Sgd{}), updated(all_reduce_gradients(replicas(3), Bytes(30), Bytes(50)), op::Adam{}),
      updated(reduce_gradients_to(add_transfers(replicate_parameters(owned(3))), DeviceId(0)), op::Sgd{}),
      updated(add_transfers(two_stages()), op::Sgd{.momentum = 0.9})};
  for (const Draft& draft : drafts) {
    for (const plan::Target& target : {plan::Target{}, all}) {
      const plan::Plan finished = plan::finish(set_layouts(fuse(draft, target), {.layout = test::tiled_weights}));
      const plan::Verdict verdict = plan::verify(finished);
      EXPECT_TRUE(verdict.holds()) << verdict.violations.front().text;
    }
  }
}

}  // namespace
}  // namespace baton::strategy
