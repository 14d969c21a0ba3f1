// Task 1: six blocks, i < depth / 2 on device 0. Prints where each block is and what moves between them in the forward.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  job::JobSpec spec;
  spec.model = mlp(given.dim, 6);
  spec.strategy = "layers";
  spec.devices = devices(given.kind, 2);
  spec.split = {3, 3};
  const training::Training run = train(spec);
  const baton::plan::Plan& plan = run.plan();
  for (const baton::plan::Task& task : plan.tasks()) {
    if (task.labels.phase == baton::plan::Phase::forward) {
      std::printf("%s  %-8s block %d\n", plan.devices()[task.device.index()].c_str(), std::string(baton::plan::verb(task)).c_str(),
                  static_cast<int>(task.labels.block));
    }
  }
  std::printf("%.3f ms per step\n", milliseconds(run));
}
