// earns: 3 0 4
// One micro-batch after the other: little memory, and only one device works at a time.
#include "exercise.h"

std::vector<std::vector<Action>> one_forward_one_backward(int devices, int micro_batches) {
  std::vector<std::vector<Action>> rows(devices);
  for (std::vector<Action>& row : rows) {
    for (int b = 0; b < micro_batches; ++b) {
      row.push_back({'F', b});
      row.push_back({'B', b});
    }
  }
  return rows;
}
