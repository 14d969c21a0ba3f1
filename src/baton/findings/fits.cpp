#include "baton/findings/fits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "baton/base/error.h"

namespace baton::findings {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::size_t distinct(std::span<const double> values) { return std::set<double>(values.begin(), values.end()).size(); }

/// Share of the spread in y that a model's values explain.
double r_squared(std::span<const double> y, const std::vector<double>& fitted) {
  const double centre = mean(y);
  double total = 0;
  double left = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    total += (y[i] - centre) * (y[i] - centre);
    left += (y[i] - fitted[i]) * (y[i] - fitted[i]);
  }
  if (total == 0) {
    return left == 0 ? 1 : 0;
  }
  return 1 - left / total;
}

/// The factor that makes factor · x nearest to y.
double fit_factor(const std::vector<double>& x, const std::vector<double>& y) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  return squares == 0 ? 0 : std::inner_product(x.begin(), x.end(), y.begin(), 0.0) / squares;
}

}  // namespace

Line fit_line(std::span<const double> x, std::span<const double> y) {
  check(x.size() == y.size() && !x.empty(), "a line through {} and {} numbers", x.size(), y.size());
  const double x_mean = mean(x);
  const double y_mean = mean(y);
  double covariance = 0;
  double variance = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    covariance += (x[i] - x_mean) * (y[i] - y_mean);
    variance += (x[i] - x_mean) * (x[i] - x_mean);
  }
  Line line;
  line.points = distinct(x);
  line.slope = variance == 0 ? 0 : covariance / variance;
  line.intercept = y_mean - line.slope * x_mean;
  std::vector<double> fitted;
  for (const double value : x) {
    fitted.push_back(line.intercept + line.slope * value);
  }
  line.r2 = r_squared(y, fitted);
  return line;
}

Amdahl fit_amdahl(std::span<const double> devices, std::span<const double> times) {
  check(devices.size() == times.size() && !times.empty(), "Amdahl's law through {} and {} numbers", devices.size(), times.size());
  const auto one = std::find(devices.begin(), devices.end(), 1.0);
  Amdahl fit;
  double t1 = 0;
  if (one != devices.end()) {
    t1 = times[static_cast<std::size_t>(one - devices.begin())];
    std::vector<double> x;
    std::vector<double> y;
    for (std::size_t i = 0; i < times.size(); ++i) {
      x.push_back(1 - 1 / devices[i]);
      y.push_back(times[i] / t1 - 1 / devices[i]);
    }
    fit.serial = fit_factor(x, y);
  } else {
    // Without a time of one device, that time is fitted too: the formula is a line in 1/n.
    std::vector<double> inverse;
    for (const double n : devices) {
      inverse.push_back(1 / n);
    }
    const Line line = fit_line(inverse, times);
    t1 = line.intercept + line.slope;
    fit.serial = t1 == 0 ? 0 : line.intercept / t1;
  }
  std::vector<double> fitted;
  for (std::size_t i = 0; i < times.size(); ++i) {
    fitted.push_back(t1 * (fit.serial + (1 - fit.serial) / devices[i]));
  }
  fit.r2 = r_squared(times, fitted);
  return fit;
}

Gustafson fit_gustafson(std::span<const double> devices, std::span<const double> scaled_speedups) {
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    x.push_back(devices[i] - 1);
    y.push_back(devices[i] - scaled_speedups[i]);
  }
  Gustafson fit;
  fit.serial = fit_factor(x, y);
  std::vector<double> fitted;
  for (const double n : devices) {
    fitted.push_back(n - fit.serial * (n - 1));
  }
  fit.r2 = r_squared(scaled_speedups, fitted);
  return fit;
}

AlphaBeta fit_alpha_beta(std::span<const double> bytes, std::span<const double> times_ns) {
  const Line line = fit_line(bytes, times_ns);
  AlphaBeta fit{line.intercept, line.slope > 0 ? 1e9 / line.slope : 0, line.r2, 0, line.points};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double fitted = line.intercept + line.slope * bytes[i];
    fit.worst_residual = std::max(fit.worst_residual, std::abs(fitted - times_ns[i]) / times_ns[i]);
  }
  return fit;
}

AlphaBeta fit_message(std::span<const double> bytes, std::span<const double> times_ns) {
  check(bytes.size() == times_ns.size(), "a fit of messages to {} sizes and {} times", bytes.size(), times_ns.size());
  double ones = 0;  // sums of 1/t², S/t², S²/t², 1/t, S/t: what the normal equations are made of
  double sizes = 0;
  double squares = 0;
  double right = 0;
  double right_sizes = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double weight = 1 / std::max(1.0, times_ns[i]);
    ones += weight * weight;
    sizes += bytes[i] * weight * weight;
    squares += bytes[i] * bytes[i] * weight * weight;
    right += weight;
    right_sizes += bytes[i] * weight;
  }
  const double determinant = ones * squares - sizes * sizes;
  AlphaBeta fit;
  fit.sizes = distinct(bytes);
  if (ones == 0) {
    return fit;
  }
  double slope = determinant > 1e-12 * ones * squares ? (ones * right_sizes - sizes * right) / determinant : 0;
  fit.alpha_ns = (right - slope * sizes) / ones;
  if (fit.alpha_ns < 0) {
    fit.alpha_ns = 0;
    slope = right_sizes / squares;
  }
  fit.beta = slope > 0 ? 1e9 / slope : 0;
  std::vector<double> measured;
  std::vector<double> fitted;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double time = fit.alpha_ns + std::max(0.0, slope) * bytes[i];
    measured.push_back(std::log(std::max(1.0, times_ns[i])));
    fitted.push_back(std::log(std::max(1.0, time)));
    fit.worst_residual = std::max(fit.worst_residual, std::abs(time - times_ns[i]) / std::max(1.0, times_ns[i]));
  }
  fit.r2 = r_squared(measured, fitted);
  return fit;
}

std::string quality(double r2) {
  if (r2 >= 0.98) {
    return fmt::format("R² = {:.3f}, a good fit", r2);
  }
  if (r2 >= 0.8) {
    return fmt::format("R² = {:.2f}, a rough fit", r2);
  }
  return fmt::format("R² = {:.2f}, a bad fit: the model does not describe these numbers", r2);
}

std::string quality(const AlphaBeta& fit) {
  if (!fit.testable()) {
    return fmt::format("not tested: a formula with two parameters needs three sizes, and there {} {}",
                       fit.sizes == 1 ? "is" : "are", fit.sizes);
  }
  const double off = 100 * fit.worst_residual;
  return fit.worst_residual <= 0.1 ? fmt::format("a good fit (at worst {:.1f} % off)", off)
         : fit.worst_residual <= 0.3
             ? fmt::format("a rough fit (at worst {:.1f} % off)", off)
             : fmt::format("a bad fit (at worst {:.1f} % off): the formula does not describe these numbers", off);
}

}  // namespace baton::findings
