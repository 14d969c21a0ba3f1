// The check of 01-spread-layers. The cases are drawn at random; answers are judged by these lines.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "baton/exercise/exercises.h"

namespace baton::exercise {
namespace {

/// The least work that the busiest of this many devices can have.
double least_of_the_busiest(const std::vector<double>& times, std::size_t devices) {
  std::vector<double> before(times.size() + 1, 0);  // work of the first layers
  std::partial_sum(times.begin(), times.end(), before.begin() + 1);
  std::vector<double> best(times.size() + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    for (std::size_t end = times.size(); end > 0; --end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        best[end] = std::min(best[end], std::max(best[begin], before[end] - before[begin]));
      }
    }
  }
  return best.back();
}

/// Equal layers, layers of all sizes, or one that is longer than all others.
std::vector<double> draw_times(Session& session) {
  std::vector<double> times(static_cast<std::size_t>(session.draw(1, 40)));
  const std::int64_t kind = session.draw(0, 3);
  for (double& time : times) {
    time = kind == 0 ? 1 : kind == 1 ? session.draw_real(1, 2) : session.draw_log(0.1, 10);
  }
  if (kind == 3) {
    times[static_cast<std::size_t>(session.draw(0, static_cast<std::int64_t>(times.size()) - 1))] = session.draw_real(20, 60);
  }
  return times;
}

std::string flaw_in_order(const std::vector<std::int64_t>& device, std::size_t layers, std::int64_t devices) {
  if (device.size() != layers) {
    return fmt::format("{} devices were returned for {} layers", device.size(), layers);
  }
  for (std::size_t l = 0; l < layers; ++l) {
    if (device[l] < 0 || device[l] >= devices) {
      return fmt::format("layer {} is on device {}, but devices are 0 to {}", l, device[l], devices - 1);
    }
    if (l > 0 && device[l] < device[l - 1]) {
      return fmt::format("layer {} is on device {}, and layer {} before it on device {}", l, device[l], l - 1, device[l - 1]);
    }
  }
  return "";
}

}  // namespace

void check_spread_layers(Session& session) {
  GradedPart& order = session.part("every layer has a device, and no layer a lower one than the layer before", 2);
  GradedPart& all = session.part("devices 0, 1, … are used without a gap, as many as there are layers for", 3);
  GradedPart& balance = session.part("the busiest device has as little work as possible", 5);
  for (int i = 0; i < 60; ++i) {
    const std::vector<double> times = draw_times(session);
    const std::int64_t devices = session.draw(1, 12);
    session.ask(fmt::format("{} layers on {} devices", times.size(), devices), Writer().add(devices).add(times),
                [&](Reader& answer) {
                  const std::vector<std::int64_t> device = answer.integers();
                  const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
                  const std::string flaw = in_case(flaw_in_order(device, times.size(), devices));
                  order.judge(flaw);
                  if (!flaw.empty()) {
                    all.judge(flaw);
                    balance.judge(flaw);
                    return;
                  }
                  std::vector<double> work(static_cast<std::size_t>(devices), 0);
                  std::vector<bool> used(work.size(), false);
                  for (std::size_t l = 0; l < times.size(); ++l) {
                    work[static_cast<std::size_t>(device[l])] += times[l];
                    used[static_cast<std::size_t>(device[l])] = true;
                  }
                  const std::size_t wanted = std::min(times.size(), work.size());
                  const auto first = std::find(used.begin(), used.end(), false) - used.begin();
                  all.judge(static_cast<std::size_t>(first) >= wanted
                                ? ""
                                : in_case(fmt::format("device {} has no layer: {} of {} devices are used, and {} could be", first,
                                                      std::count(used.begin(), used.end(), true), devices, wanted)));
                  const double most = *std::max_element(work.begin(), work.end());
                  const double least = least_of_the_busiest(times, wanted);
                  balance.judge(most <= least * (1 + 1e-9)
                                    ? ""
                                    : in_case(fmt::format("your busiest device works for {:.3f}, and {:.3f} is possible: "
                                                          "{:.1f} % more than needed",
                                                          most, least, 100 * (most / least - 1))));
                });
  }
}

}  // namespace baton::exercise
