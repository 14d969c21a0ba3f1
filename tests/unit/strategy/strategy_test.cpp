#include "baton/strategy/strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/op/traits.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/schedule/text.h"
#include "baton/strategy/fold.h"
#include "support/tiled_weights.h"
#include "support/usage_sentence.h"
#include "unit/strategy/drafts.h"

namespace baton::strategy {
namespace {

using plan::Lane;
using plan::Phase;
using test::says;
using test::usage_sentence;

const plan::Target cpu_target{.joined = op::joint_ops(), .gradient_with_sgd = true, .layout = test::tiled_weights};

plan::Plan compiled(const std::string& strategy, const std::string& model, std::size_t count, Step step = {}, Layout layout = {},
                    plan::Target target = {}, std::vector<DelayRequest> delays = {}) {
  const model::Model described = model::parse_model(model);
  return compile({.model = described,
                  .cluster = devices(count),
                  .strategy = strategy,
                  .step = step,
                  .layout = std::move(layout),
                  .target = target,
                  .delays = std::move(delays)});
}

std::string refused(const std::string& strategy, const std::string& model, std::size_t count, Step step = {}, Layout layout = {}) {
  return usage_sentence([&] { compiled(strategy, model, count, step, layout); });
}

TEST(Refusal, NamesTheBatchAndTheDevicesWhenSomeDeviceWouldHaveNoRow) {
  for (const std::string strategy : {"dp", "ddp"}) {
    const std::string said = refused(strategy, "mlp:3-5-2", 5, {.global_batch = 4});
    EXPECT_TRUE(says(said, "batch of 4"));
    EXPECT_TRUE(says(said, "5 devices"));
    EXPECT_NO_THROW(compiled(strategy, "mlp:3-5-2", 4, {.global_batch = 4}));
  }
}

TEST(Refusal, NamesTheBlocksAndTheDevicesWhenSomeStageWouldHaveNoBlock) {
  const std::string said = refused("layers", "mlp:3-5-2", 3);
  EXPECT_TRUE(says(said, "mlp:3-5-2 has 2 blocks"));
  EXPECT_TRUE(says(said, "3 devices"));
  EXPECT_TRUE(says(refused("layers", "mlp:3-2", 2), "1 block,"));
  EXPECT_NO_THROW(compiled("layers", "mlp:3-5-2", 2));
}

TEST(Refusal, NamesTheSamplesThatANormTakesTogetherWhenAMicroBatchWouldDivideThem) {
  const std::string model = "resnet:18,image=8,classes=3,width=1,group=4";
  const std::string said = refused("ddp", model, 2, {.global_batch = 12});
  EXPECT_TRUE(says(said, "takes 4 samples together"));
  EXPECT_TRUE(says(said, "would have 6"));
  EXPECT_TRUE(says(refused("single", model, 1, {.global_batch = 8}, {.micro_batches = 3}), "would have 3"));
  EXPECT_NO_THROW(compiled("ddp", model, 3, {.global_batch = 12}));
  EXPECT_NO_THROW(compiled("single", model, 1, {.global_batch = 8}, {.micro_batches = 2}));
  const std::string by_replica = "resnet:18,image=8,classes=3,width=1";
  EXPECT_NO_THROW(compiled("ddp", by_replica, 2, {.global_batch = 13}));
}

TEST(Refusal, SaysThatAResnetHasTooFewChannelsForTensorParallelism) {
  EXPECT_TRUE(says(refused("tensor", "resnet:18,image=8,classes=3,width=1", 2), "the 1 features of layer1.0 cannot be divided"));
  EXPECT_NO_THROW(compiled("tensor", "resnet:18,image=8,classes=3,width=2", 2));
  EXPECT_NO_THROW(compiled("tensor", "cnn:2,image=4", 2));
}

/// Norms of a replica's micro-batch compute what their samples give, so that every division of the batch computes the model.
TEST(Images, PlansOfEveryStrategyObeyTheLaw) {
  const std::vector<std::tuple<std::string, std::size_t, Layout>> ways{
      {"single", 1, {.recompute = Recompute::all, .micro_batches = 3}},
      {"dp", 2, {.micro_batches = 2}},
      {"ddp", 3, {}},
      {"layers", 2, {.split = {4, 6}}},
      {"1f1b", 2, {.micro_batches = 4}},
      {"zb-v", 2, {.micro_batches = 4}},
      {"zero-2", 2, {.micro_batches = 2}},
      {"zero-3", 2, {.recompute = Recompute::alternate}},
      {"product", 4, {.dp = 2, .pp = 2, .schedule = "gpipe", .micro_batches = 2}}};
  for (const std::string model : {"resnet:18,image=8,classes=3,width=1", "resnet:50,image=65,classes=3,width=1"}) {
    for (auto [strategy, count, layout] : ways) {
      if (!layout.split.empty() && model.starts_with("resnet:50")) {
        layout.split = {8, 10};  // as in PyTorch's tutorial
      }
      const plan::Plan plan = compiled(strategy, model, count, {.global_batch = 13, .loss = Loss::cross_entropy}, layout);
      const plan::Verdict verdict = plan::verify(plan);
      EXPECT_TRUE(verdict.holds()) << strategy << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
      EXPECT_FALSE(plan.graph().empty());
      EXPECT_TRUE(plan::parse(plan::to_text(plan)) == plan) << strategy;
    }
  }
}

TEST(Refusal, NamesASplitThatDoesNotFit) {
  const auto split = [](std::vector<std::int64_t> stages) {
    return refused("layers", "mlp:dim=4,depth=6", 3, {}, {.split = std::move(stages)});
  };
  EXPECT_TRUE(says(split({1, 3}), "2 stages"));
  EXPECT_TRUE(says(split({1, 3, 1}), "5 blocks"));
  EXPECT_TRUE(says(split({1, 3, 3}), "7 blocks"));
  EXPECT_TRUE(says(split({0, 3, 3}), "does not fit"));
  EXPECT_TRUE(says(split({-1, 4, 3}), "does not fit"));
  EXPECT_TRUE(says(split({2, 2, 1, 1}), "3 devices"));
  EXPECT_NO_THROW(compiled("layers", "mlp:dim=4,depth=6", 3, {}, {.split = {1, 3, 2}}));
}

TEST(Refusal, SaysThatAStrategyWithoutStagesTakesNoSplit) {
  for (const std::string strategy : {"single", "dp", "ddp"}) {
    const std::string said = refused(strategy, "mlp:dim=4,depth=6", 2, {}, {.split = {3, 3}});
    EXPECT_TRUE(says(said, strategy));
    EXPECT_TRUE(says(said, "--split"));
  }
}

TEST(Refusal, ListsTheStrategiesWhenOneIsUnknown) {
  const std::string said = refused("dpp", "mlp:3-5-2", 1);
  EXPECT_TRUE(says(said, "'dpp'"));
  for (const Strategy& strategy : strategies()) {
    EXPECT_TRUE(says(said, strategy.name()));
  }
}

TEST(Refusal, NamesAStepThatIsTooLargeToCountButNoneThatIsTrained) {
  const model::Model model = model::parse_model("llama3-405b");
  const cluster::Cluster many(test::cpus(16, 16, Bytes(1 << 20)));
  const auto request = [&](std::int64_t batch) {
    return Request{.model = model, .cluster = many, .strategy = "ddp", .step = {.global_batch = batch}};
  };
  EXPECT_NO_THROW(refuse_uncountable(request(2048)));  // 16 M tokens, 4.2e19 operations
  EXPECT_TRUE(says(usage_sentence([&] { refuse_uncountable(request(100'000)); }), "llama3-405b with a global batch of 100000"));
  EXPECT_TRUE(says(usage_sentence([&] { fold(request(100'000)); }), "llama3-405b with a global batch of 100000"));
}

TEST(Refusal, NamesTheAxesThatLeaveNothingForAStrategyByItsName) {
  const model::Model model = model::parse_model("mlp:dim=8,depth=4");
  const cluster::Cluster two = devices(2);
  const auto sentence = [&](const char* strategy, Layout layout) {
    return usage_sentence([&] {
      compile({.model = model, .cluster = two, .strategy = strategy, .step = {.global_batch = 8}, .layout = std::move(layout)});
    });
  };
  EXPECT_EQ(sentence("ddp", {.pp = 2}), "strategy ddp has one replica if --pp 2 takes all the devices: leave out one of them");
  EXPECT_TRUE(says(sentence("tensor", {.dp = 2}), "strategy tensor has one part of each tensor if --dp 2 takes all"));
  EXPECT_TRUE(says(sentence("1f1b", {.dp = 2}), "or write --schedule 1f1b --pp N --dp 2 for a pipeline of N devices"));
  const auto names_of = [&](const char* strategy, Layout layout) {
    return describe(
        {.model = model, .cluster = two, .strategy = strategy, .step = {.global_batch = 8}, .layout = std::move(layout)});
  };
  EXPECT_EQ(names_of("ddp", {.dp = 2}), "ddp");
  EXPECT_EQ(names_of("product", {.dp = 2}), "dp 2");
  EXPECT_EQ(names_of("tensor", {.tp = 2}), "tensor");
  EXPECT_EQ(names_of("1f1b", {.dp = 1, .pp = 2}), "1f1b");
}

TEST(Refusal, NamesABatchOfNothing) {
  EXPECT_TRUE(says(refused("single", "mlp:3-5-2", 1, {.global_batch = 0}), "batch of 0"));
  EXPECT_TRUE(says(refused("layers", "mlp:3-5-2", 2, {.global_batch = -3}), "batch of -3"));
}

TEST(Strategy, IsFoundWhateverTheCaseOfItsName) {
  EXPECT_EQ(Strategy("DDP").name(), "ddp");
  EXPECT_EQ(Strategy("GPipe").name(), "gpipe");
  EXPECT_EQ(Strategy("Interleaved1F1B").name(), "interleaved");
}

TEST(Strategy, IsFoundByTheNamesPeopleKnowItBy) {
  EXPECT_EQ(Strategy("naive").name(), "layers");
  EXPECT_EQ(Strategy("FSDP").name(), "zero-3");
  EXPECT_EQ(Strategy("Schedule1F1B").name(), "1f1b");
  EXPECT_EQ(Strategy("ScheduleZBVZeroBubble").name(), "zb-v");
  EXPECT_TRUE(says(usage_sentence([] { Strategy("pipeline"); }), "named by its schedule"));
  EXPECT_TRUE(says(usage_sentence([] { Strategy("mine.csv"); }), "--schedule mine.csv"));
}

TEST(Strategy, ByAnotherNameHasTheSamePlan) {
  const model::Model model = model::parse_model("mlp:dim=4,depth=4");
  const cluster::Cluster two = devices(2);
  for (const auto& [other, own] : {std::pair("Interleaved1F1B", "interleaved"), std::pair("Schedule1F1B", "1f1b"),
                                   std::pair("naive", "layers"), std::pair("Single", "single"), std::pair("FSDP", "zero-3")}) {
    const Request alias{.model = model, .cluster = two, .strategy = other};
    const Request named{.model = model, .cluster = two, .strategy = own};
    EXPECT_EQ(compile(alias), compile(named)) << other;
    EXPECT_EQ(describe(alias), own);
  }
}

TEST(Refusal, OfChunksWithoutAPipelineSaysSo) {
  EXPECT_TRUE(says(refused("ddp", "mlp:dim=4,depth=4", 2, {}, {.chunks = 2}), "--pp"));
  EXPECT_TRUE(says(refused("single", "mlp:dim=4,depth=4", 1, {}, {.chunks = 2}), "--pp"));
}

TEST(Grid, OfAUsersOwnHasAReplicaForTheDevicesThatAreLeft) {
  const model::Model model = model::parse_model("mlp:dim=4,depth=2");
  const cluster::Cluster four = devices(4);
  Request request{.model = model, .cluster = four, .strategy = "product"};
  request.layout.grid = schedule::parse_csv("0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(describe(request), "dp 2 × pp 2, a schedule of its own");
}

TEST(Refusal, NamesWhatAStrategyAndAFlagSayDifferently) {
  EXPECT_TRUE(says(refused("gpipe", "mlp:dim=4,depth=4", 2, {}, {.schedule = "1f1b"}), "--schedule asks for 1f1b"));
  EXPECT_TRUE(says(refused("layers", "mlp:dim=4,depth=4", 2, {}, {.schedule = "1f1b"}), "the schedule naive"));
  EXPECT_TRUE(says(refused("zero-3", "mlp:dim=4,depth=4", 2, {}, {.zero = 1}), "--zero asks for 1"));
  EXPECT_NO_THROW(compiled("gpipe", "mlp:dim=4,depth=4", 2, {}, {.schedule = "gpipe"}));
  EXPECT_TRUE(says(refused("product", "mlp:dim=4,depth=4", 2, {}, {.dp = 2, .schedule = "naive"}), "needs a pipeline"));
  EXPECT_TRUE(says(refused("ddp", "mlp:dim=4,depth=4", 2, {}, {.schedule = "1f1b"}), "needs a pipeline"));
  EXPECT_TRUE(says(refused("1f1b", "mlp:dim=4,depth=4", 2, {}, {.split = {1, 3}, .balance = Balance::work}), "give one of them"));
  EXPECT_TRUE(says(refused("ddp", "mlp:dim=4,depth=4", 2, {}, {.balance = Balance::work}), "takes no --balance"));
  EXPECT_TRUE(says(refused("product", "mlp:dim=4,depth=4", 4, {}, {.dp = 2}), "add --pp 2"));
}

TEST(Schedule, GivenByItselfMakesAPipelineOfTheDevicesThatAreLeft) {
  EXPECT_EQ(compiled("product", "mlp:dim=4,depth=4", 4, {}, {.schedule = "1f1b"}).title(),
            "pp 4, 1f1b, 8 micro-batches of mlp:dim=4,depth=4, global batch 64, on 4 devices");
  EXPECT_EQ(compiled("product", "mlp:dim=4,depth=4", 4, {}, {.dp = 2, .schedule = "naive"}).title(),
            "dp 2 × pp 2, naive of mlp:dim=4,depth=4, global batch 64, on 4 devices");
}

TEST(Title, SaysHowTheStepIsSplitWhereTheNameDoesNot) {
  const std::string model = "mlp:dim=4,depth=4";
  const std::string behind = " of mlp:dim=4,depth=4, global batch 64, on ";
  EXPECT_EQ(compiled("1f1b", model, 2).title(), "1f1b" + behind + "2 devices");
  EXPECT_EQ(compiled("1f1b", model, 4, {}, {.dp = 2}).title(), "dp 2 × pp 2, 1f1b, 4 micro-batches" + behind + "4 devices");
  EXPECT_EQ(compiled("ddp", model, 4, {}, {.dp = 2, .pp = 2, .zero = 1}).title(),
            "dp 2 × pp 2, zero 1, naive" + behind + "4 devices");
  EXPECT_EQ(compiled("product", model, 2, {}, {.pp = 2, .schedule = "gpipe"}).title(),
            "pp 2, gpipe, 4 micro-batches" + behind + "2 devices");
  EXPECT_EQ(compiled("zero-2", model, 2).title(), "zero-2" + behind + "2 devices");
}

TEST(Title, SaysThePrecisionAlsoOfWhatIsFolded) {
  const model::Model model = model::parse_model("mlp:dim=4,depth=4");
  const cluster::Cluster four = devices(4);
  for (const std::string& name : precision_names()) {
    const Precision precision = precision_by_name(name);
    const Request request{.model = model, .cluster = four, .strategy = "ddp", .step = {.precision = precision}};
    const std::string title = "ddp of mlp:dim=4,depth=4, global batch 64, on 4 devices" +
                              (precision == Precision::fp32 ? "" : ", " + name);
    EXPECT_EQ(compile(request).title(), title);
    EXPECT_EQ(fold(request)->plan.title(), title);
  }
}

TEST(Balance, OfWorkCountsNoGradientOfTheFirstInput) {
  // The first and the last of five layers are alike, but the first has two products per step and the last three.
  const plan::Plan plan = compiled("1f1b", "mlp:1024-64-64-64-64-64-1024", 2, {}, {.balance = Balance::work});
  std::int32_t last = -1;
  for (const plan::Task& task : plan.tasks()) {
    last = task.device == DeviceId(0) && task.lane == Lane::compute ? std::max(last, task.labels.block) : last;
  }
  EXPECT_EQ(last, 4);
}

TEST(Balance, OfMemoryNeedsNoMoreThanEvenStages) {
  for (const std::string strategy : {"gpipe", "1f1b"}) {
    const Step step{.global_batch = 512};
    const auto fullest = [&](Balance balance) {
      const plan::Plan plan = compiled(strategy, "mlp:dim=32,depth=9", 4, step, {.balance = balance, .micro_batches = 8});
      const std::vector<Bytes> peak = plan::verify(plan).memory.peak;
      return *std::max_element(peak.begin(), peak.end());
    };
    EXPECT_LE(fullest(Balance::memory), fullest(Balance::even)) << strategy;
  }
}

TEST(Grid, OfAUsersOwnScheduleShowsWhenItsActionsCanRun) {
  const model::Model model = model::parse_model("mlp:dim=4,depth=2");
  const cluster::Cluster two = devices(2);
  Request request{.model = model, .cluster = two, .strategy = "product"};
  request.layout.grid = schedule::parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(schedule::to_csv(grid_of(request).value()), "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n");
}

TEST(Strategy, IsEqualToItsCopiesAndToWhatItsOtherNamesMean) {
  EXPECT_EQ(Strategy("fsdp"), "zero-3");
  EXPECT_EQ(Strategy(), "single");
  EXPECT_NE(Strategy("ddp"), "dp");
  const Strategy own{"ddp", "of the same name as another", NamedLayout{}};
  const Strategy copy = own;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy, own);
  EXPECT_NE(own, "ddp");
}

TEST(Strategy, SaysWhatItDoesWithTheDevices) {
  for (const Strategy& strategy : strategies()) {
    EXPECT_TRUE(strategy.is_listed());
    EXPECT_EQ(strategy.uses_one_device(), strategy.name() == "single");
    EXPECT_EQ(strategy.has_one_owner(), strategy.name() == "dp");
    EXPECT_EQ(strategy.is_by_numbers(), strategy.name() == "product");
  }
}

TEST(Strategy, OfAFunctionOfItsOwnIsDescribedByItsNameAndNotFolded) {
  const Strategy own{"own", "as dp, for all that anybody knows",
                     [](const Request& request) { return Strategy("dp").build(request); }};
  EXPECT_FALSE(own.is_listed());
  const Request request{
      .model = model::parse_model("mlp:3-5-2"), .cluster = devices(8), .strategy = own, .step = {.global_batch = 8}};
  EXPECT_EQ(describe(request), "own");
  EXPECT_TRUE(compile(request).title().starts_with("own of mlp:3-5-2"));
  EXPECT_TRUE(title_of(request).starts_with("own of mlp:3-5-2"));
  EXPECT_FALSE(fold(request));
  EXPECT_FALSE(axes_of(request));
  EXPECT_FALSE(grid_of(request));
  EXPECT_FALSE(is_rebalanced_by_work(request));
  EXPECT_GT(estimated_tasks(request), 0);
}

TEST(Strategy, ThatNamesALayoutIsDescribedByItsNumbersAndFoldedWhereTheyAreOthersThanItsName) {
  const model::Model model = model::parse_model("mlp:3-5-2");
  const cluster::Cluster eight = devices(8);
  const Request request{
      .model = model, .cluster = eight, .strategy = "ddp", .step = {.global_batch = 8}, .layout = {.dp = 4, .pp = 2}};
  EXPECT_EQ(describe(request), "dp 4 × pp 2, naive");
  EXPECT_TRUE(fold(request));
}

TEST(Strategy, OfAUsersOwnThatNamesALayoutIsBuiltDescribedAndFoldedAsThatLayout) {
  const model::Model model = model::parse_model("mlp:dim=4,depth=4");
  const Strategy own{"own", "1f1b with divided states", NamedLayout{.rest = NamedLayout::Axis::pp, .schedule = "1f1b", .zero = 1}};
  const cluster::Cluster eight = devices(8);
  const Request request{.model = model, .cluster = eight, .strategy = own, .layout = {.dp = 4}};
  const Request same{
      .model = model, .cluster = eight, .strategy = "product", .layout = {.dp = 4, .pp = 2, .zero = 1, .schedule = "1f1b"}};
  EXPECT_EQ(describe(request), "dp 4 × pp 2, zero 1, 1f1b, 4 micro-batches");
  EXPECT_EQ(compile(request), compile(same));
  ASSERT_TRUE(fold(request));
  EXPECT_EQ(fold(request)->plan, fold(same)->plan);
  EXPECT_TRUE(says(usage_sentence([&] {
                     Request other = request;
                     other.layout.schedule = "gpipe";
                     compile(other);
                   }),
                   "own is a pipeline under the schedule 1f1b"));
}

TEST(Strategy, OfAFunctionOfItsOwnPassesOverNothingThatItIsAskedFor) {
  const std::vector<std::pair<std::string, Layout>> asked{{"--dp", {.dp = 2}},
                                                          {"--pp", {.pp = 2}},
                                                          {"--tp", {.tp = 2}},
                                                          {"--zero", {.zero = 1}},
                                                          {"--schedule", {.schedule = "gpipe"}},
                                                          {"--chunks", {.chunks = 2}},
                                                          {"--split", {.split = {1, 3}}},
                                                          {"--balance", {.balance = Balance::work}},
                                                          {"--recompute", {.recompute = Recompute::all}},
                                                          {"--micro-batches", {.micro_batches = 3}}};
  const std::string model = "mlp:dim=8,depth=4";
  for (const Strategy& strategy : strategies()) {
    if (strategy.layout() != nullptr) {
      continue;
    }
    const std::string without = plan::to_text(compiled(strategy.name(), model, 2));
    for (const auto& [flag, layout] : asked) {
      try {
        EXPECT_NE(plan::to_text(compiled(strategy.name(), model, 2, {}, layout)), without)
            << flag << " changes nothing of " << strategy.name() << ", which should take it or refuse it";
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), flag));
      }
    }
  }
}

TEST(Loss, IsFoundByNameOrTheNamesAreListed) {
  EXPECT_EQ(loss_by_name("mse"), Loss::mean_squared_error);
  EXPECT_EQ(loss_by_name("Cross_Entropy"), Loss::cross_entropy);
  EXPECT_TRUE(says(usage_sentence([] { loss_by_name("l1"); }), "mse or cross-entropy"));
}

TEST(Delay, IsReadFromText) {
  const DelayRequest delay = parse_delay("before=update,device=2,ms=1.5");
  EXPECT_EQ(delay.before, Phase::update);
  EXPECT_EQ(delay.device, 2);
  EXPECT_EQ(delay.duration, Nanoseconds(1'500'000));
  EXPECT_EQ(parse_delay("device=all,time=20us").device, -1);
  EXPECT_EQ(parse_delay("time=20us").duration, Nanoseconds(20'000));
  EXPECT_TRUE(says(usage_sentence([] { parse_delay("before=lunch,ms=1"); }), "forward, backward or update"));
  EXPECT_TRUE(says(usage_sentence([] { parse_delay("after=forward,ms=1"); }), "after=forward"));
}

TEST(Delay, WithoutATimeIsRefused) {
  EXPECT_TRUE(says(usage_sentence([] { parse_delay("before=backward,device=1"); }), "time"));
}

TEST(Delay, WithTwoTimesIsRefused) {
  EXPECT_TRUE(says(usage_sentence([] { parse_delay("ms=1,time=2ms"); }), "both ms and time"));
  EXPECT_TRUE(says(usage_sentence([] { parse_delay("ms=1,device=0,ms=2"); }), "has ms twice"));
}

TEST(Compile, GivesEqualPlansForEqualRequests) {
  for (const Strategy& strategy : strategies()) {
    const auto make = [&] { return compiled(strategy.name(), "mlp:dim=8,depth=10", 3, {}, {}, cpu_target); };
    EXPECT_EQ(plan::to_text(make()), plan::to_text(make()));
    EXPECT_TRUE(make() == make());
  }
}

TEST(Compile, MakesLawfulPlansOfEverySizeForEveryTarget) {
  for (const Strategy& strategy : strategies()) {
    for (std::size_t count = 1; count <= 5; ++count) {
      for (const plan::Target& target : {plan::Target{}, cpu_target}) {
        for (const op::Optimizer& optimizer : {op::Optimizer(op::Sgd{}), op::Optimizer(op::Adam{})}) {
          for (const Loss loss : {Loss::mean_squared_error, Loss::cross_entropy}) {
            const plan::Plan plan = compiled(strategy.name(), "mlp:7-33-20-5-11-9-8-6-7-10-3", count,
                                             {.global_batch = 13, .loss = loss, .optimizer = optimizer},
                                             {.bucket = Bytes(2000), .first_bucket = Bytes(300)}, target,
                                             {{Phase::backward, -1, Nanoseconds(1)}, {Phase::update, 0, Nanoseconds(1)}});
            const plan::Verdict verdict = plan::verify(plan);
            EXPECT_TRUE(verdict.holds()) << plan.title() << ": " << verdict.violations.front().text;
          }
        }
      }
    }
  }
}

TEST(Compile, TakesAStrategyThatIsNotInTheList) {
  const model::Model model = model::mlp({3, 5, 2});
  const cluster::Cluster two = devices(2);
  const Strategy mine{"mine", "all on the last device", [](const Request& request) {
                        Placement placement{.devices = {"cpu:0", "cpu:1"}};
                        placement.replicas.push_back({{0, request.step.global_batch}, {DeviceId(1), DeviceId(1)}});
                        return training_step(request.model, request.step, placement);
                      }};
  const plan::Plan plan = compile({.model = model, .cluster = two, .strategy = mine});
  EXPECT_EQ(plan.title(), "mine of mlp:3-5-2, global batch 64, on 2 devices");
  EXPECT_TRUE(plan.lane(DeviceId(0), Lane::compute).empty());
  EXPECT_EQ(plan.lane(DeviceId(1), Lane::compute).size(), 10U);
}

TEST(Layers, PassTheBatonOnceForwardAndOnceBackBetweenNeighbours) {
  for (const std::size_t count : {1U, 2U, 5U}) {
    const plan::Plan plan = compiled("layers", "mlp:dim=8,depth=6", count, {}, {}, cpu_target);
    std::int64_t forward = 0;
    std::int64_t all = 0;
    for (const plan::Totals& totals : plan::totals_by_device(plan)) {
      forward += totals.transfers_forward;
      all += totals.transfers;
      EXPECT_EQ(totals.collectives, 0);
    }
    const auto n = static_cast<std::int64_t>(count);
    EXPECT_EQ(forward, n - 1);
    EXPECT_EQ(all - forward, n - 1);
    for (std::size_t m = 0; m < plan.meeting_count(); ++m) {
      const plan::Task& send = plan[plan.members(MeetingId(m))[0]];
      const auto& transfer = std::get<plan::Transfer>(send.action);
      const bool ahead = transfer.peer.value == send.device.value + 1;
      EXPECT_TRUE(ahead || transfer.peer.value + 1 == send.device.value) << "between neighbours";
      EXPECT_EQ(ahead, send.labels.phase == Phase::forward);
    }
  }
}

TEST(Layers, PutTheBlocksOnTheDevicesInOrderAsTheSplitSays) {
  const plan::Plan plan = compiled("layers", "mlp:dim=8,depth=6", 3, {}, {.split = {1, 3, 2}});
  constexpr std::array<std::uint32_t, 6> device_of{0, 1, 1, 1, 2, 2};
  for (const plan::Task& task : plan.tasks()) {
    if (task.lane == Lane::compute) {
      EXPECT_EQ(task.device.value, device_of[static_cast<std::size_t>(task.labels.block)]) << plan::verb(task);
    }
  }
}

TEST(Layers, LabelEveryTaskWithItsStage) {
  const plan::Plan plan = compiled("layers", "mlp:dim=8,depth=6", 3);
  for (std::size_t i = 0; i < plan.tasks().size(); ++i) {
    EXPECT_EQ(plan.tasks()[i].labels.stage, static_cast<std::int32_t>(plan.tasks()[i].device.value)) << plan.describe(TaskId(i));
  }
}

TEST(Single, LeavesTheOtherDevicesIdle) {
  const plan::Plan plan = compiled("single", "mlp:3-5-2", 3);
  for (const plan::Task& task : plan.tasks()) {
    EXPECT_EQ(task.device, DeviceId(0));
  }
}

TEST(Dp, ScattersReplicatesGathersReducesAndUpdatesOnDeviceZero) {
  const plan::Plan plan = compiled("dp", "mlp:3-5-2", 3, {.global_batch = 7});
  for (const plan::Buffer& buffer : plan.buffers()) {
    if (buffer.persistent || buffer.role == plan::Role::loss) {
      EXPECT_EQ(buffer.device, DeviceId(0)) << buffer.label;
    }
  }
  const std::vector<plan::Totals> totals = plan::totals_by_device(plan);
  // Device 0 sends each other one its input rows and the gradient of its outputs; it gets their outputs.
  EXPECT_EQ(totals[0].transfers, 4);
  EXPECT_EQ(totals[1].transfers, 1);
  EXPECT_EQ(totals[2].transfers, 1);
  for (const plan::Totals& device : totals) {
    EXPECT_EQ(device.collectives, 2) << "a broadcast of the parameters and a reduction of the gradients";
  }
  for (const std::string_view verb : {"mean_squared_error", "sgd"}) {
    const std::vector<std::size_t> found = places(plan.tasks(), verb);
    EXPECT_EQ(found.size(), verb == "sgd" ? 2U : 3U);
    for (const std::size_t i : found) {
      EXPECT_EQ(plan.tasks()[i].device, DeviceId(0)) << verb;
    }
  }
  // Rows 7 = 3 + 2 + 2 of 3 floats, 2 outputs, and 32 parameters, all in bytes.
  const std::int64_t rows = 2 + 2;
  EXPECT_EQ(totals[0].work.sent, Bytes(4 * (rows * 3 + rows * 2 + 2 * 32)));
  EXPECT_EQ(totals[0].work.received, Bytes(4 * (rows * 2 + 2 * 32)));
}

TEST(EstimatedTasks, AreThoseOfThePlanToAFactorOfTwo) {
  struct Case {
    const char* strategy;
    const char* model;
    std::size_t devices;
    Layout layout;
  };
  for (const Case& one : std::vector<Case>{
           {"single", "mlp:dim=8,depth=20", 1, {}},
           {"single", "mlp:dim=8,depth=20", 1, {.micro_batches = 16}},
           {"ddp", "mlp:dim=8,depth=20", 8, {}},
           {"1f1b", "mlp:dim=8,depth=20", 4, {.micro_batches = 16}},
           {"zero-3", "gpt:depth=4,heads=2,dim=16,vocab=32,context=8", 4, {}},
           {"tensor", "gpt:depth=4,heads=2,dim=16,vocab=32,context=8", 2, {}},
           {"product", "gpt:depth=4,heads=2,dim=16,vocab=32,context=8", 8, {.dp = 2, .pp = 2, .tp = 2, .micro_batches = 8}},
       }) {
    const Step step{.global_batch = 64,
                    .loss = std::string_view(one.model).starts_with("gpt") ? Loss::cross_entropy : Loss::mean_squared_error};
    const model::Model model = model::parse_model(one.model);
    const double estimated = estimated_tasks(
        {.model = model, .cluster = devices(one.devices), .strategy = one.strategy, .step = step, .layout = one.layout});
    const auto real = static_cast<double>(compiled(one.strategy, one.model, one.devices, step, one.layout).tasks().size());
    EXPECT_GT(estimated, real / 2) << one.strategy;
    EXPECT_LT(estimated, real * 2) << one.strategy;
  }
}

TEST(Ddp, SendsNothingButGradientsAndEachDeviceUpdatesItsOwn) {
  const plan::Plan plan = compiled("ddp", "mlp:3-5-2", 4, {.global_batch = 8});
  for (const plan::Totals& device : plan::totals_by_device(plan)) {
    EXPECT_EQ(device.transfers, 0);
    EXPECT_EQ(device.collectives, 1);
    EXPECT_EQ(device.work.sent, Bytes(2 * 3 * 32 / 4 * 4)) << "2 (n-1)/n of the 32 gradients";
  }
  EXPECT_EQ(places(plan.tasks(), "sgd").size(), 8U);
}

TEST(Ddp, ReducesEachBucketWhileTheBackwardOfEarlierBlocksStillRuns) {
  const plan::Plan plan = compiled("ddp", "mlp:dim=8,depth=6", 2, {}, {.bucket = Bytes(1), .first_bucket = Bytes(1)});
  for (std::size_t d = 0; d < 2; ++d) {
    std::vector<std::int32_t> blocks;
    for (const TaskId id : plan.lane(DeviceId(d), Lane::communication)) {
      const plan::Task& task = plan[id];
      blocks.push_back(task.labels.block);
      ASSERT_EQ(task.after.size(), 1U) << "it waits for its gradient's task only";
      const plan::Task& before = plan[task.after[0]];
      EXPECT_EQ(plan::verb(before), "linear_backward_weight");
      EXPECT_EQ(before.labels.block, task.labels.block);
    }
    EXPECT_EQ(blocks, (std::vector<std::int32_t>{5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0}));
  }
  for (const plan::Task& task : plan.tasks()) {
    if (task.lane == Lane::compute && task.labels.phase == Phase::backward) {
      EXPECT_TRUE(task.after.empty()) << "no part of the backward waits for a reduction";
    }
  }
}

TEST(Ddp, OnOneDeviceTakesTheSgdStepIntoTheWeightGradientLikeASingleDevice) {
  const plan::Plan ddp = compiled("ddp", "mlp:3-5-2", 1, {}, {}, cpu_target);
  const plan::Plan single = compiled("single", "mlp:3-5-2", 1, {}, {}, cpu_target);
  EXPECT_TRUE(places(ddp.tasks(), "sgd").empty());
  EXPECT_EQ(ddp.tasks(), single.tasks());
  EXPECT_EQ(ddp.buffers(), single.buffers());
  EXPECT_EQ(places(compiled("ddp", "mlp:3-5-2", 2, {}, {}, cpu_target).tasks(), "sgd").size(), 4U);
}

TEST(Compile, KeepsTheUpdateApartWhereADelayStandsBeforeIt) {
  const plan::Plan plan = compiled("single", "mlp:3-5-2", 1, {}, {}, cpu_target, {{Phase::update, 0, Nanoseconds(5)}});
  const std::vector<std::size_t> delays = places(plan.tasks(), "delay");
  const std::vector<std::size_t> updates = places(plan.tasks(), "sgd");
  ASSERT_EQ(delays.size(), 1U);
  ASSERT_EQ(updates.size(), 2U);
  EXPECT_EQ(delays[0] + 1, updates[0]);
}

}  // namespace
}  // namespace baton::strategy
