#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/plan/verify.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/stages.h"
#include "baton/strategy/strategy.h"
#include "unit/strategy/drafts.h"

/// What docs/strategies.md derives, compared with plans.
namespace baton::strategy {
namespace {

plan::Plan plan_of(std::string strategy, std::size_t count, Layout layout = {}, std::string model_text = "mlp:dim=64,depth=12",
                   std::int64_t batch = 24, op::Optimizer optimizer = op::Adam{}, Precision precision = Precision::fp32) {
  const model::Model model = model::parse_model(model_text);
  const cluster::Cluster cluster = devices(count);
  return compile({.model = model,
                  .cluster = cluster,
                  .strategy = std::move(strategy),
                  .step = {.global_batch = batch, .optimizer = optimizer, .precision = precision},
                  .layout = std::move(layout)});
}

TEST(Recomputation, LeavesOutWhatNothingReads) {
  for (const Recompute recompute : {Recompute::alternate, Recompute::all}) {
    const plan::Plan plan = plan_of("single", 1, {.recompute = recompute}, "cnn:2-3,image=8,channels=1,classes=3", 4);
    const plan::Verdict verdict = plan::verify(plan);
    EXPECT_TRUE(verdict.holds()) << (verdict.holds() ? "" : verdict.violations[0].text);
    const auto again = [&](std::string_view verb, std::int32_t block) {
      return std::count_if(plan.tasks().begin(), plan.tasks().end(), [&](const plan::Task& task) {
        return task.labels.phase == plan::Phase::backward && task.labels.block == block && plan::verb(task) == verb;
      });
    };
    EXPECT_EQ(again("conv2d", 0) + again("conv2d", 1), 1) << "one of the convolutions, for its pool's backward";
  }
  // The features that the last pool gives are flattened, and the backward of that needs their gradient alone.
  const plan::Plan plan = plan_of("single", 1, {.recompute = Recompute::alternate}, "cnn:2,image=4,channels=1,classes=3", 4);
  EXPECT_TRUE(plan::verify(plan).holds());
  EXPECT_TRUE(std::none_of(plan.tasks().begin(), plan.tasks().end(), [](const plan::Task& task) {
    return task.labels.phase == plan::Phase::backward && plan::verb(task) == "max_pool";
  }));
}

TEST(Recomputation, OfWhatIsLightMakesNormsAndGelusAgainWhereTheyAreReadAndNoProduct) {
  const auto plan_with = [](Recompute recompute, const std::string& strategy, std::size_t count) {
    return compile({.model = model::parse_model("gpt:depth=3,heads=2,dim=32,context=16,vocab=40"),
                    .cluster = devices(count),
                    .strategy = strategy,
                    .step = {.global_batch = 8, .loss = Loss::cross_entropy},
                    .layout = {.recompute = recompute, .micro_batches = 2}});
  };
  for (const auto& [strategy, count] :
       {std::pair("single", std::size_t{1}), std::pair("1f1b", std::size_t{2}), std::pair("zb-h1", std::size_t{2}),
        std::pair("tensor", std::size_t{2}), std::pair("zero-3", std::size_t{2})}) {
    SCOPED_TRACE(strategy);
    const plan::Plan kept = plan_with(Recompute::none, strategy, count);
    const plan::Plan light = plan_with(Recompute::light, strategy, count);
    const plan::Verdict verdict = plan::verify(light);
    ASSERT_TRUE(verdict.holds()) << (verdict.holds() ? "" : verdict.violations[0].text);
    std::map<std::string, std::int64_t> again;
    for (const plan::Task& task : light.tasks()) {
      const auto* compute = std::get_if<plan::Compute>(&task.action);
      if (compute != nullptr && task.labels.phase == plan::Phase::backward && op::is_light(compute->op)) {
        ++again[std::string(op::name(compute->op))];
      }
    }
    // Per micro-batch and replica or part: a norm in each half layer and in the head, a GELU in each second half.
    const std::int64_t times = 2 * (std::string(strategy) == "tensor" || std::string(strategy) == "zero-3" ? 2 : 1);
    EXPECT_EQ(again, (std::map<std::string, std::int64_t>{{"layer_norm", 7 * times}, {"gelu", 3 * times}}));
    const auto computed = [](const plan::Plan& plan) {
      std::int64_t flops = 0;
      for (const plan::Totals& totals : plan::totals_by_device(plan)) {
        flops += totals.work.flops.count;
      }
      return flops;
    };
    EXPECT_LT(static_cast<double>(computed(light)), 1.05 * static_cast<double>(computed(kept)));
    for (std::size_t d = 0; d < count; ++d) {
      EXPECT_LT(verdict.memory.peak[d].count, plan::verify(kept).memory.peak[d].count);
    }
  }
}

/// Bytes that leave a device in a step, over all devices.
std::int64_t sent(const plan::Plan& plan) {
  Bytes sum;
  for (const plan::Totals& totals : plan::totals_by_device(plan)) {
    sum += totals.work.sent;
  }
  return sum.count;
}

constexpr std::int64_t dim = 64;
constexpr std::int64_t depth = 12;
constexpr std::int64_t block_bytes = 4 * (dim * dim + dim);
constexpr std::int64_t model_bytes = depth * block_bytes;

TEST(BytesOnTheWire, OfDdpAreTwiceTheGradientsButForOnesOwnShare) {
  for (const std::size_t n : {2U, 3U, 4U, 8U}) {
    EXPECT_EQ(sent(plan_of("ddp", n)), 2 * static_cast<std::int64_t>(n - 1) * model_bytes);
  }
}

TEST(BytesOnTheWire, OfZero1AndZero2AreThoseOfDdp) {
  for (const std::size_t n : {2U, 3U, 4U, 8U}) {
    EXPECT_EQ(sent(plan_of("zero-1", n)), sent(plan_of("ddp", n)));
    EXPECT_EQ(sent(plan_of("zero-2", n)), sent(plan_of("ddp", n)));
  }
}

TEST(BytesOnTheWire, OfZero3AreHalfAsManyAgainButForWhatTheBackwardDoesNotRead) {
  for (const std::size_t n : {2U, 3U, 4U, 8U}) {
    const auto others = static_cast<std::int64_t>(n - 1);
    // Gathered again for the backward: the weights, not the biases, and not those of the first block.
    const std::int64_t again = (depth - 1) * 4 * dim * dim;
    EXPECT_EQ(sent(plan_of("zero-3", n)), others * (2 * model_bytes + again));
    EXPECT_NEAR(static_cast<double>(sent(plan_of("zero-3", n))) / static_cast<double>(sent(plan_of("ddp", n))), 1.5, 0.05);
  }
}

TEST(BytesOnTheWire, OfZero2GrowWithMicroBatchesAndThoseOfZero1DoNot) {
  const std::int64_t once = sent(plan_of("zero-1", 4));
  EXPECT_EQ(sent(plan_of("zero-1", 4, {.micro_batches = 3})), once);
  EXPECT_EQ(sent(plan_of("zero-2", 4, {.micro_batches = 3})), once / 2 + 3 * once / 2);
}

TEST(BytesOnTheWire, OfDividedTensorsAreOneSumAPairForwardAndOneBack) {
  for (const std::size_t n : {2U, 4U}) {
    const std::int64_t activation = 24 * dim * 4;
    const std::int64_t pairs = depth / 2;
    // Nobody asks for the gradient of the data, so the first pair has none.
    EXPECT_EQ(sent(plan_of("tensor", n)), 2 * static_cast<std::int64_t>(n - 1) * activation * (pairs + pairs - 1));
  }
}

TEST(BytesOnTheWire, OfPipelinesAreTheActivationsBetweenStagesWhateverTheSchedule) {
  const std::int64_t activation = 24 * dim * 4;
  for (const std::string strategy : {"layers", "gpipe", "1f1b", "zb-h1"}) {
    EXPECT_EQ(sent(plan_of(strategy, 4, {.micro_batches = 8})), 2 * 3 * activation) << strategy;
  }
  EXPECT_EQ(sent(plan_of("interleaved", 4, {.micro_batches = 8})), 2 * 7 * activation);
  EXPECT_EQ(sent(plan_of("zb-v", 4, {.micro_batches = 8})), 2 * 6 * activation) << "the V turns on the last device";
}

/// By device: for how many micro-batches at most its stage's forward is done and its backward is not.
std::vector<std::int64_t> held(const plan::Plan& plan) {
  std::vector<std::int64_t> most;
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    std::map<std::int32_t, std::size_t> last;  // by micro-batch: its last task of the backward
    const auto lane = plan.lane(DeviceId(d), plan::Lane::compute);
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (plan[lane[i]].labels.phase == plan::Phase::backward) {
        last[plan[lane[i]].labels.micro_batch] = i;
      }
    }
    std::set<std::int32_t> alive;
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const plan::Labels& labels = plan[lane[i]].labels;
      if (labels.phase == plan::Phase::forward) {
        alive.insert(labels.micro_batch);
        peak = std::max<std::int64_t>(peak, static_cast<std::int64_t>(alive.size()));
      } else if (labels.phase == plan::Phase::backward && last[labels.micro_batch] == i) {
        alive.erase(labels.micro_batch);
      }
    }
    most.push_back(peak);
  }
  return most;
}

