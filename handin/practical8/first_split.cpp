// Linear(1000, 2000) + ReLU on device 0, Linear(2000, 1000) + ReLU on device 1, batch 32: five steps with fresh data each, a log of
// what happens where in the forward, and its time.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  job::JobSpec spec;
  spec.model = "first-split";
  spec.strategy = "layers";
  spec.devices = devices(given.kind, 2);
  spec.batch = 32;
  spec.samples = 160;  // five batches, so that each step has its own
  training::Training run(spec, baton::cluster::probe());
  run.run(5, 0);
  for (std::size_t step = 0; step < run.losses().size(); ++step) {
    std::printf("step %zu  loss %.6f\n", step, run.losses()[step]);
  }
  const baton::plan::Plan& plan = run.plan();
  const baton::trace::StepTrace& last = run.trace().steps.back();
  baton::Nanoseconds end;        // when the last layer ends
  baton::Nanoseconds with_loss;  // and of the loss, which is computed after it
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const baton::plan::Task& task = plan.tasks()[t];
    if (task.labels.phase == baton::plan::Phase::forward) {
      const std::string verb(baton::plan::verb(task));
      std::printf("%s  %-8s block %d\n", plan.devices()[task.device.index()].c_str(), verb.c_str(),
                  static_cast<int>(task.labels.block));
      if (verb == "linear" || verb == "relu") {
        end = std::max(end, last.events[t].end);
      }
      with_loss = std::max(with_loss, last.events[t].end);
    }
  }
  std::printf("forward, synchronized: %.3f ms, with the loss %.3f ms\n", static_cast<double>(end.count) / 1e6,
              static_cast<double>(with_loss.count) / 1e6);
}
