#include <algorithm>
#include <cmath>

#include "agree/training.h"

/// Convolutional networks: however they are split, they leave what one device leaves. Norms take pairs of samples together where
/// the split must not matter.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Recompute;

/// As in agree_test: sums of some hundred products in float32, ten steps of them. A norm divides by what may be small, so that
/// roundings grow on the way back through several of them.
constexpr Tolerance rounding{.loss = 5e-6, .typical = 2e-5, .worst = 2e-4};

const std::vector<std::string>& models() {
  static const std::vector<std::string> list{"cnn:4-6,image=8,channels=2,classes=5", "graph:images"};
  return list;
}

bool has_norms(const std::string& model) { return model != models()[0]; }

/// At a rate at which no element of a ReLU or a max-pool comes so near to its kink that rounding decides the side.
Case training_of(const std::string& model, Loss loss = Loss::cross_entropy) {
  Case one{.model = model};
  one.step = {.global_batch = has_norms(model) ? 24 : 13, .loss = loss, .optimizer = op::Sgd{.rate = 0.03, .momentum = 0.5}};
  return one;
}

const Outcome& judge(const std::string& model, Loss loss = Loss::cross_entropy) {
  static std::map<std::pair<std::string, Loss>, Outcome> judged;
  const auto found = judged.find({model, loss});
  return found != judged.end() ? found->second
                               : judged.emplace(std::pair(model, loss), train(training_of(model, loss))).first->second;
}

TEST(Images, LearnSomething) {
  for (const std::string& model : models()) {
    for (const Loss loss : {Loss::mean_squared_error, Loss::cross_entropy}) {
      EXPECT_LT(judge(model, loss).losses.back(), 0.99 * judge(model, loss).losses.front()) << model;
    }
  }
}

TEST(Images, LeaveUnderEveryStrategyWhatTheReferenceLeavesOnOneDevice) {
  for (const std::string& model : models()) {
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (const std::string& backend : backends_that_count()) {
        for (const std::size_t devices : {1U, 2U, 3U}) {
          Case one = training_of(model, devices == 2 ? Loss::mean_squared_error : Loss::cross_entropy);
          one.strategy = strategy.name();
          one.backend = backend;
          one.devices = devices;
          if (const auto outcome = train_unless_refused(one)) {
            EXPECT_TRUE(close(judge(model, one.step.loss), *outcome, rounding)) << to_text(one);
          } else {  // nothing to divide, or fewer blocks than two stages on each of three devices
            EXPECT_TRUE(strategy.name() == "tensor" ? has_norms(model) : devices > 2) << to_text(one) << " was refused";
          }
        }
      }
    }
  }
}

TEST(Images, LeaveInProductsWhatTheReferenceLeavesOnOneDevice) {
  const std::vector<Product> products{
      {2, 2, 1, 0, "1f1b", 3},
      {2, 1, 2, 0, ""},
      {1, 2, 2, 0, "gpipe", 2},
      {2, 2, 2, 1, "1f1b", 3},
      {2, 2, 1, 2, "zb-v", 6},
      {2, 1, 2, 3, "", 2},
      {3, 1, 1, 1, "", 2},
      {3, 1, 1, 2, "", 4},
      {3, 1, 1, 3, "", 2, Recompute::all},
      {1, 2, 1, 0, "gpipe", 3, Recompute::alternate},
      {2, 2, 1, 3, "1f1b", 2, Recompute::all},
      {1, 4, 1, 0, "1f1b", 4},
      {1, 3, 1, 0, "zb-h1", 6},
      {4, 1, 1, 0, "", 3},
  };
  for (const std::string& model : models()) {
    for (const Product& product : products) {
      for (const std::string& backend : backends_that_count()) {
        Case one = training_of(model);
        one.strategy = "product";
        one.backend = backend;
        one.devices = product.devices();
        one.layout = layout_of(product);
        const auto outcome = train_unless_refused(one);
        const bool divisible = product.tp == 1 || !has_norms(model);
        ASSERT_EQ(outcome.has_value(), divisible) << to_text(one);
        if (outcome) {
          EXPECT_TRUE(close(judge(model), *outcome, rounding)) << to_text(one);
        }
      }
    }
  }
}

