#include <cmath>
#include <random>
#include <set>

#include "agree/training.h"
#include "baton/devices/backends.h"

/// What a step does in addition to the model's own arithmetic: clipping by the norm of all gradients, dropout, and which of its
/// tensors are float32 in 16-bit training.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Recompute;

constexpr Tolerance rounding{.loss = 5e-7, .typical = 2e-6, .worst = 2e-5};

const std::string mlp = "mlp:7-12-9-5-8";
const std::string gpt = "gpt:depth=2,heads=4,dim=16,context=6,vocab=23";
const std::string llama = "llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=11,context=5,vocab=22";
const std::string cnn = "cnn:4-3,image=8,channels=1,classes=5";

Case training_of(const std::string& model, const op::Optimizer& optimizer, std::int64_t batch = 7) {
  Case one{.model = model};
  one.step = {.global_batch = batch, .loss = model == mlp ? Loss::mean_squared_error : Loss::cross_entropy, .optimizer = optimizer};
  return one;
}

/// How far the parameters have moved, all together.
double distance(const Outcome& outcome) {
  double sum = 0;
  for (const auto& [name, values] : outcome.after) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double moved = values[i] - outcome.before.at(name)[i];
      sum += moved * moved;
    }
  }
  return std::sqrt(sum);
}

/// A way to split a step over some devices.
struct Way {
  std::string strategy;
  std::size_t devices = 1;
  strategy::Layout layout = {};
};

/// Every family of strategies: replicas, one owner, stages, parts, pieces, and their products.
std::vector<Way> ways() {
  std::vector<Way> all{{"single", 1, {.micro_batches = 3}},
                       {"single", 1, {.recompute = Recompute::all}},
                       {"dp", 3},
                       {"ddp", 2, {.micro_batches = 2}},
                       {"layers", 3},
                       {"1f1b", 2},
                       {"interleaved", 2},
                       {"zb-v", 2},
                       {"tensor", 2},
                       {"zero-1", 3},
                       {"zero-2", 2, {.micro_batches = 2}},
                       {"zero-3", 3}};
  for (const Product& product : std::vector<Product>{{2, 2, 1, 0, "1f1b", 3},
                                                     {2, 1, 2, 0, "", 2},
                                                     {2, 2, 2, 1, "1f1b", 3},
                                                     {2, 1, 2, 3, "", 2},
                                                     {2, 2, 1, 2, "zb-v", 3, Recompute::alternate},
                                                     {1, 1, 2, 0, "", 2, Recompute::all, true}}) {
    all.push_back({"product", product.devices(), layout_of(product)});
  }
  return all;
}

Case in_way(Case one, const Way& way, const std::string& backend) {
  one.strategy = way.strategy;
  one.devices = way.devices;
  one.layout = way.layout;
  one.backend = backend;
  return one;
}

/// The norm is that of all gradients: a step that is clipped goes as far as the rate says, whatever the model and the split.
TEST(Clipping, AStepThatIsClippedGoesTheRateTimesTheNorm) {
  std::mt19937 random(5);
  for (const std::string& model : {mlp, gpt, llama, cnn}) {
    for (const Way& way : ways()) {
      for (const std::string& backend : devices::backend_names()) {
        const double norm = std::pow(10, -1 - static_cast<double>(random() % 3));
        const Case one = in_way(training_of(model, op::Sgd{.rate = 0.5, .clip = norm}), way, backend);
        if (const auto outcome = train_unless_refused(one, 1)) {
          EXPECT_NEAR(distance(*outcome), 0.5 * norm, 1e-4 * norm) << to_text(one);
        }
      }
    }
  }
}

TEST(Clipping, LeavesUnderEveryStrategyWhatTheReferenceLeavesOnOneDevice) {
  for (const auto& [model, optimizer] :
       {std::pair<std::string, op::Optimizer>(
            mlp, op::Adam{.rate = 0.01, .weight_decay = 0.1, .decoupled = true, .decay_matrices = true, .clip = 0.05}),
        // Not Adam: it makes large steps of gradients that are zero but for rounding, as those of the keys' biases.
        {gpt, op::Sgd{.rate = 0.5, .momentum = 0.5, .weight_decay = 0.1, .decay_matrices = true, .clip = 0.2}},
        {llama, op::Sgd{.rate = 0.2, .clip = 0.3}}}) {
    const Case plain = training_of(model, optimizer);
    const Outcome judge = train(plain, 4);
    int ran = 0;
    for (const Way& way : ways()) {
      for (const std::string& backend : devices::backend_names()) {
        const Case one = in_way(plain, way, backend);
        if (const auto outcome = train_unless_refused(one, 4)) {
          EXPECT_TRUE(close(judge, *outcome, rounding)) << to_text(one);
          ++ran;
        }
      }
    }
    EXPECT_GT(ran, 30) << model;
  }
}

