#include "exercise.h"

std::vector<int> spread(const std::vector<double>& times, int devices) {
  // To do: all layers are on device 0.
  return std::vector<int>(times.size(), 0);
}
