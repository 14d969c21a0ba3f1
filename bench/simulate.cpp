/// The rate at which the simulator walks a plan, compared with 10 million tasks per second; its preparation is timed separately.
/// Times are those of the processor, not elapsed time: other programs on the machine hardly show in them.
///   build/release/bench/simulate

#include "baton/sim/simulate.h"

#include <fmt/format.h>

#include <ctime>

#include "baton/cost/roofline.h"
#include "baton/cost/uniform.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"

namespace {

using namespace baton;

cluster::Cluster devices(std::size_t count, bool shared_lanes) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({.name = fmt::format("gpu:{}", d),
                    .cores = {static_cast<int>(d)},
                    .memory = Bytes(std::int64_t{80} << 30),
                    .node = static_cast<int>(d / 8),
                    .shared_lanes = shared_lanes,
                    .speed = {.rates = {{cluster::RateType::f32, 1e14}}, .memory_bandwidth = 2e12, .launch = Nanoseconds(3000)}});
  }
  return cluster::Cluster(
      std::move(list), std::nullopt,
      shared_lanes ? std::nullopt
                   : std::optional<cluster::Wiring>(
                         {.port = {Nanoseconds(2000), 3e11}, .network = {Nanoseconds(5000), 2.5e10}, .network_ports = 8}));
}

/// Processor time of this program.
double seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void time_walk(const std::string& strategy, const model::Model& model, std::size_t count, std::int64_t batch, bool shared_lanes) {
  const cluster::Cluster cluster = devices(count, shared_lanes);
  const double start = seconds();
  const plan::Plan plan = strategy::compile(
      {.model = model, .cluster = cluster, .strategy = strategy, .step = {.global_batch = batch}});
  const double compiled = seconds();
  const cost::Roofline cost(cluster);
  sim::Simulator simulator(plan, cluster, cost);
  const double prepared = seconds();
  trace::StepTrace step;
  simulator.run(step);
  const double first = seconds();
  std::int64_t runs = 0;
  double end = first;
  while (end - first < 0.3) {
    simulator.run(step);
    ++runs;
    end = seconds();
  }
  const double once = (end - first) / static_cast<double>(runs);
  fmt::print(
      "{{\"strategy\": \"{}\", \"model\": \"{}\", \"devices\": {}, \"lanes\": \"{}\", \"tasks\": {}, "
      "\"compile_s\": {:.3f}, \"prepare_s\": {:.3f}, \"walk_s\": {:.6f}, \"million_tasks_a_second\": {:.1f}}}\n",
      strategy, model.name(), count, shared_lanes ? "shared" : "separate", plan.tasks().size(), compiled - start,
      prepared - compiled, once, static_cast<double>(plan.tasks().size()) / once * 1e-6);
}

}  // namespace

int main() {
  const model::Model deep = model::mlp(std::vector<std::int64_t>(2001, 64));
  time_walk("single", deep, 1, 64, false);
  time_walk("layers", deep, 8, 64, false);
  time_walk("ddp", deep, 8, 64, false);
  time_walk("ddp", deep, 8, 64, true);
  time_walk("ddp", model::parse_model("mlp:dim=8192,depth=8"), 1024, 1024, false);
}
