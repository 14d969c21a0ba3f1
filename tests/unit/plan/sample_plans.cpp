#include "unit/plan/sample_plans.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/op/traits.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"
#include "support/tiled_weights.h"

namespace baton::plan::test {
namespace {

cluster::Cluster cluster_of(std::size_t devices) { return cluster::Cluster(baton::test::cpus(devices, devices)); }

}  // namespace

const std::vector<Sample>& sample_plans() {
  static const std::vector<Sample> samples = [] {
    const std::vector<std::string> models{"mlp:dim=8,depth=5", "mlp:6-10-4-7-3-5", "mlp:dim=6,depth=6"};
    const std::vector<std::string> optimizers{"sgd", "momentum", "adam", "adamw"};
    const std::vector<plan::Target> targets{
        {},
        {.joined = op::joint_ops(), .gradient_with_sgd = true, .layout = baton::test::tiled_weights},
        {.joined = op::joint_ops(),
         .workspace = [](std::span<const Buffer>, const Task& task,
                         std::size_t) { return Bytes(task.lane == Lane::compute && !task.writes.empty() ? 100 : 0); }},
        {.gradient_with_sgd = true,
         .narrow_gradient_with_sgd = {DType::bf16, DType::f16},
         .adds = true,
         .copies = true,
         .overwrites = true}};
    std::vector<Sample> list;
    std::size_t turn = 0;
    for (const strategy::Strategy& strategy : strategy::strategies()) {
      for (std::size_t devices = 1; devices <= 5; ++devices) {
        if (strategy.name() == "single" && devices > 2) {
          continue;
        }
        for (std::size_t variant = 0; variant < targets.size(); ++variant, ++turn) {
          const model::Model model = model::parse_model(models[turn % models.size()]);
          const cluster::Cluster cluster = cluster_of(devices);
          strategy::Request request{.model = model, .cluster = cluster, .strategy = strategy.name()};
          request.step.global_batch = 7;
          request.step.loss = turn % 2 == 0 ? strategy::Loss::mean_squared_error : strategy::Loss::cross_entropy;
          request.step.optimizer = op::optimizer_by_name(optimizers[(turn + devices) % optimizers.size()]);
          request.step.precision = turn % 5 == 1   ? strategy::Precision::fp16
                                   : turn % 5 == 3 ? strategy::Precision::bf16
                                   : turn % 5 == 4 ? strategy::Precision::fp64
                                                   : strategy::Precision::fp32;
          if (turn % 5 == 1 || turn % 7 == 3) {
            request.step.loss_scale = {.growth_interval = 3, .dynamic = turn % 2 == 1};
          }
          request.layout.first_bucket = Bytes(40);
          request.layout.bucket = Bytes(turn % 3 == 0 ? 1 : 300);
          request.target = targets[variant];
          if (turn % 4 == 1) {
            request.delays = {{Phase::backward, -1, Nanoseconds(5000)}, {Phase::update, 0, Nanoseconds(7)}};
          }
          try {
            list.push_back({fmt::format("{} over {} of {}, variant {}", strategy.name(), devices, model.name(), variant),
                            strategy::compile(request)});
          } catch (const Error&) {
            // Some strategies need more blocks or replicas than these models and devices give.
          }
        }
      }
    }
    return list;
  }();
  return samples;
}

}  // namespace baton::plan::test
