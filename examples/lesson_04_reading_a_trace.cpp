/// Lesson 4: reading a trace.
///
/// A run leaves an event for each task: when it started, when it ended, what it sent. Questions about a step
/// are answered from these and from the plan. Times differ from run to run, so this lesson prints only what
/// must hold in all of them.

#include <algorithm>
#include <cstdio>

#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/parse.h"
#include "baton/strategy/strategy.h"
#include "baton/trace/analysis.h"

using namespace baton;

int main() {
  // Four blocks over four devices: one baton, passed along and back.
  const model::Model model = model::parse_model("mlp:dim=64,depth=4");
  std::vector<cluster::Device> devices;
  for (int d = 0; d < 4; ++d) {
    devices.push_back({"cpu:" + std::to_string(d), {0}, Bytes(64 << 20)});
  }
  const cluster::Cluster cluster(std::move(devices));
  const auto backend = exec::make_reference_backend();
  const plan::Plan plan = strategy::compile(
      {.model = model, .cluster = cluster, .strategy = "layers", .step = {.global_batch = 16}});
  const exec::RunResult result = exec::Executor(plan, cluster, *backend).run({.steps = 3, .warmup = 2});
  const trace::StepTrace& step = result.trace.steps.back();
  std::printf("%zu steps ran, %zu of them traced, %zu events each\n", result.losses.size(), result.trace.steps.size(),
              step.events.size());

  // Count the moves twice: as the plan promises them and as the trace saw them.
  long planned = 0;
  for (const plan::Totals& totals : plan::totals_by_device(plan)) {
    planned += static_cast<long>(totals.transfers);
  }
  const long traced = std::count_if(step.events.begin(), step.events.end(), [](const trace::Event& e) { return e.sent.count > 0; });
  std::printf("moves: %ld in the plan, %ld in the trace\n", planned, traced);

  // Do two devices ever compute the forward at the same time? Each block needs what the one before it made.
  long overlaps = 0;
  for (std::size_t a = 0; a < plan.tasks().size(); ++a) {
    for (std::size_t b = 0; b < plan.tasks().size(); ++b) {
      const plan::Task& left = plan.tasks()[a];
      const plan::Task& right = plan.tasks()[b];
      if (left.device < right.device && left.lane == plan::Lane::compute && right.lane == plan::Lane::compute &&
          left.labels.phase == plan::Phase::forward && right.labels.phase == plan::Phase::forward) {
        overlaps += step.events[a].start < step.events[b].end && step.events[b].start < step.events[a].end ? 1 : 0;
      }
    }
  }
  std::printf("forward tasks of two devices at once: %ld\n", overlaps);

  // Busy and idle make up the step, on every device; idle divides further.
  for (const trace::DeviceTime& time : trace::device_times(plan, step)) {
    const bool whole = time.busy + time.idle == step.duration;
    const bool parts = time.delayed + time.exposed + time.waiting <= time.idle;
    std::printf("busy + idle is the step: %s; delayed, exposed and waiting are part of idle: %s\n", whole ? "yes" : "no",
                parts ? "yes" : "no");
  }

  // The critical path is the chain that decided the length of the step: it covers it without a gap.
  const std::vector<trace::PathSegment> path = trace::critical_path(plan, step);
  Nanoseconds covered;
  bool gaps = path.front().start != Nanoseconds(0);
  for (std::size_t i = 0; i < path.size(); ++i) {
    covered += path[i].end - path[i].start;
    gaps = gaps || (i > 0 && path[i].start != path[i - 1].end);
  }
  std::printf("the critical path covers the step: %s\n", !gaps && covered == step.duration ? "yes" : "no");
}
