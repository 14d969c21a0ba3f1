/// A block and a strategy that Baton does not have, on the installed package: a bottleneck of two linear layers, and a
/// split that gives every other block to the second device.

#include <cstdio>
#include <cstdlib>

#include <baton/exec/executor.h>
#include <baton/model/model.h>
#include <baton/plan/verify.h>
#include <baton/strategy/passes.h>
#include <baton/strategy/strategy.h>
#include <baton/strategy/training_step.h>

using namespace baton;

namespace {

model::Block bottleneck(const std::string& name, std::int64_t wide, std::int64_t narrow) {
  return {.name = name,
          .input = {wide},
          .parameters = {{name + ".down.weight", {narrow, wide}, wide},
                         {name + ".down.bias", {narrow}, wide},
                         {name + ".up.weight", {wide, narrow}, narrow},
                         {name + ".up.bias", {wide}, narrow}},
          .nodes = {{op::Linear{}, {0, 1}, {narrow}},
                    {op::Relu{}, {}, {narrow}},
                    {op::Linear{}, {2, 3}, {wide}},
                    {op::Relu{}, {}, {wide}}}};
}

plan::Draft build_zigzag(const strategy::Request& request) {
  strategy::Placement placement;
  placement.replicas.push_back({{0, request.step.global_batch}, {}});
  for (std::size_t block = 0; block < request.model.blocks().size(); ++block) {
    placement.replicas[0].device_of_block.push_back(DeviceId(block % request.cluster.size()));
  }
  for (const cluster::Device& device : request.cluster.devices()) {
    placement.devices.push_back(device.name);
  }
  plan::Draft draft = strategy::training_step(request.model, request.step, placement);
  return strategy::add_updates(strategy::add_transfers(std::move(draft)), request.step.optimizer);
}

std::vector<double> losses(const strategy::Request& request, const strategy::Strategy& strategy,
                           const exec::Backend& backend, std::size_t expected_transfers) {
  const plan::Plan plan = strategy::compile(request, strategy);
  std::int64_t transfers = 0;
  for (const plan::Totals& totals : plan::totals_by_device(plan)) {
    transfers += totals.transfers;
  }
  if (transfers != static_cast<std::int64_t>(expected_transfers)) {
    std::printf("%s makes %ld transfers\n", strategy.name.c_str(), static_cast<long>(transfers));
    std::exit(1);
  }
  exec::Executor executor(plan, request.cluster, backend);
  return executor.run({.steps = 10, .warmup = 0}).losses;
}

}  // namespace

int main() {
  const model::Model model("bottlenecks", {bottleneck("a", 32, 8), bottleneck("b", 32, 4), bottleneck("c", 32, 8)});
  const cluster::Cluster one({{"cpu:0", {0}, Bytes(1 << 30)}});
  const cluster::Cluster two({{"cpu:0", {0}, Bytes(1 << 30)}, {"cpu:1", {0}, Bytes(1 << 30)}});
  const auto backend = exec::make_cpu_backend();
  const strategy::Strategy zigzag{"zigzag", "every other block to the other device", build_zigzag};

  const strategy::Request alone{.model = model, .cluster = one, .step = {.global_batch = 12}, .target = backend->target()};
  const strategy::Request split{.model = model, .cluster = two, .step = {.global_batch = 12}, .target = backend->target()};
  const bool same = losses(alone, strategy::strategy_by_name("single"), *backend, 0) == losses(split, zigzag, *backend, 4);
  std::printf(same ? "the same losses, to the bit\n" : "the losses differ\n");
  return same ? 0 : 1;
}
