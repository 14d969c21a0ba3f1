/// Lesson 1: one device.
///
/// A model, a device and a strategy are compiled to a plan: every task of one training step, before anything
/// runs. The executor then runs that plan again and again. Nothing else decides what happens.

#include <cstdio>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"

using namespace baton;

int main() {
  // A stack of three blocks, each Linear(64, 64) and ReLU. It knows nothing of devices.
  const model::Model model = model::parse_model("mlp:dim=64,depth=3");
  std::printf("%s has %zu blocks and %ld parameters\n", model.name().c_str(), model.blocks().size(),
              static_cast<long>(model.parameter_count()));

  // A device is a set of cores with memory of its own: here the machine's first core.
  const cluster::Cluster cluster({{"cpu:0", {0}, Bytes(64 << 20)}});

  // The reference backend is plain loops, and fuses nothing: the plan shows every op.
  const auto backend = exec::make_reference_backend();
  const strategy::Request request{
      .model = model, .cluster = cluster, .strategy = "single", .step = {.global_batch = 16}, .target = backend->target()};
  const plan::Plan plan = strategy::compile(request);

  // The plan can be counted. Flops: 2 · 64 · 64 · 16 for a Linear's forward, twice that for its backward
  // (weights and inputs), less the gradient of the first input, which nobody needs; biases, ReLU, loss and
  // update are the rest.
  std::printf("\nThe plan: %zu tasks over %zu buffers\n", plan.tasks().size(), plan.buffers().size());
  for (const plan::Phase phase : {plan::Phase::forward, plan::Phase::backward, plan::Phase::update}) {
    std::printf("  %-8s", std::string(plan::to_text(phase)).c_str());
    for (const plan::Task& task : plan.tasks()) {
      if (task.labels.phase == phase) {
        std::printf(" %s", std::string(plan::verb(task)).c_str());
      }
    }
    std::printf("\n");
  }
  const plan::Totals totals = plan::totals_by_device(plan)[0];
  std::printf("  %ld flops, %ld transfers\n", static_cast<long>(totals.work.flops.count), static_cast<long>(totals.transfers));

  // Weights and data are drawn from the seed, so the losses are the same on every machine and every time.
  exec::Executor executor(plan, cluster, *backend, {.seed = 0});
  const exec::RunResult result = executor.run({.steps = 5, .warmup = 0});
  std::printf("\nLoss of five steps:");
  for (const double loss : result.losses) {
    std::printf(" %.6f", loss);
  }
  std::printf("\n");
}
