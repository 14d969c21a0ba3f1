/// Plans on free links, compared with what theory says of them: exactly, since the clock counts whole nanoseconds.

#include <gtest/gtest.h>

#include "baton/cost/uniform.h"
#include "baton/model/zoo.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/sim/simulate.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"
#include "unit/sim/by_hand.h"

namespace baton::sim {
namespace {

plan::Plan compiled(const cluster::Cluster& cluster, std::int64_t blocks, const std::string& strategy, strategy::Layout layout = {},
                    std::vector<strategy::DelayRequest> delays = {}) {
  const model::Model model = model::mlp(std::vector<std::int64_t>(static_cast<std::size_t>(blocks) + 1, 4));
  return strategy::compile({.model = model,
                            .cluster = cluster,
                            .strategy = strategy,
                            .step = {.global_batch = 256},
                            .layout = std::move(layout),
                            .delays = std::move(delays)});
}

/// A forward of one microsecond per block and a backward of two. A weight's gradient is computed while the baton is already
/// with the block before, so the time of a whole backward is given to what everybody waits for.
const cost::Uniform whole_backward({{"linear", Nanoseconds(1000)}, {"relu_backward", Nanoseconds(2000)}});
/// Where the halves of a backward are apart, one for each.
const cost::Uniform halves({{"linear", Nanoseconds(1000)},
                            {"relu_backward", Nanoseconds(1000)},
                            {"linear_backward_weight", Nanoseconds(1000)}});

bool has_halves(const schedule::Grid& grid) {
  for (const auto& row : grid.rows) {
    for (const auto& cell : row) {
      if (cell && cell->kind == schedule::Computation::backward_weight) {
        return true;
      }
    }
  }
  return false;
}

TEST(Theory, TheNaiveSplitLeavesEveryDeviceIdleForAllButOneShareOfTheStep) {
  for (const std::int64_t p : {1, 2, 3, 8, 64}) {
    const cluster::Cluster cluster = free_links(static_cast<std::size_t>(p));
    const plan::Plan plan = compiled(cluster, p, "layers");
    const trace::StepTrace step = simulate(plan, cluster, whole_backward);
    for (const trace::DeviceTime& time : trace::device_times(plan, step)) {
      EXPECT_EQ((time.idle * p).count, (step.duration * (p - 1)).count) << p;
    }
  }
}

TEST(Theory, PipelinesThatOverlapIdleForStagesLessOneOverMicroBatchesAndStagesLessOne) {
  for (const std::string name : {"gpipe", "1f1b"}) {
    for (const std::int64_t p : {2, 3, 8, 64}) {
      for (const std::int64_t m : {p, 2 * p, 3 * p + 1}) {
        const cluster::Cluster cluster = free_links(static_cast<std::size_t>(p));
        const plan::Plan plan = compiled(cluster, p, name, {.micro_batches = m});
        const trace::StepTrace step = simulate(plan, cluster, whole_backward);
        for (const trace::DeviceTime& time : trace::device_times(plan, step)) {
          EXPECT_EQ((time.idle * (m + p - 1)).count, (step.duration * (p - 1)).count) << name << " " << p << " " << m;
        }
      }
    }
  }
}

TEST(Theory, EveryScheduleTakesAsLongAsItsGridSays) {
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    for (const std::int64_t p : {2, 4, 8, 64}) {
      const std::int64_t m = 2 * p;
      const schedule::Grid grid = schedule.grid({.devices = p, .chunks = schedule.default_chunks, .micro_batches = m});
      const bool apart = has_halves(grid);
      const schedule::Timing timing = schedule::replay(
          grid, {.forward = 1000, .backward = 2000, .backward_input = 1000, .backward_weight = 1000});
      const cluster::Cluster cluster = free_links(static_cast<std::size_t>(p));
      const plan::Plan plan = compiled(cluster, p * schedule.default_chunks, "product",
                                       {.schedule = schedule.name, .micro_batches = m});
      const trace::StepTrace step = simulate(plan, cluster, apart ? halves : whole_backward);
      EXPECT_EQ(step.duration.count, timing.makespan) << schedule.name << " on " << p;
      const std::vector<trace::DeviceTime> times = trace::device_times(plan, step);
      for (std::size_t d = 0; d < times.size(); ++d) {
        EXPECT_EQ(times[d].busy.count, timing.busy(d)) << schedule.name << " on " << p;
      }
    }
  }
}

TEST(Theory, AnInjectedDelayFollowsAmdahl) {
  // A batch of 256 over p replicas: each works 256 / p micro-batches of one row, of 3 µs and four blocks each. The delay
  // does not shrink with p.
  for (const std::int64_t p : {1, 2, 4, 8, 64}) {
    const cluster::Cluster cluster = free_links(static_cast<std::size_t>(p));
    const plan::Plan plan = compiled(cluster, 4, "ddp", {.micro_batches = 256 / p},
                                     {{.before = plan::Phase::backward, .device = -1, .duration = Nanoseconds(50'000)}});
    EXPECT_EQ(simulate(plan, cluster, whole_backward).duration.count, 256 / p * 4 * 3000 + 50'000) << p;
  }
}

TEST(Theory, NoStepIsShorterThanItsDevicesPortsTakeForTheBytesThatAreCounted) {
  for (const cluster::Algorithm algorithm :
       {cluster::Algorithm::ring, cluster::Algorithm::direct, cluster::Algorithm::hierarchical}) {
    const cluster::Cluster cluster = wired(4, {.port = {Nanoseconds(0), 1e9}, .algorithm = algorithm}, 1000);
    for (const std::string name : {"dp", "ddp", "layers", "gpipe", "1f1b", "tensor", "zero-1", "zero-2", "zero-3"}) {
      const plan::Plan plan = strategy::compile({.model = model::mlp({64, 64, 64, 64, 64}),
                                                 .cluster = cluster,
                                                 .strategy = name,
                                                 .step = {.global_batch = 8},
                                                 .layout = {},
                                                 .delays = {}});
      const trace::StepTrace step = simulate(plan, cluster, cost::Uniform({}));
      for (const plan::Totals& device : plan::totals_by_device(plan)) {
        EXPECT_GE(step.duration.count, std::max(device.work.sent.count, device.work.received.count))
            << name << ", a byte a nanosecond";
      }
    }
  }
}

}  // namespace
}  // namespace baton::sim
