#include "baton/findings/straggler.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::findings {
namespace {

constexpr double least_cost = 0.05;  // of the step
/// What of its lateness must show in one phase for that to be named.
constexpr double explained = 0.5;

double part(Nanoseconds time, Nanoseconds step) {
  return step.count == 0 ? 0 : static_cast<double>(time.count) / static_cast<double>(step.count);
}

/// The others wait longest for it; there is one.
const Comer& most_waited_for(std::span<const Comer> comers) {
  return *std::max_element(comers.begin(), comers.end(), [](const Comer& a, const Comer& b) { return a.held_up < b.held_up; });
}

/// Of all the time that one device held all others up, what is this one's.
double share_of_waiting(std::span<const Comer> comers, const Comer& one) {
  Nanoseconds all;
  for (const Comer& comer : comers) {
    all += comer.held_up;
  }
  return part(one.held_up, all);
}

}  // namespace

const Comer* latest(std::span<const Comer> comers, Nanoseconds step) {
  if (comers.size() < 2) {
    return nullptr;
  }
  const Comer& worst = most_waited_for(comers);
  const double chance = 1.0 / static_cast<double>(comers.size());
  return share_of_waiting(comers, worst) < (1 + chance) / 2 || part(worst.held_up, step) < least_cost ? nullptr : &worst;
}

std::string straggler(std::span<const Comer> comers, Nanoseconds step) {
  if (comers.size() < 2) {
    return {};
  }
  const Comer& worst = most_waited_for(comers);
  const std::string numbers = fmt::format("holds all others up for {} per step ({:.1f} % of it), {:.0f} % of such waiting",
                                          to_text(worst.held_up), part(worst.held_up, step) * 100,
                                          share_of_waiting(comers, worst) * 100);
  if (latest(comers, step) == nullptr) {
    return fmt::format("No device stands out: the others wait longest for {}, which {}.", worst.name, numbers);
  }
  const bool found = static_cast<double>(worst.excess.count) >= explained * static_cast<double>(worst.held_up.count);
  return fmt::format("{} is slow: it {}. {}", worst.name, numbers,
                     found ? fmt::format("Its {} takes {} longer than the others' (median).", worst.phase, to_text(worst.excess))
                           : "None of its phases takes much longer than the others': it is late for what it "
                             "waits for, or for messages.");
}

}  // namespace baton::findings
