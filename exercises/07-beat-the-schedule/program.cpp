// Reads a pipeline, calls your function, passes on what it simulates, and returns its rows.
#include "baton/exercise/program.h"

#include "exercise.h"

namespace {

baton::exercise::Writer words_of(const Rows& rows) {
  baton::exercise::Writer words;
  words.add(static_cast<int>(rows.size()));
  for (const std::vector<Action>& row : rows) {
    words.add(static_cast<int>(row.size()));
    for (const Action& action : row) {
      words.add(std::string(1, action.kind)).add(action.micro_batch);
    }
  }
  return words;
}

}  // namespace

int main() {
  baton::exercise::serve([](baton::exercise::Reader& given, baton::exercise::Writer& out) {
    Pipeline pipeline;
    for (int* field : {&pipeline.devices, &pipeline.micro_batches, &pipeline.activations, &pipeline.forward,
                       &pipeline.backward_input, &pipeline.backward_weight, &pipeline.transfer}) {
      *field = static_cast<int>(given.integer());
    }
    out.append(words_of(schedule(pipeline, [](const Rows& rows) { return baton::exercise::consult(words_of(rows)).real(); })));
  });
}
