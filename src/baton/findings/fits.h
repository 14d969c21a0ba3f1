#pragma once

#include <span>
#include <string>
#include <vector>

/// Numbers → models of them. Each fit says how well it holds, so that a sentence made from it can say so too.
namespace baton::findings {

/// y = intercept + slope · x by least squares. r2 is 1 for a perfect fit; with fewer than three points it means nothing.
struct Line {
  double intercept = 0;
  double slope = 0;
  double r2 = 0;
  std::size_t points = 0;  // the number of different x
};
Line fit_line(std::span<const double> x, std::span<const double> y);

/// True if a fitted serial fraction is a share of the step. Noise, or a formula that does not hold, may make it negative or more
/// than all.
constexpr bool is_share(double serial) { return serial > -0.001 && serial < 1; }

/// Amdahl: time on n devices = t1 · (s + (1 − s) / n). `s` may come out negative if the speedup is more than linear.
struct Amdahl {
  double serial = 0;  // s
  double r2 = 0;
  double limit() const { return serial > 0 ? 1 / serial : 0; }  // speedup with endless devices; 0: none in sight
};
Amdahl fit_amdahl(std::span<const double> devices, std::span<const double> times);

/// Gustafson: with work grown in proportion, speedup on n devices = n − s · (n − 1).
struct Gustafson {
  double serial = 0;
  double r2 = 0;
};
Gustafson fit_gustafson(std::span<const double> devices, std::span<const double> scaled_speedups);

/// A message of n bytes takes alpha + n / beta.
struct AlphaBeta {
  double alpha_ns = 0;
  double beta = 0;  // bytes per second; 0 if time does not grow with size
  double r2 = 0;
  double worst_residual = 0;  // largest |fitted − measured| / measured
  std::size_t sizes = 0;      // the number of different sizes
  /// Two numbers take three sizes to be tested on.
  bool testable() const { return sizes >= 3; }
};
/// Fits by least squares of absolute errors. Alpha may come out negative, which is not a latency: then the formula does not hold.
AlphaBeta fit_alpha_beta(std::span<const double> bytes, std::span<const double> times_ns);

/// Fits sizes over many powers of ten by least squares of relative errors, since absolute errors of the largest messages alone
/// would decide, and would not determine alpha. Alpha is not negative; R² is that of the logarithms.
AlphaBeta fit_message(std::span<const double> bytes, std::span<const double> times_ns);

/// "R² = 0.998, a good fit", "R² = 0.91, a rough fit", "R² = 0.40, a bad fit: the model does not describe these numbers".
std::string quality(double r2);
/// Says how good a formula of messages is, by how far the worst size is off: "a good fit (at worst 3.1 % off)". R² says nothing if
/// times hardly differ. With fewer than three sizes it says that they are too few.
std::string quality(const AlphaBeta& fit);

}  // namespace baton::findings
