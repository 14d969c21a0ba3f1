#include <algorithm>

#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/model/builder.h"

/// Models that are graphs, with values that several ops read and parameters that several ops share: however they are split, they
/// leave what one device leaves.
namespace baton::test {
namespace {

using strategy::Recompute;

/// As in agree_test: a sum of some hundred products in float32, ten steps of it.
constexpr Tolerance rounding{.loss = 5e-7, .typical = 1e-6, .worst = 1e-5};

const std::vector<std::string>& models() {
  static const std::vector<std::string> list{"residual:dim=7,hidden=9,depth=4",
                                             "residual:dim=6,hidden=10,depth=4,sequence=4",
                                             "graph:tied",
                                             "graph:sequence",
                                             "graph:norm",
                                             "graph:gelu"};
  return list;
}

Case training_of(const std::string& model, strategy::Loss loss = strategy::Loss::mean_squared_error) {
  Case one{.model = model};
  one.step = {.global_batch = 12, .loss = loss, .optimizer = op::Sgd{.rate = 0.05, .momentum = 0.5}};
  return one;
}

const Outcome& judge(const std::string& model, strategy::Loss loss) {
  static std::map<std::pair<std::string, strategy::Loss>, Outcome> judged;
  const auto found = judged.find({model, loss});
  return found != judged.end() ? found->second
                               : judged.emplace(std::pair(model, loss), train(training_of(model, loss))).first->second;
}

TEST(Graphs, LearnSomething) {
  for (const std::string& model : models()) {
    for (const strategy::Loss loss : {strategy::Loss::mean_squared_error, strategy::Loss::cross_entropy}) {
      const Outcome& outcome = judge(model, loss);
      EXPECT_LT(outcome.losses.back(), 0.999 * outcome.losses.front()) << model;
    }
  }
}

TEST(Graphs, LeaveUnderEveryStrategyWhatTheReferenceLeavesOnOneDevice) {
  for (const std::string& model : models()) {
    for (const strategy::Loss loss : {strategy::Loss::mean_squared_error, strategy::Loss::cross_entropy}) {
      for (const strategy::Strategy& strategy : strategy::strategies()) {
        for (const std::string& backend : devices::backend_names()) {
          for (const std::size_t devices : {1U, 2U, 3U}) {
            Case one = training_of(model, loss);
            one.strategy = strategy.name();
            one.backend = backend;
            one.devices = devices;
            if (const auto outcome = train_unless_refused(one)) {
              EXPECT_TRUE(close(judge(model, loss), *outcome, rounding)) << to_text(one);
            } else {  // two stages on each of three devices are more than there are blocks
              EXPECT_GT(devices, 2U) << to_text(one) << " was refused";
            }
          }
        }
      }
    }
  }
}

TEST(Graphs, LeaveInProductsWhatTheReferenceLeavesOnOneDevice) {
  const std::vector<Product> products{
      {2, 2, 1, 0, "1f1b", 3},
      {2, 1, 2, 0, ""},
      {1, 2, 2, 0, "gpipe", 2},
      {2, 2, 2, 1, "1f1b", 3},
      {2, 2, 1, 2, "zb-v", 4},
      {2, 1, 2, 3, "", 2},
      {3, 1, 1, 1, "", 2},
      {3, 1, 1, 2, "", 3},
      {3, 1, 1, 3, "", 2, Recompute::all},
      {1, 2, 1, 0, "gpipe", 3, Recompute::alternate},
      {2, 2, 1, 3, "1f1b", 2, Recompute::all},
      {1, 4, 1, 0, "1f1b", 4},
  };
  for (const std::string& model : models()) {
    for (Product product : products) {
      for (const bool sp : {false, true}) {
        product.sp = sp;
        Case one = training_of(model);
        one.strategy = "product";
        one.devices = product.devices();
        one.layout = layout_of(product);
        for (const std::string& backend : devices::backend_names()) {
          one.backend = backend;
          const bool sequence = model != "graph:tied" && model != models()[0];
          const auto outcome = train_unless_refused(one);
          ASSERT_EQ(outcome.has_value(), !sp || (sequence && product.tp > 1)) << to_text(one);
          if (outcome) {
            EXPECT_TRUE(close(judge(model, one.step.loss), *outcome, rounding)) << to_text(one);
          }
        }
      }
    }
  }
}

TEST(Graphs, AVocabularyIsDividedWithTheScoresAndTheLoss) {
  const std::string model = "tokens:vocabulary=13,dim=6,hidden=8,depth=2,sequence=6";
  const Outcome& expected = judge(model, strategy::Loss::cross_entropy);
  EXPECT_LT(expected.losses.back(), 0.999 * expected.losses.front());
  const std::vector<Product> products{
      {1, 1, 2, 0, ""},    {1, 1, 3, 0, "", 2},     {2, 1, 2, 0, "", 2},     {2, 1, 2, 1, ""},
      {2, 1, 2, 3, "", 2}, {1, 2, 2, 0, "1f1b", 3}, {2, 2, 2, 2, "zb-v", 4}, {1, 4, 1, 0, "gpipe", 2, Recompute::all},
      {3, 1, 1, 2, ""},
  };
  for (Product product : products) {
    for (const bool sp : {false, true}) {
      if (sp && product.tp == 1) {
        continue;
      }
      product.sp = sp;
      for (const std::string& backend : devices::backend_names()) {
        Case one = training_of(model, strategy::Loss::cross_entropy);
        one.strategy = "product";
        one.backend = backend;
        one.devices = product.devices();
        one.layout = layout_of(product);
        EXPECT_TRUE(close(expected, train(one), rounding)) << to_text(one);
        one.step.precision = strategy::Precision::fp16;
        one.step.loss_scale = strategy::LossScale{.initial = 256};
        EXPECT_NEAR(train(one).losses.back(), expected.losses.back(), 2e-2 * expected.losses.back()) << to_text(one);
      }
    }
  }
  Case squares = training_of(model);
  squares.strategy = "tensor";
  squares.devices = 2;
  EXPECT_FALSE(train_unless_refused(squares).has_value()) << "squares have no form for scores in parts";
}

TEST(Graphs, ASequenceThatIsNoMultipleOfThePartsIsDividedByWholePositions) {
  const std::vector<Product> products{{1, 1, 2, 0, ""},
                                      {1, 1, 3, 0, "", 2},
                                      {1, 1, 4, 0, ""},
                                      {2, 1, 2, 3, "", 2},
                                      {1, 2, 2, 0, "1f1b", 3},
                                      {2, 2, 2, 2, "zb-v", 4},
                                      {1, 2, 3, 0, "gpipe", 2, Recompute::all}};
  for (const std::string model : {"residual:dim=6,hidden=10,depth=4,sequence=5", "residual:dim=5,hidden=4,depth=4,sequence=7",
                                  "tokens:vocabulary=13,dim=6,hidden=8,depth=3,sequence=7"}) {
    const strategy::Loss loss = model[0] == 't' ? strategy::Loss::cross_entropy : strategy::Loss::mean_squared_error;
    for (Product product : products) {
      product.sp = true;
      for (const std::string& backend : devices::backend_names()) {
        Case one = training_of(model, loss);
        one.strategy = "product";
        one.backend = backend;
        one.devices = product.devices();
        one.layout = layout_of(product);
        EXPECT_TRUE(close(judge(model, loss), train(one), rounding)) << to_text(one);
      }
    }
  }
}

TEST(Graphs, MixedPrecisionIsTheSameHoweverTheyAreSplit) {
  for (const std::string& model : models()) {
    Case one = training_of(model);
    one.step.precision = strategy::Precision::bf16;
    const Outcome expected = train(one);
    for (const std::string strategy : {"ddp", "layers", "zero-1", "zero-2", "zero-3", "tensor"}) {
      one.strategy = strategy;
      one.devices = 2;
      one.layout = {};
      for (const bool sp : {false, true}) {
        one.layout.sp = sp && strategy == "tensor" && model != "graph:tied" && model != models()[0];
        // Values are rounded to 8 bits; what a split sums in another order may round to the next.
        EXPECT_TRUE(close(expected, train(one), {.loss = 2e-2, .typical = 1e-1, .worst = 5e-1})) << to_text(one);
      }
    }
    one.layout = {};
    one.strategy = "layers";
    if (model != "graph:tied" && model != "graph:sequence") {  // stages that share a parameter sum its gradient in another order
      EXPECT_TRUE(same_bits(expected.losses, train(one).losses)) << to_text(one);
    }
  }
}

TEST(Graphs, LossScalingAndAdamWorkOnThem) {
  for (const std::string& model : models()) {
    Case one = training_of(model);
    one.step.precision = strategy::Precision::fp16;
    one.step.loss_scale = strategy::LossScale{.initial = 1024};
    one.step.optimizer = op::Adam{.rate = 0.01};
    const Outcome expected = train(one);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const std::string strategy : {"ddp", "1f1b", "zero-2", "tensor"}) {
      one.strategy = strategy;
      one.devices = 2;
      const Outcome outcome = train(one);
      EXPECT_NEAR(outcome.losses.back(), expected.losses.back(), 2e-2 * expected.losses.back()) << to_text(one);
    }
  }
}

TEST(Graphs, AnEvenSplitOfTheLayersLeavesTheSameBitsButForSharedParameters) {
  for (const std::string model : {"residual:dim=7,hidden=9,depth=4", "residual:dim=6,hidden=10,depth=4,sequence=4"}) {
    Case one = training_of(model);
    for (const std::string& backend : backends_that_count()) {
      one.backend = backend;
      one.strategy = "single";
      one.devices = 1;
      const Outcome expected = train(one);
      one.strategy = "layers";
      one.devices = 3;
      EXPECT_TRUE(same_bits(expected, train(one))) << to_text(one);
    }
  }
}

}  // namespace
}  // namespace baton::test
