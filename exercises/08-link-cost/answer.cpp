#include "exercise.h"

Link fit(const std::vector<Measurement>& measurements) {
  // To do: a link without latency, as fast as the last measurement.
  return {0, measurements.back().bytes / measurements.back().seconds};
}
