/// The time of `verify` on plans of about a million tasks, by strategy: it should be two seconds at most, and ten times as long as
/// for a tenth of the tasks. Compiling is timed separately. Times are those of the processor, not elapsed time.
///   build/release/bench/verify              all strategies
///   build/release/bench/verify gpipe ddp    some of them

#include "baton/plan/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "baton/base/error.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"

namespace {

using namespace baton;

constexpr std::size_t wanted_tasks = 1'000'000;

cluster::Cluster devices(std::size_t count) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({.name = fmt::format("cpu:{}", d), .cores = {static_cast<int>(d)}, .memory = Bytes(std::int64_t{1} << 40)});
  }
  return cluster::Cluster(std::move(list));
}

/// Processor time of this program.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

plan::Plan compile(const strategy::Strategy& strategy, const model::Model& model, const cluster::Cluster& cluster,
                   std::int64_t micro_batches) {
  strategy::Request request{.model = model, .cluster = cluster, .strategy = strategy};
  request.step.global_batch = 64 * micro_batches;
  request.layout.micro_batches = micro_batches;
  if (strategy.is_by_numbers()) {
    request.layout.dp = 2;
    request.layout.pp = 2;
    request.layout.tp = 2;
    request.layout.schedule = "1f1b";
  }
  return strategy::compile(request);
}

/// As many micro-batches as make a plan of about this many tasks.
plan::Plan plan_of(const strategy::Strategy& strategy, std::size_t tasks) {
  const cluster::Cluster cluster = devices(strategy.uses_one_device() ? 1 : strategy.is_by_numbers() ? 8 : 4);
  const model::Model model = model::parse_model("mlp:dim=64,depth=8");
  const std::size_t few = compile(strategy, model, cluster, 100).tasks().size();
  const std::size_t many = compile(strategy, model, cluster, 200).tasks().size();
  return compile(strategy, model, cluster, static_cast<std::int64_t>(std::max<std::size_t>(100, tasks * 100 / (many - few))));
}

double verified_in(const plan::Plan& plan) {
  const double start = processor_seconds();
  plan::require(plan::verify(plan));
  return processor_seconds() - start;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> asked(argv + 1, argv + argc);
  fmt::print("{:<16}{:>10}{:>12}{:>10}{:>12}\n", "strategy", "tasks", "compile s", "verify s", "of a tenth");
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    if (!asked.empty() && std::find(asked.begin(), asked.end(), strategy.name()) == asked.end()) {
      continue;
    }
    try {
      const double tenth = verified_in(plan_of(strategy, wanted_tasks / 10));
      const double start = processor_seconds();
      const plan::Plan plan = plan_of(strategy, wanted_tasks);
      const double compiled = processor_seconds() - start;
      fmt::print("{:<16}{:>10}{:>12.2f}{:>10.2f}{:>12.3f}\n", strategy.name(), plan.tasks().size(), compiled, verified_in(plan),
                 tenth);
    } catch (const Error& error) {
      fmt::print("{:<16}{}\n", strategy.name(), error.what());
    }
  }
}
