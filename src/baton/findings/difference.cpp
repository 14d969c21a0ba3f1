#include "baton/findings/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "baton/base/error.h"
#include "baton/findings/median.h"

namespace baton::findings {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();
constexpr double power = 0.9;  // the chance that the smallest difference said to be seen is seen

/// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m <= 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < 1e-14) {
      break;
    }
  }
  return result;
}

/// The regularized incomplete beta function.
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) {
    return x <= 0 ? 0 : 1;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/// The probability of more than `t`, which is not negative.
double student_tail(double t, double degrees) {
  return std::isinf(degrees) ? std::erfc(t / std::sqrt(2.0)) / 2
                             : incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
}

double student_density(double t, double degrees) {
  const double pi = std::acos(-1.0);
  return std::isinf(degrees) ? std::exp(-t * t / 2) / std::sqrt(2 * pi)
                             : std::exp(std::lgamma((degrees + 1) / 2) - std::lgamma(degrees / 2) -
                                        (degrees + 1) / 2 * std::log1p(t * t / degrees)) /
                                   std::sqrt(degrees * pi);
}

/// The number of sums of two differences that an interval leaves out at each end of all of them, sorted, so that it misses the true
/// shift with probability `alpha` at most: by the distribution of the sum of signed ranks. Negative if even all of them are too
/// few.
std::int64_t left_out(std::size_t rounds, double alpha) {
  thread_local std::map<std::pair<std::size_t, double>, std::int64_t> known;  // many pairs of points have as many rounds
  const auto [place, is_new] = known.try_emplace({rounds, alpha}, -1);
  if (!is_new) {
    return place->second;
  }
  std::vector<double> chance{1};  // by sum of the ranks 1 to i that are positive
  for (std::size_t rank = 1; rank <= rounds; ++rank) {
    std::vector<double> next(chance.size() + rank, 0);
    for (std::size_t sum = 0; sum < chance.size(); ++sum) {
      next[sum] += chance[sum] / 2;
      next[sum + rank] += chance[sum] / 2;
    }
    chance = std::move(next);
  }
  std::int64_t& count = place->second;
  double below = 0;
  while (below + chance[static_cast<std::size_t>(count + 1)] <= alpha / 2) {
    below += chance[static_cast<std::size_t>(++count)];
  }
  return count;
}

Interval without_ends(const std::vector<double>& sorted, std::int64_t ends) {
  const auto first = static_cast<std::size_t>(ends);
  return {sorted[first], sorted[sorted.size() - 1 - first]};
}

}  // namespace

double student_quantile(double p, double degrees) {
  check(p > 0 && p < 1 && degrees > 0, "the quantile {} of Student's distribution with {} degrees of freedom", p, degrees);
  if (p < 0.5) {
    return -student_quantile(1 - p, degrees);
  }
  // The tail is convex: Newton's steps from zero never go too far.
  double t = 0;
  for (int i = 0; i < 200; ++i) {
    const double step = (student_tail(t, degrees) - (1 - p)) / student_density(t, degrees);
    t += step;
    if (!(step > 1e-12 * (1 + t))) {
      break;
    }
  }
  return t;
}

Sample sample_of(std::span<const double> instance_times) {
  Sample sample;
  const auto count = static_cast<double>(instance_times.size());
  for (const double time : instance_times) {
    check(time > 0 && std::isfinite(time), "an instance took {}", time);
    sample.log_mean += std::log(time) / count;
  }
  for (const double time : instance_times) {
    sample.variance += (std::log(time) - sample.log_mean) * (std::log(time) - sample.log_mean);
  }
  sample.degrees = std::max(0.0, count - 1);
  sample.variance = sample.degrees > 0 ? sample.variance / sample.degrees / count : 0;
  return sample;
}

Scatter usual_scatter(std::span<const Sample> samples) {
  std::vector<double> variances;
  Scatter usual;
  for (const Sample& sample : samples) {
    if (sample.degrees > 0 && std::isfinite(sample.degrees)) {
      variances.push_back(sample.variance * (sample.degrees + 1));
      usual.degrees += sample.degrees;
    }
  }
  usual.variance = median(variances);
  return usual;
}

Sample at_least(const Sample& sample, const Scatter& usual) {
  if (sample.degrees == 0 || std::isinf(sample.degrees) || usual.degrees == 0) {
    return sample;
  }
  const double variance = usual.variance / (sample.degrees + 1);
  return variance > sample.variance ? Sample{sample.log_mean, variance, usual.degrees} : sample;
}

Sample exact(double time) { return {std::log(time), 0, endless}; }

