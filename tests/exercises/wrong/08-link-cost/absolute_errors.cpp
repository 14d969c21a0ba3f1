// earns: 0 2 0 0
// Least squares of absolute errors: the largest messages decide alone.
#include "exercise.h"

Link fit(const std::vector<Measurement>& measurements) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const Measurement& one : measurements) {
    n += 1;
    x += one.bytes;
    y += one.seconds;
    xx += one.bytes * one.bytes;
    xy += one.bytes * one.seconds;
  }
  const double slope = (n * xy - x * y) / (n * xx - x * x);
  return {(y - slope * x) / n, 1 / slope};
}
