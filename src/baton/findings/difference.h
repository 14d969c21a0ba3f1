#pragma once

#include <span>

namespace baton::findings {

/// The `p` quantile of Student's distribution. With infinite degrees of freedom it is that of the normal distribution.
double student_quantile(double p, double degrees);

/// A time that was measured in several fresh instances, as the mean of its logarithms with the variance of that mean.
struct Sample {
  double log_mean = 0;
  double variance = 0;  // the variance of that mean
  double degrees = 0;   // degrees of freedom with which the variance is known; 0: it is not known
};
/// The sample of the instances' medians, all positive. The variance of a single one is not known.
Sample sample_of(std::span<const double> instance_times);
/// The usual scatter of an instance among several samples: the median of their variances, for samples whose few instances happen
/// to agree. It has the degrees of freedom of all of them together.
struct Scatter {
  double variance = 0;  // the variance of one instance
  double degrees = 0;
};
Scatter usual_scatter(std::span<const Sample> samples);
/// The sample with a variance that is at least the usual one.
Sample at_least(const Sample& sample, const Scatter& usual);

/// A time that is known exactly, as a simulated one is.
Sample exact(double time);

/// The ratio of two times, as a speedup is: it scatters with both.
Sample quotient(const Sample& a, const Sample& b);

struct Interval {
  double low = 0;
  double high = 0;
};
/// The interval in which the true time lies with this confidence; from 0 to infinity if the variance is not known.
Interval interval(const Sample& sample, double confidence);
/// The inverse: the sample with this time and this 95 % interval over a number of instances.
Sample from_interval(double time, const Interval& interval, double instances);

struct Test {
  double level = 0.01;  // how often two equal times may be called different
  double pairs = 1;     // the number of pairs that one statement is chosen from: the level is divided by it (Bonferroni)
  double drift = 0;     // standard deviation of what the machine itself changes between the two, relative
  double shift = 0;     // by how much the machine is known to have changed between the two, relative: no difference below twice it
};

/// The ratio of two times, and how sure it is.
struct Difference {
  double ratio = 1;   // the second over the first
  Interval of_ratio;  // interval of the ratio with 95 % confidence
  Interval tested;    // interval with the confidence of the test: the two differ if 1 is outside
  bool differ = false;
  double smallest = 0;  // the smallest true difference that is found in nine of ten cases, relative; infinite if none would be
};
/// Welch's test on the logarithms: the instances of both may scatter differently.
Difference difference(const Sample& a, const Sample& b, const Test& test = {});

/// True if two jobs that took turns for this many rounds can be told apart round by round at all.
bool can_pair(std::size_t rounds, const Test& test = {});
/// Compares two jobs that took turns by the times of their rounds: a disturbance that hits both in a round cancels. It is
/// Wilcoxon's signed-rank test, which a few disturbed rounds do not mislead; the ratio is Hodges' and Lehmann's. Later rounds of
/// the one that has more are left out.
Difference paired_difference(std::span<const double> a, std::span<const double> b, const Test& test = {});

/// Two equal jobs may differ by this much for reasons that fresh instances do not vary (the order in which they run, where code
/// lies in memory): no smaller difference between measured times is ever claimed.
inline constexpr double resolution = 0.005;

}  // namespace baton::findings