/// As in PyTorch, a norm's moments are those of the samples that a replica computes at once. Strategies that divide the batch in
/// the same way therefore give the same results, and so do norms over groups of that size.
TEST(Images, NormsOfReplicasFollowTheDivisionOfTheBatch) {
  Case whole = training_of("graph:replicas");
  whole.step.global_batch = 8;
  const Outcome together = train(whole);
  Case pieces = whole;
  pieces.layout.micro_batches = 4;
  const Outcome expected = train(pieces);
  EXPECT_FALSE(close(together, expected, rounding)) << "the division of the batch makes no difference";
  Case pairs = whole;
  pairs.model = "graph:images";
  EXPECT_TRUE(close(expected, train(pairs), rounding));
  for (const std::string& backend : backends_that_count()) {
    for (const auto& [strategy, devices, micro] :
         {std::tuple("ddp", 4U, 1), {"ddp", 2U, 2}, {"dp", 4U, 1}, {"layers", 2U, 4}, {"1f1b", 3U, 4}, {"zero-3", 4U, 1}}) {
      Case one = whole;
      one.strategy = strategy;
      one.backend = backend;
      one.devices = devices;
      one.layout.micro_batches = micro;
      EXPECT_TRUE(close(expected, train(one), rounding)) << to_text(one);
    }
  }
}

testing::AssertionResult near(const Weights& expected, const Weights& actual) {
  for (const auto& [name, values] : expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!(std::abs(actual.at(name).at(i) - values[i]) <= 2e-5 * std::max(1.0, std::abs(values[i])))) {
        return testing::AssertionFailure() << name << '[' << i << "] is " << actual.at(name)[i] << " and not " << values[i];
      }
    }
  }
  return testing::AssertionResult(!expected.empty() && expected.size() == actual.size());
}

/// Statistics are tracked once per micro-batch, also if its forward is recomputed. A replica has the statistics of its own rows.
TEST(Images, StatisticsAreThoseOfTheBatchesThatAReplicaHas) {
  Case whole = training_of("graph:replicas");
  whole.step.global_batch = 8;
  whole.layout.micro_batches = 4;
  Training one_device(whole);
  one_device.run(5);
  const Weights expected = one_device.statistics();
  EXPECT_EQ(expected.at("stem.norm.num_batches_tracked"), std::vector<double>{20});
  EXPECT_NE(expected.at("stem.norm.running_mean")[0], 0);
  for (const std::string& backend : backends_that_count()) {
    for (const auto& [strategy, devices, recompute] : {std::tuple("single", 1U, Recompute::all),
                                                       {"layers", 2U, Recompute::none},
                                                       {"1f1b", 3U, Recompute::alternate},
                                                       {"zb-v", 2U, Recompute::none}}) {
      Case one = whole;
      one.strategy = strategy;
      one.backend = backend;
      one.devices = devices;
      one.layout.recompute = recompute;
      Training training(one);
      training.run(5);
      EXPECT_TRUE(near(expected, training.statistics())) << to_text(one);
    }
  }
  Case replicas = whole;
  replicas.layout.micro_batches = 0;
  replicas.strategy = "ddp";
  replicas.devices = 4;
  Training ddp(replicas);
  ddp.run(5);
  EXPECT_EQ(ddp.statistics().at("stem.norm.num_batches_tracked"), std::vector<double>{5});
  EXPECT_FALSE(near(ddp.statistics(0), ddp.statistics(3))) << "they have other samples";
  for (const char* strategy : {"dp", "zero-1", "zero-3"}) {
    Case other = replicas;
    other.strategy = strategy;
    Training training(other);
    training.run(5);
    EXPECT_TRUE(near(ddp.statistics(), training.statistics())) << to_text(other);
  }
}

TEST(Images, StatisticsStayWideInMixedPrecision) {
  Case one = training_of("graph:images");
  one.step.global_batch = 8;
  Training wide(one);
  wide.run(2);
  for (const std::string& backend : backends_that_count()) {
    one.backend = backend;
    one.step.precision = strategy::Precision::bf16;
    Training narrow(one);
    narrow.run(2);
    const Weights expected = wide.statistics();
    for (const auto& [name, values] : narrow.statistics()) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], expected.at(name)[i], 2e-2) << name << " on " << backend;
      }
    }
  }
}

