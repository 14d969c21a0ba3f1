#pragma once

#include <cmath>
#include <cstdint>

// Kernels of GPUs ask for the rate of a step too, since a step that is captured once runs again and again.
#ifdef __CUDACC__
#define BATON_ON_HOST_AND_DEVICE __host__ __device__
#else
#define BATON_ON_HOST_AND_DEVICE
#endif

namespace baton::op {

/// The factor of the learning rate by step. Over the first `warmup` steps it rises evenly to one. Then it falls to `floor`,
/// which it has from step `linear_until` or `cosine_until` on, evenly or along half a cosine; or it is multiplied by
/// `gamma` after each `every` steps; or it stays, if all these are 0.
struct RateSchedule {
  std::int64_t warmup = 0;
  std::int64_t linear_until = 0;
  std::int64_t cosine_until = 0;
  std::int64_t every = 0;
  double floor = 0;
  double gamma = 0;

  // Spelled out: kernels are compiled as C++17.
  friend bool operator==(const RateSchedule& a, const RateSchedule& b) {
    return a.warmup == b.warmup && a.linear_until == b.linear_until && a.cosine_until == b.cosine_until && a.every == b.every &&
           a.floor == b.floor && a.gamma == b.gamma;
  }
  friend bool operator!=(const RateSchedule& a, const RateSchedule& b) { return !(a == b); }
};

/// The factor of a step; steps are numbered from 1.
BATON_ON_HOST_AND_DEVICE inline double rate_factor(const RateSchedule& schedule, std::int64_t step) {
  if (step <= schedule.warmup) {
    return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  }
  const std::int64_t passed = step - 1 - schedule.warmup;
  if (schedule.every > 0) {
    const std::int64_t falls = passed / schedule.every;
    return pow(schedule.gamma, static_cast<double>(falls));
  }
  const std::int64_t until = schedule.linear_until > 0 ? schedule.linear_until : schedule.cosine_until;
  if (until <= 0) {
    return 1;
  }
  const std::int64_t length = until - 1 - schedule.warmup;
  const double gone = passed >= length ? 1 : static_cast<double>(passed) / static_cast<double>(length);
  constexpr double pi = 3.14159265358979323846;
  const double left = schedule.linear_until > 0 ? 1 - gone : (1 + cos(pi * gone)) / 2;
  return schedule.floor + (1 - schedule.floor) * left;
}

}  // namespace baton::op

#undef BATON_ON_HOST_AND_DEVICE
