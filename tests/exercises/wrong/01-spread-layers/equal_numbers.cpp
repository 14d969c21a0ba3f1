// earns: 2 3 0
// Equal numbers of layers, whatever they take.
#include <algorithm>

#include "exercise.h"

std::vector<int> spread(const std::vector<double>& times, int devices) {
  const std::size_t used = std::min(times.size(), static_cast<std::size_t>(devices));
  std::vector<int> device(times.size());
  for (std::size_t l = 0; l < times.size(); ++l) {
    device[l] = static_cast<int>(l * used / times.size());
  }
  return device;
}
