/// Lesson 3: DDP, out of passes.
///
/// A strategy is a function from a request to a draft, put together from passes. Distributed data parallelism
/// needs three: write the step of every replica, sum the gradients over the replicas, update. Built by hand
/// here, it must train exactly as the strategy called `ddp` does.

#include <cstdio>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/plan/verify.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/strategy.h"
#include "baton/strategy/training_step.h"

using namespace baton;

namespace {

plan::Draft build_by_hand(const strategy::Request& request) {
  // The placement: a replica on each device, each with its rows of the global batch.
  strategy::Placement placement;
  const std::size_t devices = request.cluster.size();
  std::int64_t begin = 0;
  for (const std::int64_t rows : strategy::even_split(request.step.global_batch, static_cast<std::int64_t>(devices))) {
    const DeviceId device(placement.replicas.size());
    placement.replicas.push_back({{begin, begin + rows}, std::vector<DeviceId>(request.model.blocks().size(), device)});
    placement.devices.push_back(request.cluster.device(device).name);
    begin += rows;
  }

  // Pass 1: forward, loss and backward. Each replica divides by the global batch, so gradients need only be
  // added up.
  plan::Draft draft = strategy::training_step(request.model, request.step, placement);
  std::printf("training_step          %3zu tasks\n", draft.tasks.size());

  // Pass 2: sums of gradients, in buckets, from the last block to the first. They go on the communication
  // lane, so the backward of earlier blocks runs while a bucket is under way.
  draft = strategy::all_reduce_gradients(std::move(draft), request.layout.first_bucket, request.layout.bucket);
  std::printf("all_reduce_gradients   %3zu tasks\n", draft.tasks.size());

  // Pass 3: every device updates its own copy. Equal weights and equal gradients stay equal.
  draft = strategy::add_updates(std::move(draft), request.step.optimizer);
  std::printf("add_updates            %3zu tasks\n\n", draft.tasks.size());
  return draft;
}

}  // namespace

int main() {
  const model::Model model = model::parse_model("mlp:dim=64,depth=3");
  const cluster::Cluster cluster({{"cpu:0", {0}, Bytes(64 << 20)}, {"cpu:1", {0}, Bytes(64 << 20)}});
  const auto backend = exec::make_reference_backend();
  // Ten samples over two devices; buckets of 20 KB, so that three gradients of 16 KB do not end in one.
  const strategy::Request request{.model = model,
                                  .cluster = cluster,
                                  .strategy = "ddp",
                                  .step = {.global_batch = 10},
                                  .layout = {.bucket = Bytes(20000), .first_bucket = Bytes(20000)}};

  const plan::Plan named = strategy::compile(request);
  strategy::Request ours = request;
  ours.strategy = {"ddp by hand", "three passes", build_by_hand};
  const plan::Plan by_hand = strategy::compile(ours);
  std::printf("The rules hold: %s\n", plan::verify(by_hand).holds() ? "yes" : "no");
  for (const plan::Plan* plan : {&by_hand, &named}) {
    const plan::Totals totals = plan::totals_by_device(*plan)[0];
    std::printf("%s\n  a device: %ld tasks, %ld all-reduces, %ld bytes sent\n", plan->title().c_str(),
                static_cast<long>(totals.tasks), static_cast<long>(totals.collectives), static_cast<long>(totals.work.sent.count));
  }

  const auto losses = [&](const plan::Plan& plan) {
    return exec::Executor(plan, cluster, *backend).run({.steps = 5, .warmup = 0}).losses;
  };
  const std::vector<double> mine = losses(by_hand);
  std::printf("Loss of five steps:");
  for (const double loss : mine) {
    std::printf(" %.6f", loss);
  }
  std::printf("\n%s\n", mine == losses(named) ? "The named strategy gives the same, to the bit." : "The named strategy differs.");
}
