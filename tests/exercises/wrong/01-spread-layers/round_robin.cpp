// earns: 0 0 0
// Round robin: the work is spread, and every activation crosses a link.
#include "exercise.h"

std::vector<int> spread(const std::vector<double>& times, int devices) {
  std::vector<int> device(times.size());
  for (std::size_t l = 0; l < times.size(); ++l) {
    device[l] = static_cast<int>(l) % devices;
  }
  return device;
}
