#include <gtest/gtest.h>

#include <map>
#include <string>

#include "baton/base/narrow.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

namespace baton::exec {
namespace {

/// What training leaves: the losses, and by buffer's label what persists in 32 bits. Copies of 16 bits are compared with these.
struct Left {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> parameters;
};

Left trained(const std::string& model_text, const std::string& strategy, strategy::Step step, const plan::Target& target,
             std::int64_t steps = 3) {
  const model::Model model = model::parse_model(model_text);
  const cluster::Cluster cluster(test::cpus(2, 2));
  step.global_batch = 8;
  step.loss = model_text.find("vocab") == std::string::npos ? strategy::Loss::mean_squared_error : strategy::Loss::cross_entropy;
  const plan::Plan plan = strategy::compile(
      {.model = model, .cluster = cluster, .strategy = strategy, .step = step, .target = target});
  const auto backend = make_reference_backend();
  Executor executor(plan, cluster, *backend, {.seed = 5});
  Left left{.losses = executor.run({.steps = steps, .warmup = 0}).losses, .parameters = {}};
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan.buffers()[b];
    if (buffer.persistent && std::holds_alternative<plan::ParameterPart>(buffer.content) && !plan::is_kept_copy(buffer)) {
      left.parameters[std::to_string(buffer.device.value) + buffer.label] = executor.read(BufferId(b));
    }
  }
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& copy = plan.buffers()[b];
    for (std::size_t p = 0; plan::is_kept_copy(copy) && p < plan.buffers().size(); ++p) {
      const plan::Buffer& buffer = plan.buffers()[p];
      if (buffer.role != plan::Role::parameter || buffer.dtype != DType::f32 || buffer.device != copy.device ||
          !(buffer.content == copy.content)) {
        continue;
      }
      const std::vector<double> parameter = executor.read(BufferId(p));
      const std::vector<double> rounded = executor.read(BufferId(b));
      for (std::size_t i = 0; i < rounded.size(); ++i) {
        const auto wide = static_cast<float>(parameter[i]);
        const float narrow = copy.dtype == DType::bf16 ? static_cast<float>(Bf16(wide)) : static_cast<float>(F16(wide));
        EXPECT_EQ(rounded[i], static_cast<double>(narrow)) << copy.label << " at " << i;
      }
    }
  }
  return left;
}

TEST(Copies, LeaveTheSameBitsAsCastsInEachStep) {
  for (const std::string strategy : {"single", "dp", "ddp", "layers", "zero-1", "zero-3", "1f1b"}) {
    for (const std::string optimizer : {"sgd", "momentum", "adamw"}) {
      for (const strategy::Precision precision : {strategy::Precision::bf16, strategy::Precision::fp16}) {
        strategy::Step step{.optimizer = op::optimizer_by_name(optimizer), .precision = precision};
        if (precision == strategy::Precision::fp16) {
          step.loss_scale = strategy::LossScale{.initial = 524288, .growth_interval = 2};  // the first steps are skipped
        }
        const Left casts = trained("mlp:7-12-9-5", strategy, step, {}, 5);
        const Left kept = trained("mlp:7-12-9-5", strategy, step, {.copies = true}, 5);
        EXPECT_EQ(casts.losses, kept.losses) << strategy << ' ' << optimizer;
        EXPECT_EQ(casts.parameters, kept.parameters) << strategy << ' ' << optimizer;
      }
    }
  }
}

TEST(Copies, LeaveTheSameBitsWhereTheGradientTakesTheStep) {
  const strategy::Step step{.precision = strategy::Precision::bf16};
  plan::Target target{.gradient_with_sgd = true, .narrow_gradient_with_sgd = {DType::bf16, DType::f16}};
  const Left casts = trained("mlp:7-12-9-5", "single", step, target);
  target.copies = true;
  const Left kept = trained("mlp:7-12-9-5", "single", step, target);
  EXPECT_EQ(casts.losses, kept.losses);
  EXPECT_EQ(casts.parameters, kept.parameters);
}

TEST(Copies, OfTheStreamsGradientLeaveTheSameBitsAsCasts) {
  const strategy::Step step{.optimizer = op::Adam{}, .precision = strategy::Precision::bf16};
  for (const std::string model :
       {"gpt:depth=2,heads=2,dim=8,context=4,vocab=16", "llama:depth=2,heads=2,kv-heads=1,dim=8,hidden=12,context=4,vocab=16"}) {
    const Left casts = trained(model, "single", step, {});
    const Left kept = trained(model, "single", step, {.copies = true});
    EXPECT_EQ(casts.losses, kept.losses);
    EXPECT_EQ(casts.parameters, kept.parameters);
  }
}

/// An op that adds a term rounds once where two ops round twice: in float32 the difference is a rounding of float32.
TEST(Sums, ByTheOpsThatGiveTheirTermsAreTheSameButForARounding) {
  const strategy::Step step{.optimizer = op::Sgd{.rate = 0.1}};
  for (const std::string model :
       {"gpt:depth=2,heads=2,dim=8,context=4,vocab=16", "llama:depth=2,heads=2,kv-heads=2,dim=8,hidden=12,context=4,vocab=16"}) {
    for (const std::string strategy : {"single", "ddp", "tensor", "layers"}) {
      const Left apart = trained(model, strategy, step, {});
      const Left together = trained(model, strategy, step, {.adds = true});
      ASSERT_EQ(apart.parameters.size(), together.parameters.size());
      for (const auto& [name, values] : apart.parameters) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(values[i], together.parameters.at(name)[i], 1e-6) << name << " at " << i << " under " << strategy;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::exec
