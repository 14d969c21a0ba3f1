#include <algorithm>
#include <cmath>

#include "exercise.h"

// Least squares of relative errors, in which measurements that lie far off count less and less.
Link fit(const std::vector<Measurement>& measurements) {
  std::vector<double> weight(measurements.size(), 1);
  double alpha = 0;
  double slope = 0;
  for (int round = 0; round < 100; ++round) {
    // With x = 1 / t and y = n / t: minimise the sum of w (alpha x + slope y - 1)^2.
    double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
    for (std::size_t i = 0; i < measurements.size(); ++i) {
      const double x = 1 / measurements[i].seconds;
      const double y = measurements[i].bytes / measurements[i].seconds;
      xx += weight[i] * x * x;
      xy += weight[i] * x * y;
      yy += weight[i] * y * y;
      x1 += weight[i] * x;
      y1 += weight[i] * y;
    }
    const double determinant = xx * yy - xy * xy;
    alpha = (x1 * yy - y1 * xy) / determinant;
    slope = (y1 * xx - x1 * xy) / determinant;
    std::vector<double> errors;
    for (const Measurement& one : measurements) {
      errors.push_back(std::abs(std::log(one.seconds / std::max(1e-12, alpha + one.bytes * slope))));
    }
    std::vector<double> sorted = errors;
    std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    const double scale = std::max(sorted[sorted.size() / 2] * 1.5, 0.01);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double far = errors[i] / scale;
      // First gently, then what is far off is left out.
      weight[i] = round < 60 ? 1 / std::max(1.0, far) : (far > 4 ? 0 : 1);
    }
  }
  return {alpha, 1 / slope};
}
