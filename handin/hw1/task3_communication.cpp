// Task 3: models of several sizes under DDP. PROGRAM [cpu|cuda] [CASE...], where a case is DIMxDEPTH.
#include "measure.h"

const std::vector<std::string> cases_of_the_tables = {"1024x2", "8192x8"};

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  const std::vector<std::string> cases = argc > 2 ? std::vector<std::string>(argv + 2, argv + argc) : cases_of_the_tables;
  std::printf("case        devices  time/step (ms)  speedup  sent per step (MB)  flops per step\n");
  for (const std::string& size : cases) {
    const std::size_t cross = size.find('x');
    const int depth = cross == std::string::npos ? 2 : std::atoi(size.c_str() + cross + 1);
    double alone = 0;
    for (const int count : {1, 2, 4}) {
      job::JobSpec spec;
      spec.model = mlp(size.substr(0, cross), depth);
      spec.strategy = "ddp";
      spec.devices = devices(given.kind, count);
      const training::Training run = train(spec, 10, 2);
      const double time = milliseconds(run);
      alone = count == 1 ? time : alone;
      std::printf("%-10s  %7d  %14.3f  %7.2f  %18.2f  %14.3g\n", size.c_str(), count, time, alone / time,
                  static_cast<double>(run.totals().work.sent.count) / 1e6, static_cast<double>(run.totals().work.flops.count));
    }
  }
}
