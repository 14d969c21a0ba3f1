#include <algorithm>

#include "agree/training.h"
#include "baton/devices/backends.h"

/// GPT and LLaMA, whose attention has heads of its own and groups of heads, vision transformers and mixers: however they are split,
/// they leave what one device leaves.
namespace baton::test {
namespace {

using strategy::Loss;
using strategy::Recompute;

/// As in agree_test; the softmax and the norms add some roundings of their own.
constexpr Tolerance rounding{.loss = 5e-7, .typical = 2e-6, .worst = 2e-5};

const std::string gpt = "gpt:depth=2,heads=4,dim=16,context=8,vocab=23";
const std::string llama = "llama:depth=2,heads=4,kv-heads=2,dim=16,hidden=21,context=8,vocab=22";
const std::string vit = "vit:depth=2,heads=2,dim=8,patch=2,image=6,classes=5";
const std::string mixer = "mixer:depth=2,dim=8,tokens=7,channels=10,patch=2,image=6,classes=5";
/// Three heads, so that two devices have two and one.
const std::string odd = "gpt:depth=2,heads=3,dim=15,context=6,vocab=17";

Case training_of(const std::string& model, std::int64_t batch = 7) {
  Case one{.model = model};
  one.step = {.global_batch = batch, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1, .momentum = 0.5}};
  return one;
}

const Outcome& judge(const std::string& model) {
  static std::map<std::string, Outcome> judged;
  const auto found = judged.find(model);
  return found != judged.end() ? found->second : judged.emplace(model, train(training_of(model), 4)).first->second;
}

TEST(Transformers, LearnSomething) {
  for (const std::string& model : {gpt, llama, odd, vit, mixer}) {
    EXPECT_LT(judge(model).losses.back(), 0.99 * judge(model).losses.front()) << model;
  }
}

TEST(Transformers, LeaveUnderEveryStrategyWhatTheReferenceLeavesOnOneDevice) {
  for (const std::string& model : {gpt, llama, odd, vit, mixer}) {
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (const std::string& backend : devices::backend_names()) {
        for (const std::size_t devices : {1U, 2U, 3U}) {
          Case one = training_of(model);
          one.strategy = strategy.name();
          one.backend = backend;
          one.devices = devices;
          if (const auto outcome = train_unless_refused(one, 4)) {
            EXPECT_TRUE(close(judge(model), *outcome, rounding)) << to_text(one);
          } else {  // two groups of heads over three devices
            EXPECT_TRUE(devices == 3 && strategy.name() == "tensor" && (model == llama || model == vit))
                << to_text(one) << " was refused";
          }
        }
      }
    }
  }
}

TEST(Transformers, LeaveInProductsWhatTheReferenceLeavesOnOneDevice) {
  const std::vector<Product> products{
      {2, 2, 1, 0, "1f1b", 3},
      {2, 1, 2, 0, "", 2},
      {1, 2, 2, 0, "gpipe", 2},
      {2, 2, 2, 1, "1f1b", 3},
      {2, 2, 1, 2, "zb-v", 3},
      {2, 1, 2, 3, "", 2},
      {1, 1, 2, 0, "", 2, Recompute::all},
      {3, 1, 1, 3, "", 2, Recompute::all},
      {2, 2, 2, 3, "1f1b", 2, Recompute::alternate},
  };
  for (const std::string& model : {gpt, llama, odd, vit, mixer}) {
    for (Product product : products) {
      for (const bool sp : {false, true}) {
        if (sp && (product.tp == 1 || model == mixer)) {
          continue;
        }
        product.sp = sp;
        Case one = training_of(model);
        one.strategy = "product";
        one.devices = product.devices();
        one.layout = layout_of(product);
        for (const std::string& backend : devices::backend_names()) {
          one.backend = backend;
          EXPECT_TRUE(close(judge(model), train(one, 4), rounding)) << to_text(one);
        }
      }
    }
  }
}

TEST(Transformers, ASequenceWithAClassTokenIsDividedToo) {
  const std::string many = "vit:depth=2,heads=4,dim=8,patch=2,image=6,classes=5";  // ten positions
  const Outcome expected = train(training_of(many), 4);
  for (const std::size_t devices : {2U, 3U, 4U}) {
    for (const std::string& backend : devices::backend_names()) {
      Case one = training_of(many);
      one.strategy = "tensor";
      one.backend = backend;
      one.devices = devices;
      one.layout = {.sp = true};
      EXPECT_TRUE(close(expected, train(one, 4), rounding)) << to_text(one);
    }
  }
}

TEST(Transformers, PatchesThatAreMixedAreNoSequence) {
  Case one = training_of(mixer);
  one.strategy = "tensor";
  one.devices = 2;
  EXPECT_TRUE(train_unless_refused(one, 1).has_value());
  one.layout = {.sp = true};
  EXPECT_FALSE(train_unless_refused(one, 1).has_value());
}

TEST(Transformers, MixedPrecisionStaysNearUnderEverySplit) {
  for (const std::string& model : {gpt, llama}) {
    for (const strategy::Precision precision : {strategy::Precision::bf16, strategy::Precision::fp16}) {
      Case one = training_of(model);
      one.step.precision = precision;
      if (precision == strategy::Precision::fp16) {
        one.step.loss_scale = strategy::LossScale{.initial = 1024};
      }
      for (const std::string strategy : {"single", "ddp", "1f1b", "zero-3", "tensor"}) {
        one.strategy = strategy;
        one.devices = strategy == "single" ? 1 : 2;
        for (const bool sp : {false, true}) {
          one.layout = {.sp = sp};
          if (sp && strategy != "tensor") {
            continue;
          }
          for (const std::string& backend : devices::backend_names()) {
            one.backend = backend;
            const Outcome outcome = train(one, 4);
            for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
              EXPECT_NEAR(outcome.losses[i], judge(model).losses[i], 1e-2 * judge(model).losses[i]) << to_text(one);
            }
          }
        }
      }
    }
  }
}

TEST(Transformers, AnEvenSplitOfTheLayersLeavesTheSameBitsButForTiedWeights) {
  for (const std::string& backend : backends_that_count()) {
    Case one = training_of(llama);
    one.backend = backend;
    const Outcome expected = train(one, 4);
    one.strategy = "layers";
    one.devices = 3;
    EXPECT_TRUE(same_bits(expected, train(one, 4))) << to_text(one);
  }
}

TEST(Transformers, TwoCoresLeaveTheBitsOfOne) {
  for (const std::string& model : {gpt, llama}) {
    Case one = training_of(model);
    one.backend = "cpu";
    const Outcome expected = train(one, 4);
    one.cores_per_device = 2;
    EXPECT_TRUE(same_bits(expected, train(one, 4))) << to_text(one);
  }
}

TEST(Transformers, ASequenceLongerThanATileLeavesWhatTheReferenceLeaves) {
  for (const std::string model : {"gpt:depth=1,heads=2,dim=8,context=70,vocab=11",
                                  "llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=12,context=130,vocab=11"}) {
    Case one = training_of(model, 3);
    const Outcome expected = train(one, 2);
    one.backend = "cpu";
    EXPECT_TRUE(close(expected, train(one, 2), rounding)) << to_text(one);
    one.strategy = "tensor";
    one.devices = 2;
    one.layout = {.sp = true};
    EXPECT_TRUE(close(expected, train(one, 2), rounding)) << to_text(one);
  }
}

}  // namespace
}  // namespace baton::test
