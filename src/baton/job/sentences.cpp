#include "baton/job/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/base/text.h"
#include "baton/schedule/replay.h"

namespace baton::job {

bool is_pipeline(const strategy::Request& request) {
  const std::optional<strategy::Axes> axes = strategy::axes_of(request);
  return axes && axes->pp > 1;
}

namespace {

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Says for how much of the step the devices compute, and which part of the rest is the largest.
std::string where_time_goes(const Scenario& scenario) {
  const Study& study = scenario.study();
  const trace::DeviceTime mean = study.mean_time(scenario.step().duration);
  const auto part = [&](Nanoseconds time) { return trace::share_of(time, scenario.step().duration); };
  const std::size_t devices = scenario.laid().plan.devices().size() * static_cast<std::size_t>(study.copies());
  std::string text = devices == 1
                         ? fmt::format("The device computes for {} of the step.", percent(part(mean.busy)))
                         : fmt::format("On average the {} devices compute for {} of the step.", devices, percent(part(mean.busy)));
  const std::array<std::pair<Nanoseconds, const char*>, 4> others{{{mean.exposed, "communication that nothing overlaps"},
                                                                   {mean.waiting, "waiting for other devices"},
                                                                   {mean.delayed, "injected delays"},
                                                                   {mean.rest(), "time with nothing to do"}}};
  const auto most = std::max_element(others.begin(), others.end());
  if (part(most->first) >= 0.01) {
    text += fmt::format(" Most of the rest is {}: {}.", most->second, percent(part(most->first)));
  }
  if (mean.communication.count > 0) {
    text += fmt::format(" Computing hides {} of the communication.", percent(trace::share_of(mean.overlapped, mean.communication)));
  }
  return text;
}

std::string what_helps(const std::vector<Sensitivity>& sensitivities) {
  const Sensitivity& best = sensitivities.front();
  if (best.gain < 0.01) {
    return "Neither faster devices nor better links would shorten the step by even 1 %: delays, or the order of tasks, decide.";
  }
  return fmt::format("The step would be {} shorter with {}.", percent(best.gain), best.knob);
}

/// The idle share of a pipeline's schedule in theory, compared with the simulated one; empty if there is no pipeline.
std::string idle_in_theory(const Scenario& scenario) {
  const strategy::Request& request = scenario.request();
  if (!is_pipeline(request)) {
    return {};
  }
  const schedule::Timing timing = schedule::replay(*strategy::grid_of(request));
  const trace::DeviceTime mean = scenario.study().mean_time(scenario.step().duration);
  return fmt::format(
      "The schedule leaves devices idle for {} of the step in theory, with free transfers and equal stages; here they do not "
      "compute "
      "for {}.",
      percent(timing.idle_share()), percent(trace::share_of(mean.idle, scenario.step().duration)));
}

/// Empty if no device keeps another waiting. Stages of a pipeline wait for each other, which makes none of them slow.
std::string held_up(const Scenario& scenario) {
  if (is_pipeline(scenario.request())) {
    return {};
  }
  const std::vector<findings::ArrivalStats> arrival_stats = scenario.study().arrival_stats();
  const bool any = std::any_of(arrival_stats.begin(), arrival_stats.end(),
                               [](const findings::ArrivalStats& stats) { return stats.held_up.count > 0; });
  return any ? findings::straggler(arrival_stats, scenario.step().duration) : "";
}

std::string how_full(const Scenario& scenario) {
  const std::vector<Bytes>& peak = scenario.laid().peak;
  const auto most = std::max_element(peak.begin(), peak.end());
  const Bytes memory = scenario.cluster().devices()[0].memory;
  const std::string& name = scenario.laid().plan.devices()[static_cast<std::size_t>(most - peak.begin())];
  if (memory.count == 0) {
    return fmt::format("{} needs the most memory: {}.", name, to_text(*most));
  }
  return fmt::format("{} needs the most memory: {}, which is {} of its {}.", name, to_text(*most),
                     percent(static_cast<double>(most->count) / static_cast<double>(memory.count)), to_text(memory));
}

}  // namespace

std::string correct_sentence(const plan::Plan& plan, bool memory_checked) {
  return fmt::format("The plan is correct: {} tasks over {} buffers on {} device{}; no race, no deadlock, {}.", plan.tasks().size(),
                     plan.buffers().size(), plan.devices().size(), plan.devices().size() == 1 ? "" : "s",
                     memory_checked ? "fits in memory" : "memory not checked, because no machine is given");
}

std::vector<std::string> findings_of(const Scenario& scenario, const std::vector<Sensitivity>& sensitivities) {
  std::vector<std::string> list{where_time_goes(scenario), what_helps(sensitivities), held_up(scenario), idle_in_theory(scenario),
                                how_full(scenario)};
  std::erase(list, "");
  return list;
}

}  // namespace baton::job
