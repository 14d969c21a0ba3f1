// Task 3: a small and a large model under DDP. The second is 8 times as wide and 4 times as deep as the first.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  const std::string wide = std::to_string(8 * std::atoi(given.dim.c_str()));
  std::printf("case  devices  time/step (ms)  speedup  sent per step (MB)  flops per step\n");
  for (const char name : {'A', 'B'}) {
    double alone = 0;
    for (const int count : {1, 2, 4}) {
      lab::JobWords words;
      words.model = name == 'A' ? mlp(given.dim, 2) : mlp(wide, 8);
      words.strategy = "ddp";
      words.devices = devices(given.kind, count);
      const lab::Training run = train(words, 10, 2);
      const double time = milliseconds(run);
      alone = count == 1 ? time : alone;
      std::printf("%4c  %7d  %14.3f  %7.2f  %18.2f  %14.3g\n", name, count, time, alone / time,
                  static_cast<double>(run.totals().work.sent.count) / 1e6, static_cast<double>(run.totals().work.flops.count));
    }
  }
}