TEST(Images, MixedPrecisionStaysNearHoweverTheyAreSplit) {
  for (const std::string& model : models()) {
    for (const std::string& backend : backends_that_count()) {
      for (const strategy::Precision precision : {strategy::Precision::bf16, strategy::Precision::fp16}) {
        for (const auto& [strategy, devices] : {std::pair("single", 1U), {"ddp", 2U}, {"layers", 2U}, {"zero-2", 2U}, {"dp", 2U}}) {
          Case one = training_of(model);
          one.step.precision = precision;
          if (precision == strategy::Precision::fp16) {
            one.step.loss_scale = strategy::LossScale{.initial = 256};
          }
          one.strategy = strategy;
          one.backend = backend;
          one.devices = devices;
          const Outcome outcome = train(one);
          EXPECT_NEAR(outcome.losses.back(), judge(model).losses.back(), 3e-2 * judge(model).losses.back()) << to_text(one);
        }
      }
    }
  }
}

TEST(Images, LayersLeaveTheBitsOfOneDeviceWhateverTheTeamsSize) {
  for (const std::string& model : models()) {
    for (const std::string& backend : backends_that_count()) {
      Case one = training_of(model);
      one.backend = backend;
      const Outcome expected = train(one);
      for (const std::size_t devices : {1U, 2U, 3U}) {
        for (const std::size_t cores : {1U, 2U, 3U}) {
          one.strategy = "layers";
          one.devices = devices;
          one.cores_per_device = cores;
          EXPECT_TRUE(same_bits(expected, train(one))) << to_text(one);
        }
      }
    }
  }
}

TEST(Images, AResnetTrainsAlikeOnBothBackendsAndInAPipeline) {
  // Twenty norms, the last ones of a few numbers each, let roundings grow tenfold.
  constexpr Tolerance grown{.loss = 5e-5, .typical = 2e-4, .worst = 2e-3};
  Case one{.model = "resnet:18,image=16,classes=5,width=4,group=4"};
  one.step = {.global_batch = 16, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.02, .momentum = 0.5}};
  const Outcome expected = train(one, 3);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  one.backend = "cpu";
  EXPECT_TRUE(close(expected, train(one, 3), grown));
  for (const auto& [strategy, devices] : {std::pair("ddp", 4U), {"1f1b", 2U}, {"interleaved", 2U}, {"zero-3", 2U}}) {
    one.strategy = strategy;
    one.devices = devices;
    EXPECT_TRUE(close(expected, train(one, 3), grown)) << to_text(one);
  }
}

/// The channels between two convolutions are divided, with their norms and what these keep. In doubles, since roundings grow from
/// norm to norm.
TEST(Images, AResnetWithDividedChannelsLeavesAndKeepsWhatOneDeviceDoes) {
  constexpr Tolerance doubles{.loss = 1e-10, .typical = 1e-8, .worst = 1e-7};
  for (const std::string depth : {"18", "50"}) {
    Case one{.model = "resnet:" + depth + ",image=8,classes=5,width=4,group=4"};
    one.step = {
        .global_batch = 8, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.01}, .precision = strategy::Precision::fp64};
    Training whole(one);
    whole.run(1);
    const Outcome expected = train(one, 1);
    for (const Product& product : {Product{1, 1, 2, 0, ""}, {2, 1, 2, 1, ""}, {1, 2, 2, 0, "1f1b", 2}, {1, 1, 4, 0, ""}}) {
      Case divided = one;
      divided.strategy = "product";
      divided.devices = product.devices();
      divided.layout = layout_of(product);
      EXPECT_TRUE(close(expected, train(divided, 1), doubles)) << to_text(divided);
      if (product.dp == 1) {
        Training parts(divided);
        parts.run(1);
        const std::vector<double> part = parts.statistics().at("layer1.0.bn1.running_mean");
        const std::vector<double> all = whole.statistics().at("layer1.0.bn1.running_mean");
        ASSERT_EQ(part.size() * (depth == "18" ? static_cast<std::size_t>(product.tp) : 1), all.size());
        for (std::size_t c = 0; c < part.size(); ++c) {
          EXPECT_NEAR(part[c], all[c], 1e-9) << to_text(divided);
        }
      }
    }
  }
  Case one{.model = "resnet:18,image=16,classes=5,width=4,group=4", .backend = "cpu"};
  one.step = {.global_batch = 8, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.01}};
  const Outcome expected = train(one, 1);
  one.strategy = "tensor";
  one.devices = 3;
  EXPECT_TRUE(close(expected, train(one, 1), {.loss = 1e-5, .typical = 2e-3, .worst = 2e-2})) << to_text(one);
}

}  // namespace
}  // namespace baton::test
