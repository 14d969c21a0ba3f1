// earns: 0 0 0 0 0
// The gradient of the weights before that of the input, which it needs.
#include "exercise.h"

Rows schedule(const Pipeline& pipeline, const Simulate& simulate) {
  Rows rows(pipeline.devices);
  for (std::vector<Action>& row : rows) {
    for (int k = 0; k < pipeline.micro_batches; ++k) {
      row.push_back({'F', k});
      row.push_back({'W', k});
      row.push_back({'I', k});
    }
  }
  return rows;
}
