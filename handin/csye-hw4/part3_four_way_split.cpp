// Part 3: the same model on 1, 2 and 4 devices. Only the split changes, so the losses are the same to the bit.
#include "measure.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  std::vector<double> first;
  for (const int count : {1, 2, 4}) {
    lab::JobWords words;
    words.model = mlp(given.dim, 8);
    words.strategy = count == 1 ? "single" : "layers";
    words.devices = devices(given.kind, count);
    const lab::Training run = train(words);
    first = count == 1 ? run.losses() : first;
    std::printf("%d device%s: %.3f ms per step, last loss %.6f, losses %s\n", count, count == 1 ? "" : "s", milliseconds(run),
                run.losses().back(), run.losses() == first ? "the same to the bit" : "differ");
  }
}
