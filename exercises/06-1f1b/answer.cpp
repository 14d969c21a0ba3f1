#include "exercise.h"

std::vector<std::vector<Action>> one_forward_one_backward(int devices, int micro_batches) {
  // To do: no device does anything.
  return std::vector<std::vector<Action>>(devices);
}