Sample quotient(const Sample& a, const Sample& b) {
  Sample ratio{a.log_mean - b.log_mean, a.variance + b.variance, 0};
  if (a.degrees == 0 || b.degrees == 0) {
    return ratio;
  }
  // Welch and Satterthwaite, as between the two.
  const double spread = a.variance * a.variance / a.degrees + b.variance * b.variance / b.degrees;
  ratio.degrees = spread > 0 ? ratio.variance * ratio.variance / spread : a.degrees + b.degrees;
  return ratio;
}

Interval interval(const Sample& sample, double confidence) {
  if (sample.degrees == 0) {
    return {0, endless};
  }
  const double reach = student_quantile((1 + confidence) / 2, sample.degrees) * std::sqrt(sample.variance);
  return {std::exp(sample.log_mean - reach), std::exp(sample.log_mean + reach)};
}

Sample from_interval(double time, const Interval& interval, double instances) {
  if (instances < 2 || interval.low <= 0 || interval.high < interval.low) {
    return {std::log(time), 0, 0};
  }
  const double reach = std::log(interval.high / interval.low) / 2;
  return {std::log(time), std::pow(reach / student_quantile(0.975, instances - 1), 2), instances - 1};
}

Difference difference(const Sample& a, const Sample& b, const Test& test) {
  Difference result;
  const double apart = b.log_mean - a.log_mean;
  result.ratio = std::exp(apart);
  if (a.degrees == 0 || b.degrees == 0) {
    result.of_ratio = {0, endless};
    result.tested = {0, endless};
    result.smallest = endless;
    return result;
  }
  const bool both_exact = std::isinf(a.degrees) && std::isinf(b.degrees);
  const double drift = both_exact ? 0 : test.drift * test.drift;
  const double variance = a.variance + b.variance + drift;
  // Welch and Satterthwaite; the drift is known from as many rounds as the less often measured of the two.
  const double spread = a.variance * a.variance / a.degrees + b.variance * b.variance / b.degrees +
                        drift * drift / std::min(a.degrees, b.degrees);
  const double degrees = spread > 0 ? variance * variance / spread : endless;
  const double error = std::sqrt(variance);
  const double reach = student_quantile(1 - test.level / test.pairs / 2, degrees) * error;
  const double least = both_exact ? 1e-9 : resolution;
  const double shift = both_exact ? 0 : 2 * std::abs(test.shift);
  const double confident = student_quantile(0.975, degrees) * error;
  result.of_ratio = {std::exp(apart - confident), std::exp(apart + confident)};
  const double needed = std::max(reach, least) + shift;
  result.differ = std::abs(apart) > needed;
  result.tested = {std::exp(apart - needed), std::exp(apart + needed)};
  // With few instances the scatter comes out too small more often than too large: by this much in the median.
  const double usually = std::isinf(degrees) ? 1 : std::pow(1 - 2 / (9 * degrees), 1.5);
  result.smallest = both_exact
                        ? 0
                        : std::expm1(shift + std::max(least, reach / usually) + student_quantile(power, degrees) * error / usually);
  return result;
}

bool can_pair(std::size_t rounds, const Test& test) {
  return rounds < 64 ? 2 * std::pow(0.5, static_cast<double>(rounds)) <= test.level / test.pairs : true;
}

Difference paired_difference(std::span<const double> a, std::span<const double> b, const Test& test) {
  const std::size_t rounds = std::min(a.size(), b.size());
  check(can_pair(rounds, test), "{} rounds cannot tell anything apart", rounds);
  std::vector<double> differences;
  std::vector<double> sums;  // halves of the sums of two differences, of each with itself too
  for (std::size_t i = 0; i < rounds; ++i) {
    differences.push_back(std::log(b[i] / a[i]));
    for (std::size_t j = 0; j <= i; ++j) {
      sums.push_back((differences[i] + differences[j]) / 2);
    }
  }
  std::sort(sums.begin(), sums.end());
  const double alpha = test.level / test.pairs;
  const Interval strict = without_ends(sums, left_out(rounds, alpha));
  const Interval usual = without_ends(sums, left_out(rounds, 0.05));
  const double apart = (sums[(sums.size() - 1) / 2] + sums[sums.size() / 2]) / 2;
  // Slow instances are rarely as many on both sides: the wider one counts, since either job may be the faster.
  const double reach = std::max(apart - strict.low, strict.high - apart);
  const double error = reach / student_quantile(1 - alpha / 2, endless);
  Difference result;
  result.ratio = std::exp(apart);
  result.of_ratio = {std::exp(usual.low), std::exp(usual.high)};
  result.differ = (strict.low > 0 || strict.high < 0) && std::abs(apart) > resolution;
  result.tested = {std::exp(std::min(strict.low, apart - resolution)), std::exp(std::max(strict.high, apart + resolution))};
  result.smallest = std::expm1(std::max(resolution, reach) + student_quantile(power, endless) * error);
  return result;
}

}  // namespace baton::findings
