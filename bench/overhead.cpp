/// The time that the executor itself adds per task: a plan of some thousand tasks whose kernels do nothing.
///   build/release/bench/overhead

#include <fmt/format.h>

#include "baton/cluster/machine.h"
#include "baton/exec/executor.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"
#include "idle_backend.h"

int main() {
  using namespace baton;
  const cluster::Machine machine = cluster::probe();
  const model::Model model = model::mlp(std::vector<std::int64_t>(1001, 1));
  const bench::IdleBackend backend;
  for (const auto& [strategy, devices] : {std::pair{"single", "cpu:1"}, {"ddp", "cpu:2"}, {"layers", "cpu:2"}}) {
    const cluster::Cluster cluster(cluster::parse_devices(devices, machine));
    const plan::Plan plan = strategy::compile({.model = model,
                                               .cluster = cluster,
                                               .strategy = strategy,
                                               .step = {.global_batch = 2},
                                               .layout = {.bucket = Bytes(1), .first_bucket = Bytes(1)}});
    exec::Executor executor(plan, cluster, backend);
    const exec::RunResult result = executor.run({.steps = 60, .warmup = 10});
    const Nanoseconds step = trace::spread(std::span(result.step_times).subspan(10)).median;
    fmt::print("{{\"strategy\": \"{}\", \"devices\": {}, \"tasks\": {}, \"ns_a_task\": {:.1f}}}\n", strategy, cluster.size(),
               plan.tasks().size(), static_cast<double>(step.count) / static_cast<double>(plan.tasks().size()));
  }
}
