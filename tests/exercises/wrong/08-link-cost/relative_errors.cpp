// earns: 3 2 2 0
// Least squares of relative errors: right, but for measurements that took far too long.
#include "exercise.h"

Link fit(const std::vector<Measurement>& measurements) {
  double weights = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Measurement& one : measurements) {
    const double weight = 1 / (one.seconds * one.seconds);
    weights += weight;
    x += weight * one.bytes;
    y += weight * one.seconds;
    xx += weight * one.bytes * one.bytes;
    xy += weight * one.bytes * one.seconds;
  }
  const double slope = (weights * xy - x * y) / (weights * xx - x * x);
  return {(y - slope * x) / weights, 1 / slope};
}
