// Task 3: all devices there are, the layers spread over them by a rule of our own (split.h). It must train as Baton's `layers`
// does.
#include <baton/exec/executor.h>

#include "measure.h"
#include "split.h"

int main(int argc, char** argv) {
  const Arguments given = arguments(argc, argv);
  for (const int count : {2, 5}) {
    job::JobSpec spec;
    spec.model = mlp(given.dim, 20);
    spec.strategy = "layers";
    spec.devices = devices(given.kind, count);
    training::Training theirs(spec, baton::cluster::probe());
    theirs.run(10, 2);
    spec.strategy = {"spread", "layer i on device i * n / depth", spread_evenly};
    training::Training mine(spec, baton::cluster::probe());
    mine.run(10, 2);
    std::printf("%d devices: %ld moves in the forward, losses %s\n", count, static_cast<long>(mine.totals().transfers_forward),
                mine.losses() == theirs.losses() ? "the same as those of layers" : "differ from those of layers");
  }
}