TEST(Activations, GpipeHoldsAllMicroBatchesAnd1f1bAsManyAsStagesAreStillToCome) {
  for (const std::int64_t m : {4, 8, 12}) {
    EXPECT_EQ(held(plan_of("gpipe", 4, {.micro_batches = m})), (std::vector<std::int64_t>(4, m)));
    EXPECT_EQ(held(plan_of("1f1b", 4, {.micro_batches = m})), (std::vector<std::int64_t>{4, 3, 2, 1}));
  }
}

std::int64_t peak(const plan::Plan& plan, std::size_t device = 0) { return plan::verify(plan).memory.peak[device].count; }

TEST(Pipelines, NoCollectiveOfDividedTensorsWaitsInTheLaneForAValueThatIsNeededAfterIt) {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    const plan::Plan plan = plan_of(schedule, 8, {.tp = 2, .micro_batches = 8});
    int receives = 0;
    for (std::size_t d = 0; d < plan.devices().size(); ++d) {
      const plan::Task* awaited = nullptr;
      for (const TaskId id : plan.lane(DeviceId(d), plan::Lane::communication)) {
        const plan::Task& task = plan[id];
        if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
          awaited = transfer->end == plan::Transfer::End::receive ? &task : awaited;
          receives += transfer->end == plan::Transfer::End::receive ? 1 : 0;
        } else if (awaited != nullptr) {
          EXPECT_EQ(task.labels.phase, awaited->labels.phase) << schedule << ", device " << d;
          EXPECT_EQ(task.labels.micro_batch, awaited->labels.micro_batch) << schedule << ", device " << d;
          awaited = nullptr;
        }
      }
    }
    EXPECT_EQ(receives, 2 * 2 * 3 * 8);
  }
}

