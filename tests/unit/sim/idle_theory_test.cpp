#include <fmt/format.h>
#include <gtest/gtest.h>

#include "baton/cost/uniform.h"
#include "baton/model/parse.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"
#include "baton/sim/simulate.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"

/// What schedules leave idle: the trace of their plans, in exact time, against theory.
namespace baton::sim {
namespace {

/// The share of the step in which devices do nothing, the mean over them. Every product takes as long as every other, so
/// a backward is as long as two forwards; messages are free.
double idle_share(const std::string& strategy, std::size_t devices, std::int64_t micro_batches, std::int64_t chunks = 0) {
  // Eight blocks per stage: that nobody asks the first one for the gradient of its input then hardly shows.
  const model::Model model = model::parse_model(
      fmt::format("mlp:dim=4,depth={}", 8 * devices * static_cast<std::size_t>(std::max<std::int64_t>(2, chunks))));
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < devices; ++d) {
    list.push_back(
        {.name = fmt::format("ideal:{}", d), .cores = {static_cast<int>(d)}, .memory = Bytes(1 << 30), .shared_lanes = false});
  }
  const cluster::Cluster cluster(std::move(list));
  const plan::Plan plan = strategy::compile({.model = model,
                                             .cluster = cluster,
                                             .strategy = strategy,
                                             .step = {.global_batch = micro_batches},
                                             .layout = {.chunks = chunks, .micro_batches = micro_batches}});
  const Nanoseconds product(1000);
  const cost::Uniform cost({{"linear", product}, {"linear_backward_input", product}, {"linear_backward_weight", product}});
  const trace::StepTrace step = simulate(plan, cluster, cost);
  double busy = 0;
  for (const trace::DeviceTime& time : trace::device_times(plan, step)) {
    busy += static_cast<double>(time.busy.count) / static_cast<double>(step.duration.count);
  }
  return 1 - busy / static_cast<double>(devices);
}

TEST(IdleInTheory, OfTheNaiveSplitIsAllButOneDevice) {
  for (const std::size_t p : {2U, 4U, 5U, 8U}) {
    const auto n = static_cast<double>(p);
    EXPECT_NEAR(idle_share("layers", p, 1), (n - 1) / n, 0.03) << p;
    EXPECT_NEAR(idle_share("layers", p, 4), (n - 1) / n, 0.03) << p << ", pieces do not help a baton that is passed along";
  }
}

TEST(IdleInTheory, OfGpipeAnd1f1bIsThatOfFillingAndDraining) {
  for (const std::size_t p : {2U, 4U, 8U}) {
    for (const std::int64_t m : {4, 8, 16, 32}) {
      const auto bubble = static_cast<double>(p - 1);
      const double theory = bubble / (static_cast<double>(m) + bubble);
      EXPECT_NEAR(idle_share("gpipe", p, m), theory, 0.03) << p << " stages, " << m << " micro-batches";
      EXPECT_NEAR(idle_share("1f1b", p, m), theory, 0.03) << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(IdleInTheory, OfInterleavedStagesFallsWithTheChunks) {
  for (const std::int64_t v : {2, 3}) {
    const double bubble = 3.0 / static_cast<double>(v);
    EXPECT_NEAR(idle_share("interleaved", 4, 8, v), bubble / (8 + bubble), 0.03) << v << " chunks";
  }
}

TEST(IdleInTheory, OfZeroBubbleSchedulesIsAThirdAndLess) {
  const double one_f_one_b = idle_share("1f1b", 4, 16);
  EXPECT_NEAR(idle_share("zb-h1", 4, 16), 3.0 / (3 * 16 + 3), 0.03);
  EXPECT_LT(idle_share("zb-h1", 4, 16), one_f_one_b / 2);
  EXPECT_LT(idle_share("zb-v", 4, 16), 0.05);
}

TEST(IdleInTheory, OfEveryScheduleIsThatOfItsGrid) {
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    if (schedule.name == "naive") {
      continue;  // `layers`
    }
    const schedule::Grid grid = schedule.grid({.devices = 4, .chunks = schedule.default_chunks, .micro_batches = 12});
    EXPECT_NEAR(idle_share(schedule.name, 4, 12), schedule::replay(grid).idle_share(), 0.03) << schedule.name;
  }
}

}  // namespace
}  // namespace baton::sim
