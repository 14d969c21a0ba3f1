// Reads a job, calls your function, passes on what it tries out, and returns its layout.
#include "baton/exercise/program.h"

#include "exercise.h"

namespace {

baton::exercise::Writer words_of(const Layout& layout) {
  baton::exercise::Writer words;
  words.add(layout.dp).add(layout.pp).add(layout.tp).add(layout.zero).add(layout.micro_batches).add(layout.recompute);
  return words;
}

}  // namespace

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    Job job;
    job.model = given.text();
    job.cluster = given.text();
    for (int* field : {&job.devices, &job.devices_per_node, &job.batch, &job.blocks, &job.heads}) {
      *field = static_cast<int>(given.integer());
    }
    for (double* field :
         {&job.memory, &job.parameters, &job.flops, &job.crossing, &job.rate, &job.node_bandwidth, &job.network_bandwidth}) {
      *field = given.real();
    }
    const Layout layout = find_layout(job, [](const Layout& one) {
      baton::exercise::Reader said = baton::exercise::consult(words_of(one));
      Tried tried;
      tried.refused = said.text();
      tried.seconds = said.real();
      tried.memory = said.real();
      return tried;
    });
    out.append(words_of(layout));
  });
}
