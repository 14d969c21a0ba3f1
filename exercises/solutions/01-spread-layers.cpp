#include <algorithm>
#include <limits>

#include "exercise.h"

// best[d][l]: the least work of the busiest of d devices that share the first l layers, each at least one.
std::vector<int> spread(const std::vector<double>& times, int devices) {
  const std::size_t layers = times.size();
  const std::size_t used = std::min(layers, static_cast<std::size_t>(devices));
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(used + 1, std::vector<double>(layers + 1, never));
  std::vector<std::vector<std::size_t>> cut(used + 1, std::vector<std::size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (std::size_t d = 1; d <= used; ++d) {
    for (std::size_t end = d; end <= layers; ++end) {
      double work = 0;
      for (std::size_t begin = end; begin-- > d - 1;) {
        work += times[begin];
        const double busiest = std::max(work, best[d - 1][begin]);
        if (busiest < best[d][end]) {
          best[d][end] = busiest;
          cut[d][end] = begin;
        }
      }
    }
  }
  std::vector<int> device(layers);
  std::size_t end = layers;
  for (std::size_t d = used; d > 0; --d) {
    for (std::size_t l = cut[d][end]; l < end; ++l) {
      device[l] = static_cast<int>(d) - 1;
    }
    end = cut[d][end];
  }
  return device;
}
