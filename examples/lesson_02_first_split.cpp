/// Lesson 2: the first split.
///
/// Linear(1000, 2000)+ReLU on one device, Linear(2000, 1000)+ReLU on another. The model stays the same value;
/// only the strategy has changed. What must move between the devices is worked out from who reads what.

#include <cstdio>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"

using namespace baton;

namespace {

/// Prints the device of each computation, and the transfers, in the order of the plan.
void show(const plan::Plan& plan) {
  for (const plan::Task& task : plan.tasks()) {
    const std::string phase(plan::to_text(task.labels.phase));
    const std::string verb(plan::verb(task));
    const std::string& device = plan.devices()[task.device.index()];
    if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
      if (transfer->end == plan::Transfer::End::send) {
        const plan::Buffer& moved = plan[task.reads[0]];
        std::printf("  %-8s %s -> %s: %ld bytes move\n", phase.c_str(), device.c_str(),
                    plan.devices()[transfer->peer.index()].c_str(), static_cast<long>(moved.size().count));
      }
    } else if (task.labels.phase != plan::Phase::update) {
      std::printf("  %-8s %s computes %s\n", phase.c_str(), device.c_str(), verb.c_str());
    }
  }
}

std::vector<double> losses(const strategy::Request& request, const exec::Backend& backend) {
  const plan::Plan plan = strategy::compile(request);
  return exec::Executor(plan, request.cluster, backend).run({.steps = 5, .warmup = 0}).losses;
}

}  // namespace

int main() {
  const model::Model model = model::parse_model("first-split");
  // Two devices may share a core: they take turns, and compute the same.
  const cluster::Cluster one({{"cpu:0", {0}, Bytes(256 << 20)}});
  const cluster::Cluster two({{"cpu:0", {0}, Bytes(256 << 20)}, {"cpu:1", {0}, Bytes(256 << 20)}});
  const auto backend = exec::make_reference_backend();
  const strategy::Request alone{.model = model, .cluster = one, .strategy = "single", .step = {.global_batch = 32}};
  const strategy::Request split{.model = model, .cluster = two, .strategy = "layers", .step = {.global_batch = 32}};

  std::printf("Block 0 on cpu:0, block 1 on cpu:1:\n");
  show(strategy::compile(split));

  // Computation starts where the input is, on cpu:0. The activations of 32 samples move once forward, their
  // gradient once back. While one device computes the other has nothing to do: lesson 4 shows it.
  const std::vector<double> first = losses(alone, *backend);
  const std::vector<double> second = losses(split, *backend);
  std::printf("\nstep  one device  two devices\n");
  for (std::size_t s = 0; s < first.size(); ++s) {
    std::printf("%4zu  %.8f   %.8f\n", s, first[s], second[s]);
  }
  std::printf("%s\n", first == second ? "The same to the bit: where a block is computed does not change what it computes."
                                      : "They differ.");
}
