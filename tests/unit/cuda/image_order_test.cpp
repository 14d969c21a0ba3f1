#include "baton/cuda/image_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "baton/model/builder.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

/// Which images a GPU keeps with their channels last, and which tasks share what a norm sums: decided from the plan alone.
namespace baton::cuda {
namespace {

plan::Plan plan_of(const std::string& model, const std::string& strategy, std::size_t devices, strategy::Precision precision,
                   std::int64_t micro_batches = 1) {
  const model::Model parsed = model::parse_model(model);
  const cluster::Cluster cluster(test::cpus(devices));
  strategy::Layout layout;
  layout.micro_batches = micro_batches;
  return strategy::compile({.model = parsed,
                            .cluster = cluster,
                            .strategy = strategy,
                            .step = {.global_batch = 8, .precision = precision},
                            .layout = layout});
}

template <typename AnyOp>
const AnyOp* op_of(const plan::Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute == nullptr ? nullptr : std::get_if<AnyOp>(&compute->op);
}

constexpr const char* small_resnet = "resnet:18,image=32,classes=10,group=4";

TEST(ImageOrder, AResNetIn16BitsHasItsChannelsLastButForWhatItIsGiven) {
  const plan::Plan plan = plan_of(small_resnet, "single", 1, strategy::Precision::bf16);
  const std::vector<bool> last = channels_last(plan);
  std::size_t convolutions = 0;
  for (const plan::Task& task : plan.tasks()) {
    if (op_of<op::Conv2d>(task) != nullptr) {
      ++convolutions;
      EXPECT_TRUE(last[task.writes[0].index()]);
      EXPECT_EQ(last[task.reads[0].index()], plan[task.reads[0]].shape[1] % 8 == 0) << "three colours stay as they are";
      EXPECT_FALSE(last[task.reads[1].index()]) << "weights are no images";
    }
  }
  EXPECT_EQ(convolutions, 20U);
  for (std::size_t b = 0; b < last.size(); ++b) {
    EXPECT_FALSE(last[b] && plan.buffers()[b].persistent);
  }
}

TEST(ImageOrder, In32BitsNothingIs) {
  const std::vector<bool> last = channels_last(plan_of(small_resnet, "single", 1, strategy::Precision::fp32));
  EXPECT_EQ(std::count(last.begin(), last.end(), true), 0);
}

TEST(ImageOrder, WhatIsSentArrivesInTheSameOrder) {
  const plan::Plan plan = plan_of(small_resnet, "1f1b", 2, strategy::Precision::bf16, 2);
  const std::vector<bool> last = channels_last(plan);
  std::size_t sent = 0;
  for (const plan::Task& task : plan.tasks()) {
    const auto* transfer = std::get_if<plan::Transfer>(&task.action);
    if (transfer != nullptr && transfer->end == plan::Transfer::End::send) {
      for (const TaskId member : plan.members(transfer->meeting)) {
        for (std::size_t i = 0; i < plan[member].writes.size(); ++i) {
          EXPECT_EQ(last[task.reads[i].index()], last[plan[member].writes[i].index()]);
          sent += last[task.reads[i].index()] ? 1U : 0U;
        }
      }
    }
  }
  EXPECT_GT(sent, 0U);
}

TEST(ImageOrder, ImagesThatBecomeASequenceKeepTheUsualOrder) {
  const plan::Plan plan = plan_of("vit:depth=1,heads=2,dim=16,patch=4,image=16,classes=10", "single", 1, strategy::Precision::bf16);
  const std::vector<bool> last = channels_last(plan);
  for (const plan::Task& task : plan.tasks()) {
    if (op_of<op::ImageToSequence>(task) != nullptr) {
      EXPECT_FALSE(last[task.reads[0].index()]);
    }
  }
}

TEST(ImageOrder, ImagesThatTwoNormsReadKeepTheUsualOrderSinceTheirSumsHaveOnePlace) {
  const auto last_of_norms = [](bool twice) {
    model::BlockBuilder stem("stem", {{'b'}, {'c', 8}, {'y', 8}, {'x', 8}});
    const std::size_t x = stem.conv2d(stem.in(), "conv", 8, {.size = 3, .stride = 1, .padding = 1}, false);
    std::size_t y = stem.batch_norm(x, "first", 4);
    y = stem.add(y, twice ? stem.batch_norm(x, "second", 4) : x);
    const model::Block block = stem.finish(stem.conv2d(stem.relu(y), "last", 8, {.size = 1, .stride = 1, .padding = 0}, false));
    const model::Model model("two-norms", {block});
    const cluster::Cluster cluster(test::cpus(1));
    const plan::Plan plan = strategy::compile({.model = model,
                                               .cluster = cluster,
                                               .strategy = "single",
                                               .step = {.global_batch = 8, .precision = strategy::Precision::bf16}});
    const std::vector<bool> last = channels_last(plan);
    std::vector<bool> of_norms;
    for (const plan::Task& task : plan.tasks()) {
      if (op_of<op::BatchNorm>(task) != nullptr) {
        of_norms.push_back(last[task.reads[0].index()]);
      }
    }
    return of_norms;
  };
  EXPECT_EQ(last_of_norms(false), std::vector<bool>{true});
  EXPECT_EQ(last_of_norms(true), (std::vector<bool>{false, false}));
}

TEST(ImageOrder, ImagesThatNormsOfOneGainButOtherSettingsReadKeepTheUsualOrder) {
  const plan::Plan plan = plan_of(small_resnet, "single", 1, strategy::Precision::bf16);
  const auto norm = std::find_if(plan.tasks().begin(), plan.tasks().end(),
                                 [](const plan::Task& task) { return op_of<op::BatchNorm>(task) != nullptr; });
  ASSERT_NE(norm, plan.tasks().end());
  const op::BatchNorm of_plan = *op_of<op::BatchNorm>(*norm);
  const auto is_last_beside = [&](const op::BatchNorm& settings, BufferId bias) {
    std::vector<plan::Task> tasks = plan.tasks();
    plan::Task other = *norm;
    std::get<plan::Compute>(other.action).op = settings;
    other.reads[2] = bias;
    tasks.push_back(other);
    const plan::Plan with_other(plan.title(), plan.devices(), plan.buffers(), tasks);
    return static_cast<bool>(channels_last(with_other)[norm->reads[0].index()]);
  };
  op::BatchNorm in_groups = of_plan;
  in_groups.group = 2;
  op::BatchNorm coarser = of_plan;
  coarser.epsilon = 1e-3;
  EXPECT_TRUE(is_last_beside(of_plan, norm->reads[2])) << "the same norm again";
  EXPECT_FALSE(is_last_beside(in_groups, norm->reads[2]));
  EXPECT_FALSE(is_last_beside(coarser, norm->reads[2]));
  EXPECT_FALSE(is_last_beside(of_plan, norm->reads[1])) << "another bias";
}

bool is_read_after(const plan::Plan& plan, const plan::Ordering& ordering, TaskId task, BufferId id) {
  const auto from = std::find(ordering.sequence.begin(), ordering.sequence.end(), task);
  return std::any_of(from + 1, ordering.sequence.end(), [&](TaskId later) {
    const std::vector<BufferId>& reads = plan[later].reads;
    return std::find(reads.begin(), reads.end(), id) != reads.end();
  });
}

/// Follows the tasks as the GPU runs them: a task that uses a kept value must find it there, of what x and dy hold at that time.
/// `apart`: the gradients of the weights come so late that slopes may have to be taken again.
void expect_sound(const plan::Plan& plan, bool apart) {
  const plan::Ordering ordering = plan::order(plan);
  const std::vector<bool> last = channels_last(plan);
  const std::vector<NormShare> shares = norm_shares(plan, ordering, last);
  std::vector<std::int64_t> version(plan.buffers().size(), 0);  // how often each was written
  struct Kept {
    std::int64_t moments = -1;  // the version of x whose moments are kept
    std::pair<BufferId, std::int64_t> slopes;
  };
  std::vector<Kept> kept(plan.buffers().size());
  std::size_t moments = 0;
  std::size_t slopes = 0;
  std::size_t norms = 0;
  std::size_t postponed = 0;
  std::map<BufferId, std::tuple<std::int64_t, BufferId, std::int64_t>>
      sums;  // that were postponed: versions of x and the other value
  for (const TaskId id : ordering.sequence) {
    const plan::Task& task = plan[id];
    const NormShare& share = shares[id.index()];
    for (const BufferId written : task.writes) {
      ++version[written.index()];
    }
    if (!share.x.valid()) {
      continue;
    }
    Kept& own = kept[share.x.index()];
    const std::int64_t now = version[share.x.index()];
    if (share.takes_moments) {
      own.moments = now;
      ++moments;
    }
    EXPECT_EQ(own.moments, now) << plan::verb(task);
    const bool back = op_of<op::ReluBackward>(task) != nullptr;
    const bool input = op_of<op::BatchNormBackwardInput>(task) != nullptr;
    const bool weight = op_of<op::BatchNormBackwardWeight>(task) != nullptr;
    if (back || input || weight) {
      const BufferId dy = back ? task.writes[0] : input ? task.reads[0] : task.reads[1];
      if (share.takes_slopes) {
        own.slopes = {dy, version[dy.index()]};
        ++slopes;
      }
      EXPECT_EQ(own.slopes, std::pair(dy, version[dy.index()])) << plan::verb(task);
    }
    norms += op_of<op::BatchNorm>(task) != nullptr ? 1U : 0U;
    if (share.applies) {
      EXPECT_TRUE(op_of<op::Relu>(task) != nullptr || op_of<op::Add>(task) != nullptr);
    }
    if (share.postponed && op_of<op::Add>(task) != nullptr) {
      const BufferId other = task.reads[share.operand == 0 ? 1 : 0];
      sums[task.writes[0]] = {now, other, version[other.index()]};
    }
    if (share.added.valid()) {
      const auto sum = sums.find(task.reads[0]);
      ASSERT_TRUE(op_of<op::Relu>(task) != nullptr && sum != sums.end());
      EXPECT_EQ(sum->second, std::tuple(now, share.added, version[share.added.index()]));
      for (const BufferId needed : {share.x, share.added}) {
        EXPECT_TRUE(is_read_after(plan, ordering, id, needed)) << "its memory may hold something else by then";
      }
      ++postponed;
    }
  }
  EXPECT_EQ(postponed, sums.size()) << "each sum that is postponed is applied once";
  EXPECT_GT(postponed, 0U);
  EXPECT_GT(norms, 0U);
  EXPECT_EQ(moments, norms) << "the moments of each norm are taken once";
  if (apart) {
    EXPECT_LE(slopes, 2 * norms);
  } else {
    EXPECT_EQ(slopes, norms) << "and so are the slopes";
  }
}

TEST(NormShares, EachSumIsTakenOnceAndIsOfWhatTheBuffersHold) {
  for (const auto& [strategy, devices, micro_batches] :
       {std::tuple("single", 1, 1), std::tuple("ddp", 2, 1), std::tuple("gpipe", 2, 2), std::tuple("1f1b", 2, 2),
        std::tuple("zb-h1", 2, 2), std::tuple("single", 1, 2)}) {
    SCOPED_TRACE(strategy);
    expect_sound(plan_of(small_resnet, strategy, static_cast<std::size_t>(devices), strategy::Precision::bf16, micro_batches),
                 std::string_view(strategy) == "zb-h1");
  }
}

}  // namespace
}  // namespace baton::cuda