TEST(Memory, OfGpipeGrowsWithMicroBatchesOfOneSizeAnd1f1bsDoesNot) {
  const auto grows = [](const std::string& strategy) {
    const auto at = [&](std::int64_t m) { return peak(plan_of(strategy, 4, {.micro_batches = m}, "mlp:dim=16,depth=8", 32 * m)); };
    const auto inputs = [](std::int64_t m) { return 32 * m * 16 * 4; };  // the first device also holds the whole batch's input
    return static_cast<double>(at(16) - inputs(16)) / static_cast<double>(at(4) - inputs(4));
  };
  EXPECT_GT(grows("gpipe"), 2.5);
  EXPECT_LT(grows("1f1b"), 1.1);
}

TEST(Memory, RecomputationLetsActivationsGo) {
  const auto at = [](Recompute recompute) {
    return peak(plan_of("single", 1, {.recompute = recompute}, "mlp:dim=8,depth=16", 512));
  };
  EXPECT_LT(at(Recompute::alternate), 0.75 * static_cast<double>(at(Recompute::none)));
  EXPECT_LT(at(Recompute::all), at(Recompute::alternate));
  const auto flops = [](Recompute recompute) {
    return plan::totals_by_device(plan_of("single", 1, {.recompute = recompute}, "mlp:dim=8,depth=16", 512))[0].work.flops.count;
  };
  // Recomputed are every second block of the forward, which is about a third of a step, or three of four.
  const auto forward = static_cast<double>(flops(Recompute::none)) / 3;
  EXPECT_NEAR(static_cast<double>(flops(Recompute::alternate) - flops(Recompute::none)), forward / 2, forward / 10);
  EXPECT_NEAR(static_cast<double>(flops(Recompute::all) - flops(Recompute::none)), forward * 3 / 4, forward / 10);
}

/// Bytes that live on from step to step on device 0, but for the data.
std::int64_t persistent(const plan::Plan& plan) {
  std::int64_t sum = 0;
  for (const plan::Buffer& buffer : plan.buffers()) {
    if (buffer.device == DeviceId(0) && buffer.persistent && std::holds_alternative<plan::ParameterPart>(buffer.content)) {
      sum += buffer.size().count;
    }
  }
  return sum;
}