TEST(Clipping, ANormThatIsNotExceededChangesNoBit) {
  for (const std::string& backend : devices::backend_names()) {
    for (const std::string strategy : {"single", "ddp", "zero-2"}) {
      Case one = training_of(gpt, op::Adam{.rate = 0.01});
      one.strategy = strategy;
      one.devices = strategy == "single" ? 1 : 2;
      one.backend = backend;
      const Outcome expected = train(one, 3);
      one.step.optimizer = op::Adam{.rate = 0.01, .clip = 1e6};
      EXPECT_TRUE(same_bits(expected, train(one, 3))) << to_text(one);
    }
  }
}

/// A loss scale multiplies the norm too, and is taken back.
TEST(Clipping, DoesNotSeeTheLossScale) {
  for (const std::string& backend : devices::backend_names()) {
    for (const std::string strategy : {"single", "zero-1", "tensor"}) {
      Case one = training_of(gpt, op::Adam{.rate = 0.01, .clip = 0.1});
      one.strategy = strategy;
      one.devices = strategy == "single" ? 1 : 2;
      one.backend = backend;
      const Outcome expected = train(one, 3);
      one.step.loss_scale = strategy::LossScale{.initial = 1024};
      EXPECT_TRUE(close(expected, train(one, 3), rounding)) << to_text(one);
      one.step.precision = strategy::Precision::fp16;
      const Outcome half = train(one, 3);
      for (std::size_t i = 0; i < half.losses.size(); ++i) {
        EXPECT_NEAR(half.losses[i], expected.losses[i], 1e-2 * expected.losses[i]) << to_text(one);
      }
    }
  }
}

TEST(Clipping, TheTeamsSizeDoesNotShow) {
  Case one = training_of("mlp:dim=150,depth=3", op::Sgd{.rate = 0.5, .clip = 0.01});
  one.backend = "cpu";
  const Outcome expected = train(one, 3);
  one.cores_per_device = 3;
  EXPECT_TRUE(same_bits(expected, train(one, 3)));
}

const std::string dropped_gpt = "gpt:depth=2,heads=4,dim=16,context=6,vocab=23,dropout=0.3";
const std::string dropped_llama = "llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=11,context=5,vocab=22,dropout=0.5";
const std::string dropped_vit = "vit:depth=1,heads=2,dim=8,patch=2,image=6,classes=5,dropout=0.1";

/// Which elements are dropped does not depend on the split: not on replicas, micro-batches, parts of the sequence or of features,
/// nor on whether a value is computed a second time.
TEST(Dropout, LeavesUnderEveryStrategyWhatTheReferenceLeavesOnOneDevice) {
  for (const std::string& model : {dropped_gpt, dropped_llama, dropped_vit}) {
    const Case plain = training_of(model, op::Sgd{.rate = 0.1, .momentum = 0.5});
    const Outcome judge = train(plain, 3);
    int ran = 0;
    for (const Way& way : ways()) {
      for (const std::string& backend : devices::backend_names()) {
        const Case one = in_way(plain, way, backend);
        if (const auto outcome = train_unless_refused(one, 3)) {
          EXPECT_TRUE(close(judge, *outcome, rounding)) << to_text(one);
          ++ran;
        }
      }
    }
    EXPECT_GT(ran, 28) << model;
  }
}

/// Steps drop other elements, and without a rate none are.
TEST(Dropout, ChangesWithTheStep) {
  Case one = training_of(dropped_gpt, op::Sgd{.rate = 0});
  const std::vector<double> losses = train(one, 3).losses;
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
  one.model = gpt;
  const std::vector<double> plain = train(one, 2).losses;
  EXPECT_EQ(plain[0], plain[1]);
  EXPECT_NEAR(losses[0], plain[0], 0.2 * plain[0]);
}

