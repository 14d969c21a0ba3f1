// Part 3: the tutorial's models on 1, 2 and 4 devices. Only the split changes, so the losses are the same to the bit.
// PROGRAM [cpu|cuda] [MODEL...]
#include "measure.h"

const std::vector<std::string> models_of_the_tables = {"toy-4", "resnet:50,image=128,classes=1000"};
constexpr int batch_of_the_tables = 120;

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  for (const std::string& model : argc > 2 ? std::vector<std::string>(argv + 2, argv + argc) : models_of_the_tables) {
    std::vector<double> first;
    for (const int count : {1, 2, 4}) {
      job::JobSpec spec;
      spec.model = model;
      spec.batch = batch_of_the_tables;
      spec.strategy = count == 1 ? "single" : "layers";
      spec.devices = devices(given.kind, count);
      const training::Training run = train(spec, 10, 2);
      first = count == 1 ? run.losses() : first;
      std::printf("%s on %d device%s: %.3f ms per step, last loss %.6f, losses %s\n", model.c_str(), count, count == 1 ? "" : "s",
                  milliseconds(run), run.losses().back(), run.losses() == first ? "the same to the bit" : "differ");
    }
  }
}