TEST(Memory, OfZeroFallsAsItsPaperSays) {
  // float32 with Adam is 16 bytes per parameter as well: 4 of parameters, 4 of gradients, 8 of states.
  const double psi = 96 * static_cast<double>(block_bytes) / 4;  // enough blocks that a few of them do not matter
  const Layout layout{.micro_batches = 2};
  for (const std::size_t count : {2U, 4U, 8U}) {
    const auto n = static_cast<double>(count);
    const auto at = [&](const std::string& strategy) {
      return static_cast<double>(
          peak(plan_of(strategy, count, layout, "mlp:dim=64,depth=96", 2 * static_cast<std::int64_t>(count))));
    };
    EXPECT_EQ(persistent(plan_of("ddp", count, layout, "mlp:dim=64,depth=96")), static_cast<std::int64_t>(12 * psi));
    for (const std::string strategy : {"zero-1", "zero-2", "zero-3"}) {
      EXPECT_NEAR(static_cast<double>(persistent(plan_of(strategy, count, layout, "mlp:dim=64,depth=96"))), 12 * psi / n, 2400)
          << strategy;
    }
    // A piece of a parameter lies next to the whole one, which the paper's mixed precision has as its master copy; a block or
    // two may be on their way.
    const double way = 6 * static_cast<double>(block_bytes);
    EXPECT_NEAR(at("ddp"), 16 * psi, way);
    EXPECT_NEAR(at("zero-1"), (4 + 4) * psi + (4 + 8) * psi / n, way);
    EXPECT_NEAR(at("zero-2"), 4 * psi + (4 + 4 + 8) * psi / n, way);
    EXPECT_NEAR(at("zero-3"), (4 + 4 + 8) * psi / n, 2 * way);
  }
}

TEST(Memory, OfZeroInMixedPrecisionIsTwoAndTwoAndTwelveBytesAParameterDividedStageByStage) {
  const double psi = 96 * static_cast<double>(block_bytes) / 4;  // enough blocks that a few of them do not matter
  for (const std::size_t count : {2U, 4U, 8U}) {
    const auto n = static_cast<double>(count);
    const auto plan = [&](const std::string& strategy) {
      return plan_of(strategy, count, {.micro_batches = 2}, "mlp:dim=64,depth=96", 2 * static_cast<std::int64_t>(count), op::Adam{},
                     Precision::bf16);
    };
    EXPECT_EQ(persistent(plan("ddp")), static_cast<std::int64_t>(12 * psi));
    EXPECT_NEAR(static_cast<double>(persistent(plan("zero-1"))), 12 * psi / n, 2400);
    const auto at = [&](const std::string& strategy) { return static_cast<double>(peak(plan(strategy))); };
    // A device's own pieces are there in 16 bits too, to be gathered from; a few blocks may be on their way.
    const double way = 4 * static_cast<double>(block_bytes) / 2;
    const double ways = 2 * way + 2 * psi / n;
    EXPECT_NEAR(at("ddp"), (2 + 2 + 12) * psi, way);
    EXPECT_NEAR(at("zero-1"), (2 + 2) * psi + 12 * psi / n, ways);
    EXPECT_NEAR(at("zero-2"), 2 * psi + (2 + 12) * psi / n, ways);
    EXPECT_NEAR(at("zero-3"), (2 + 2 + 12) * psi / n, ways);
    // On the wire half as much as in float32.
    EXPECT_EQ(sent(plan("ddp")), static_cast<std::int64_t>(count - 1) * 96 * block_bytes);
    EXPECT_EQ(sent(plan("zero-1")), sent(plan("ddp")));
  }
}

TEST(Memory, OfDividedTensorsFallsWithTheDevices) {
  const double alone = static_cast<double>(persistent(plan_of("single", 1)));
  EXPECT_NEAR(static_cast<double>(persistent(plan_of("tensor", 2))), alone / 2, alone / 50);
  EXPECT_NEAR(static_cast<double>(persistent(plan_of("tensor", 4))), alone / 4, alone / 50);
}

TEST(Zero3, HoldsTwoBlocksWholeAtATime) {
  // With the next one gathered while this one computes; were it more, memory would not fall as it does.
  const plan::Plan plan = plan_of("zero-3", 4, {}, "mlp:dim=64,depth=12", 4, op::Sgd{});
  EXPECT_LT(peak(plan), model_bytes * 2 / 4 + 4 * block_bytes);
}

