/// Lesson 6: a schedule of your own.
///
/// A schedule says only which action when. Transfers, buffers and their lifetimes come from passes, and the plan is
/// checked before it runs; so a schedule is a few lines of text, and cannot be wrong in silence.

#include <cstdio>

#include "baton/base/error.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/strategy.h"

using namespace baton;

int main() {
  const model::Model model = model::parse_model("mlp:dim=32,depth=4");
  const cluster::Cluster two({{"cpu:0", {0}, Bytes(64 << 20)}, {"cpu:1", {0}, Bytes(64 << 20)}});
  const cluster::Cluster one({{"cpu:0", {0}, Bytes(64 << 20)}});
  const auto backend = exec::make_reference_backend();
  const strategy::Step step{.global_batch = 12};

  // Stage 0 runs all its forwards first, as gpipe does; stage 1 goes back at once, as 1f1b does, and puts the
  // gradients of its weights off to the end, where it would wait.
  const schedule::Grid mine = schedule::parse_csv(
      "0F0,0F1,0F2,0B0,0B1,0B2\n"
      "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n");
  std::printf("%s", to_text(mine).c_str());
  std::printf("idle in theory: %.1f %% (1f1b: %.1f %%)\n", 100 * schedule::replay(mine).idle_share(),
              100 * schedule::replay(schedule::schedule_by_name("1f1b").grid({2, 1, 3})).idle_share());

  // It becomes a plan like any other.
  strategy::Request request{.model = model, .cluster = two, .strategy = "product", .step = step, .layout = {.pp = 2}};
  request.layout.grid = mine;
  const plan::Plan plan = strategy::compile(request);
  long transfers = 0;
  for (const plan::Totals& totals : plan::totals_by_device(plan)) {
    transfers += static_cast<long>(totals.transfers);
  }
  std::printf("%zu tasks, %ld transfers\n", plan.tasks().size(), transfers);

  // A schedule only reorders: the losses are those of one device with the same micro-batches, to the bit.
  const plan::Plan alone = strategy::compile({.model = model, .cluster = one, .step = step, .layout = {.micro_batches = 3}});
  exec::Executor pipeline(plan, two, *backend);
  exec::Executor single(alone, one, *backend);
  const exec::RunOptions five{.steps = 5, .warmup = 0};
  std::printf("the same losses as one device: %s\n", pipeline.run(five).losses == single.run(five).losses ? "yes" : "no");

  // One that would wait for ever is refused, with the reason.
  request.layout.grid = schedule::parse_csv(
      "0F0,0B0,0F1,0B1\n"
      "1F0,1F1,1B0,1B1\n");
  try {
    strategy::compile(request);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
  }
}