/// The gradient is that of the loss with the same elements dropped.
TEST(Dropout, TheGradientEqualsTheCentralDifference) {
  for (const std::string& model : {dropped_gpt, dropped_llama}) {
    Case one = training_of(model, op::Sgd{.rate = 1}, 2);
    one.step.precision = strategy::Precision::fp64;
    Training training(one);
    const Weights start = training.weights();
    const auto buffers = training.parameter_buffers();
    const auto loss_from = [&](const std::string& changed, std::size_t at, double value) {
      for (const auto& [name, ids] : buffers) {
        std::vector<double> values = start.at(name);
        if (name == changed) {
          values[at] = value;
        }
        training.executor().write(ids[0], values);
      }
      training.executor().continue_from(0);  // the same elements are dropped
      return training.run(1).losses[0];
    };
    loss_from("", 0, 0);
    const Weights after = training.weights();
    std::mt19937 random(3);
    for (const auto& [name, values] : start) {
      const std::size_t at = random() % values.size();
      constexpr double step = 1e-5;
      const double slope = (loss_from(name, at, values[at] + step) - loss_from(name, at, values[at] - step)) / (2 * step);
      EXPECT_NEAR(values[at] - after.at(name)[at], slope, 1e-7 + 1e-5 * std::abs(slope)) << model << ", " << name;
    }
  }
}

/// In 16-bit training the residual stream and its gradient are float32, and what they pass through has 16 bits.
TEST(MixedPrecision, TheResidualStreamIsFloat32) {
  for (const std::string& model : {gpt, llama, dropped_vit}) {
    for (const std::string strategy : {"single", "1f1b", "tensor"}) {
      Case one = training_of(model, op::Sgd{.rate = 0.1});
      one.strategy = strategy;
      one.devices = strategy == "single" ? 1 : 2;
      one.step.precision = strategy::Precision::bf16;
      const Training training(one);
      std::set<std::size_t> wide;
      for (const plan::Buffer& buffer : training.plan().buffers()) {
        const auto* part = std::get_if<plan::ValuePart>(&buffer.content);
        if (part != nullptr && training.plan().graph().values[part->value.index()].wide) {
          EXPECT_EQ(buffer.dtype, DType::f32) << buffer.label << " in " << to_text(one);
          wide.insert(part->value.index());
        }
      }
      EXPECT_GE(wide.size(), 3U) << "the embedding and two sums, in " << to_text(one);
      for (const plan::Task& task : training.plan().tasks()) {
        if (plan::verb(task) == "add" && task.labels.phase == plan::Phase::forward) {
          EXPECT_EQ(training.plan()[task.writes[0]].dtype, DType::f32);
          EXPECT_EQ(training.plan()[task.reads[1]].dtype, DType::bf16);
        }
      }
    }
  }
}

TEST(MixedPrecision, GradientsOfParametersAreFloat32WhereTheStepAsksForIt) {
  int ran = 0;
  for (const std::string& model : {mlp, gpt, llama, cnn, std::string("graph:images")}) {
    for (const Way& way : {Way{"single", 1, {.micro_batches = 2}}, Way{"zero-2", 2}, Way{"tensor", 2}}) {
      for (const std::string& backend : devices::backend_names()) {
        Case one = in_way(training_of(model, op::Sgd{.rate = 0.05, .momentum = 0.5}, 8), way, backend);
        const std::optional<Outcome> wide = train_unless_refused(one, 2);
        if (!wide) {
          continue;
        }
        ++ran;
        one.step.precision = strategy::Precision::bf16;
        one.step.wide_gradients = true;
        const Training training(one);
        for (const plan::Buffer& buffer : training.plan().buffers()) {
          if (buffer.role == plan::Role::gradient && std::holds_alternative<plan::ParameterPart>(buffer.content)) {
            EXPECT_EQ(buffer.dtype, DType::f32) << buffer.label;
          }
        }
        const Outcome outcome = train(one, 2);
        for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
          EXPECT_NEAR(outcome.losses[i], wide->losses[i], 2e-2 * wide->losses[i]) << to_text(one);
        }
      }
    }
  }
  EXPECT_GE(ran, 24);
}

}  // namespace
}  // namespace baton::test