TEST(Zero3, GathersTheNextBlockWhileOneComputesAndNoneBeforeThat) {
  const plan::Plan plan = plan_of("zero-3", 2, {}, "mlp:dim=64,depth=6", 4, op::Sgd{});
  std::vector<std::size_t> gathers;            // the gathers of device 0, in order
  std::vector<std::vector<std::size_t>> uses;  // for each of them the computations that read what it gathers
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    const plan::Task& task = plan.tasks()[i];
    const auto* collective = std::get_if<plan::Collective>(&task.action);
    if (task.device == DeviceId(0) && collective != nullptr && collective->kind == plan::Move::all_gather) {
      gathers.push_back(i);
      uses.emplace_back();
      for (std::size_t j = 0; j < plan.tasks().size(); ++j) {
        const auto& reads = plan.tasks()[j].reads;
        if (std::find(reads.begin(), reads.end(), task.writes[0]) != reads.end()) {
          uses.back().push_back(j);
        }
      }
    }
  }
  ASSERT_EQ(gathers.size(), 11U) << "six blocks forward, five backward";
  for (std::size_t g = 2; g < gathers.size(); ++g) {
    ASSERT_FALSE(uses[g].empty());
    EXPECT_LT(gathers[g], uses[g - 1].front()) << "begun before the use before it";
    const auto& after = plan.tasks()[gathers[g]].after;
    EXPECT_TRUE(std::any_of(after.begin(), after.end(), [&](TaskId id) { return id.index() >= uses[g - 2].back(); }))
        << "and not before the one before that is over";
  }
}

// ---- stages

std::vector<std::int64_t> blocks_by_stage(const plan::Plan& plan) {
  std::map<std::int32_t, std::set<std::int32_t>> blocks;
  for (const plan::Task& task : plan.tasks()) {
    if (task.lane == plan::Lane::compute && task.labels.phase == plan::Phase::forward) {
      blocks[task.labels.stage].insert(task.labels.block);
    }
  }
  std::vector<std::int64_t> counts;
  for (const auto& [stage, list] : blocks) {
    counts.push_back(static_cast<std::int64_t>(list.size()));
  }
  return counts;
}

TEST(Balance, ByWorkTheHeaviestStageIsAsLightAsCanBe) {
  const std::string lopsided = "mlp:64-64-64-64-64-8-8-8-8";  // four heavy blocks, four light ones
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 2, {.balance = Balance::even}, lopsided)), (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 2, {.balance = Balance::work}, lopsided)), (std::vector<std::int64_t>{2, 6}));
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 4, {.balance = Balance::work}, "mlp:8-8-8-64-64-8-8-8-8")).size(), 4U);
  // The scores of 2000 tokens weigh more than four layers, and looking tokens up weighs nothing.
  const std::string wordy = "gpt:depth=4,heads=2,dim=32,context=16,vocab=2000";
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 2, {}, wordy)), (std::vector<std::int64_t>{5, 5}));
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 2, {.balance = Balance::work}, wordy)), (std::vector<std::int64_t>{9, 1}));
}

/// The least that the heaviest stage can weigh, over all ways to cut.
double least_heaviest(const std::vector<std::vector<double>>& weights, std::size_t stage, std::size_t begin) {
  const std::size_t blocks = weights[0].size();
  if (stage + 1 == weights.size()) {
    return std::accumulate(weights[stage].begin() + static_cast<std::ptrdiff_t>(begin), weights[stage].end(), 0.0);
  }
  double best = std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t end = begin + 1; end + (weights.size() - stage - 1) <= blocks; ++end) {
    sum += weights[stage][end - 1];
    best = std::min(best, std::max(sum, least_heaviest(weights, stage + 1, end)));
  }
  return best;
}

