#include "baton/measure/wake_up.h"

#include <algorithm>
#include <vector>

#include "baton/exec/executor.h"
#include "baton/measure/isolate.h"
#include "baton/trace/analysis.h"

namespace baton::measure {
namespace {

constexpr std::int64_t timed_steps = 15;
constexpr std::int64_t copies = 4;

TaskId largest_product(const plan::Plan& plan) {
  TaskId largest;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan::is_product(plan.tasks()[t]) &&
        (!largest.valid() || plan::work(plan, TaskId(t)).flops > plan::work(plan, largest).flops)) {
      largest = TaskId(t);
    }
  }
  return largest;
}

}  // namespace

Nanoseconds time_wake_up(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend) {
  const TaskId product = largest_product(plan);
  if (!product.valid()) {
    return Nanoseconds(0);
  }
  const plan::Plan isolated = isolate_after_delay(plan, product, long_idle * 3, copies);
  exec::Executor executor(isolated, cluster, backend);
  const exec::RunResult result = executor.run({.steps = timed_steps + 2, .warmup = 2});
  std::vector<Nanoseconds> longer;
  for (const trace::StepTrace& step : result.trace.steps) {
    const auto time = [&](std::size_t t) { return step.events[t].end - step.events[t].start; };
    longer.push_back(time(1) - time(copies));
  }
  return std::max(Nanoseconds(0), trace::spread(longer).median);
}

}  // namespace baton::measure
