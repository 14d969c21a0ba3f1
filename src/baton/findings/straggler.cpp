#include "baton/findings/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton::findings {
namespace {

constexpr double least_cost = 0.05;  // share of the step
constexpr double least_surprise = 0.01;
constexpr Nanoseconds least_time(50'000'000);
/// The share of its lateness that must be in one phase for that to be named.
constexpr double explained = 0.5;

double part(Nanoseconds time, Nanoseconds step) {
  return step.count == 0 ? 0 : static_cast<double>(time.count) / static_cast<double>(step.count);
}

/// True if it was the latest in more steps than chance explains, over longer than a short disturbance of the machine lasts.
bool enough_evidence(const ArrivalStats& stats, std::size_t devices, Nanoseconds step) {
  return stats.steps == 0 || (chance_of_latest(stats.latest_in, stats.steps, devices) <= least_surprise &&
                              stats.steps * step.count >= least_time.count);
}

/// The device that the others wait for longest; there is one.
const ArrivalStats& slowest(std::span<const ArrivalStats> arrival_stats) {
  return *std::max_element(arrival_stats.begin(), arrival_stats.end(),
                           [](const ArrivalStats& a, const ArrivalStats& b) { return a.held_up < b.held_up; });
}

/// The share of one device in all the time for which one device held up all others.
double share_of_waiting(std::span<const ArrivalStats> arrival_stats, const ArrivalStats& one) {
  Nanoseconds all;
  for (const ArrivalStats& stats : arrival_stats) {
    all += stats.held_up;
  }
  return part(one.held_up, all);
}

}  // namespace

double chance_of_latest(std::int64_t latest_in, std::int64_t steps, std::size_t devices) {
  const double one = 1.0 / static_cast<double>(devices);
  const auto n = static_cast<double>(steps);
  double chance = 0;
  for (std::int64_t k = latest_in; k <= steps; ++k) {
    const auto x = static_cast<double>(k);
    chance += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) + x * std::log(one) +
                       (n - x) * std::log1p(-one));
  }
  return std::min(1.0, chance * static_cast<double>(devices));  // any of them could be the one
}

const ArrivalStats* most_waited_for(std::span<const ArrivalStats> arrival_stats, Nanoseconds step) {
  if (arrival_stats.size() < 2) {
    return nullptr;
  }
  const ArrivalStats& worst = slowest(arrival_stats);
  const double chance = 1.0 / static_cast<double>(arrival_stats.size());
  return share_of_waiting(arrival_stats, worst) < (1 + chance) / 2 || part(worst.held_up, step) < least_cost ? nullptr : &worst;
}

const ArrivalStats* latest(std::span<const ArrivalStats> arrival_stats, Nanoseconds step) {
  const ArrivalStats* worst = most_waited_for(arrival_stats, step);
  return worst != nullptr && enough_evidence(*worst, arrival_stats.size(), step) ? worst : nullptr;
}

std::string straggler(std::span<const ArrivalStats> arrival_stats, Nanoseconds step) {
  if (arrival_stats.size() < 2) {
    return {};
  }
  const ArrivalStats& worst = slowest(arrival_stats);
  const std::string numbers = fmt::format(
      "holds all others up for {} per step ({:.1f} % of it), {:.0f} % of all the time in which the others wait for a single device",
      to_text(worst.held_up), part(worst.held_up, step) * 100, share_of_waiting(arrival_stats, worst) * 100);
  if (!enough_evidence(worst, arrival_stats.size(), step) && part(worst.held_up, step) >= least_cost) {
    return fmt::format(
        "Whether a device is slow cannot be told from {} step{} of {}: run more of them. The others waited longest for {}.",
        worst.steps, worst.steps == 1 ? "" : "s", to_text(step), worst.name);
  }
  if (latest(arrival_stats, step) == nullptr) {
    return fmt::format("No device stands out: the others wait longest for {}, which {}.", worst.name, numbers);
  }
  const bool found = static_cast<double>(worst.excess.count) >= explained * static_cast<double>(worst.held_up.count);
  return fmt::format("{} is slow: it {}. {}", worst.name, numbers,
                     found ? fmt::format("Its {} takes {} longer than the others' (median).", worst.phase, to_text(worst.excess))
                           : "None of its phases takes much longer than the others': it is late for what it "
                             "waits for, or for messages.");
}

}  // namespace baton::findings