TEST(Balance, ByMemoryNoOtherSplitIsLighterAlsoWhereEarlyStagesKeepMore) {
  std::minstd_rand random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::int64_t> widths{4};
    for (std::uint_fast32_t b = 0; b < 4 + random() % 4; ++b) {
      widths.push_back(1 << (random() % 10));
    }
    const model::Model model = model::mlp(widths);
    std::vector<StageLoad> stages;
    for (std::int64_t s = 0; s < 3; ++s) {
      stages.push_back({.rows = 96, .rows_kept = 32 * (3 - s), .parameter_bytes = 12});
    }
    std::vector<std::vector<double>> weights(3);
    for (std::size_t s = 0; s < 3; ++s) {
      for (std::size_t b = 0; b < model.blocks().size(); ++b) {
        const auto out = static_cast<double>(model.blocks()[b].output().elements());
        const auto in = static_cast<double>(model.blocks()[b].input().elements());
        weights[s].push_back(12 * out * (in + 1) + 4 * out * static_cast<double>(stages[s].rows_kept) + (b == 0 ? 4 * 96 * in : 0) +
                             (b + 1 == model.blocks().size() ? 4 * 96 * out : 0));
      }
    }
    const std::vector<std::int64_t> split = balanced_stages(model, Balance::memory, stages);
    double heaviest = 0;
    std::size_t at = 0;
    for (std::size_t s = 0; s < 3; ++s) {
      double sum = 0;
      for (std::int64_t i = 0; i < split[s]; ++i) {
        sum += weights[s][at++];
      }
      heaviest = std::max(heaviest, sum);
    }
    EXPECT_EQ(at, model.blocks().size());
    EXPECT_NEAR(heaviest, least_heaviest(weights, 0, 0), 1) << round;
  }
}

TEST(Balance, ByMemoryCountsActivationsToo) {
  // Wide activations out of few parameters: with many rows they are what weighs.
  const std::string model = "mlp:2-128-2-2-2-2-2-2";
  EXPECT_EQ(blocks_by_stage(plan_of("gpipe", 2, {.balance = Balance::memory}, model, 512))[0], 1);
}

TEST(Products, AreRefusedWithTheProductWhenItIsNotTheNumberOfDevices) {
  for (const std::int64_t tp : {0, 2}) {
    try {
      plan_of("product", 6, {.dp = 2, .pp = 2, .tp = tp});
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("= 2 × 2 × "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("6 devices"), std::string::npos) << error.what();
    }
  }
}

TEST(Products, SayWhatIsMissing) {
  const auto said = [](std::string strategy, std::size_t count, Layout layout, std::string model = "mlp:dim=64,depth=12") {
    try {
      plan_of(std::move(strategy), count, std::move(layout), std::move(model));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(said("layers", 4, {.zero = 1}).find("give it some with --dp"), std::string::npos);
  EXPECT_NE(said("ddp", 4, {.schedule = "gpipe"}).find("--pp"), std::string::npos);
  EXPECT_NE(said("product", 4, {.tp = 4}, "mlp:dim=8,depth=1").find("no such pair"), std::string::npos);
  EXPECT_NE(said("tensor", 4, {.sp = true}).find("has none"), std::string::npos);
  EXPECT_NE(said("ddp", 4, {.sp = true}).find("add --tp"), std::string::npos);
  EXPECT_NE(said("tensor", 4, {}, "mlp:8-3-8").find("3 features"), std::string::npos);
  EXPECT_NE(said("1f1b", 4, {.micro_batches = 100}).find("100 micro-batches"), std::string::npos);
  EXPECT_NE(said("interleaved", 4, {}, "mlp:dim=8,depth=6").find("8 stages"), std::string::npos);
  EXPECT_NE(said("single", 4, {.tp = 2}).find("uses one device"), std::string::npos);
}

TEST(Products, AStageThatEndsWithinAPairOfLayersSendsTheFeaturesInParts) {
  const plan::Plan plan = plan_of("product", 4, {.pp = 2, .tp = 2}, "mlp:8-6-8");
  int sent = 0;
  for (const plan::Task& task : plan.tasks()) {
    const auto* transfer = std::get_if<plan::Transfer>(&task.action);
    if (transfer != nullptr && transfer->end == plan::Transfer::End::send) {
      ++sent;
      EXPECT_EQ(plan[task.reads[0]].shape.last(), 3);
    }
  }
  EXPECT_EQ(sent, 4) << "each of two parts its features forward and their gradient back";
  EXPECT_TRUE(plan::verify(plan).holds());
}

TEST(OwnSchedule, RunsLikeOneOfOurs) {
  const plan::Plan ours = plan_of("1f1b", 3, {.micro_batches = 4});
  Layout own;
  own.grid = schedule::parse_csv(schedule::to_csv(schedule::schedule_by_name("1f1b").grid({.devices = 3, .micro_batches = 4})));
  const plan::Plan theirs = plan_of("product", 3, own);
  EXPECT_EQ(theirs.tasks(), ours.tasks());
}

TEST(OwnSchedule, ThatCannotRunIsRefusedWithItsFlaw) {
  Layout own;
  own.grid = schedule::parse_csv("0F0,0B0\n1B0,1F0\n");
  EXPECT_THROW(plan_of("product", 2, own), Error);
}

}  // namespace
}  // namespace baton::strategy
