#include "baton/job/scenario.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cost/roofline.h"
#include "baton/cost/scaled.h"
#include "baton/job/setup.h"
#include "baton/strategy/fold.h"

namespace baton::job {
namespace {

void sum_totals(Laid& laid) {
  for (const plan::Totals& device : plan::totals_by_device(laid.plan)) {
    laid.totals += device;
  }
}

/// Checks a plan, or the slice of one that stands for all of `cluster`, and lays it out.
void check_and_lay_out(Laid& laid, const cluster::Cluster* cluster, const LimitsOf& limits_of) {
  plan::Limits limits = limits_of(laid.plan);
  limits.slice = laid.copies() > 1;
  limits.memory.resize(laid.plan.devices().size());
  for (std::size_t d = 0; d < laid.stands_for.size(); ++d) {
    limits.memory[d] = cluster->device(laid.stands_for[d][0]).memory;
  }
  const plan::Verdict verdict = plan::verify(laid.plan, limits);
  plan::require(verdict);
  laid.peak = verdict.memory.peak;
}

/// Where each replica holds pieces of its own, all of them are laid out.
void take_the_most(Laid& laid, const strategy::Request& request, const LimitsOf& limits) {
  const plan::Plan all = strategy::compile(request);
  const plan::Verdict of_all = plan::verify(all, limits(all));
  plan::require(of_all);
  for (std::size_t d = 0; d < laid.stands_for.size(); ++d) {
    for (const DeviceId device : laid.stands_for[d]) {
      laid.peak[d] = std::max(laid.peak[d], of_all.memory.peak[device.index()]);
    }
  }
}

}  // namespace

Laid lay_out(plan::Plan plan, const LimitsOf& limits) {
  Laid laid{.plan = std::move(plan)};
  check_and_lay_out(laid, nullptr, limits);
  sum_totals(laid);
  return laid;
}

Laid lay_out(const strategy::Request& request, std::size_t fold_beyond, const LimitsOf& limits) {
  std::optional<strategy::Folded> folded;
  if (request.cluster.size() > fold_beyond) {
    folded = strategy::fold(request);
  }
  if (!folded) {
    return lay_out(strategy::compile(request), limits);
  }
  Laid laid{.plan = std::move(folded->plan), .stands_for = std::move(folded->stands_for), .totals = folded->totals};
  check_and_lay_out(laid, &request.cluster, limits);
  if (folded->divided) {
    take_the_most(laid, request, limits);
  }
  if (laid.copies() == 1) {
    sum_totals(laid);
  }
  return laid;
}

cluster::Cluster written_out(const cluster::Cluster& cluster, const sim::StandsFor& stands_for) {
  if (stands_for.empty()) {
    return cluster;
  }
  std::vector<cluster::Device> devices;
  for (const std::vector<DeviceId>& list : stands_for) {
    devices.push_back(cluster.device(list[0]));
  }
  return cluster::Cluster(std::move(devices), cluster.emulated_link(), cluster.wiring());
}

trace::StepTrace imagined_step(const plan::Plan& plan, const cluster::Cluster& cluster, const sim::StandsFor& stands_for,
                               const WhatIf& what_if) {
  const cluster::Cluster other = changed(cluster, what_if);
  const cluster::Cluster written = written_out(other, stands_for);
  const cost::Roofline roofline(written);
  return sim::simulate(plan, other, cost::Scaled(roofline, what_if.compute, what_if.link), stands_for);
}

std::string changed_origin(const std::string& origin, const JobWords& words) {
  return parse_what_if(words.what_if).changes() ? origin + "; changed by " + words.what_if : origin;
}

std::string imagined_origin(const cluster::Cluster& cluster, const JobWords& words) {
  return changed_origin(cost::Roofline(cluster).origin(), words);
}

std::vector<Sensitivity> sensitivities(const std::function<Nanoseconds(const WhatIf&)>& time_of, const WhatIf& now,
                                       Nanoseconds step) {
  std::vector<Sensitivity> list;
  const auto turn = [&](std::string knob, auto change) {
    WhatIf what_if = now;
    change(what_if);
    const Nanoseconds time = time_of(what_if);
    const double gain = step.count == 0 ? 0 : 1 - static_cast<double>(time.count) / static_cast<double>(step.count);
    list.push_back({std::move(knob), time, gain});
  };
  turn("compute twice as fast", [](WhatIf& what_if) { what_if.compute *= 2; });
  turn("links twice as wide", [](WhatIf& what_if) { what_if.link *= 2; });
  turn("half the latency of links", [](WhatIf& what_if) {
    what_if.latency /= 2;
    what_if.longer = Nanoseconds(what_if.longer.count / 2);
  });
  std::stable_sort(list.begin(), list.end(), [](const Sensitivity& a, const Sensitivity& b) { return a.gain > b.gain; });
  return list;
}

Scenario::Scenario(const JobWords& words)
    : words_(words),
      model_(make_model(words)),
      cluster_(imagine(words)),
      what_if_(parse_what_if(words.what_if)),
      request_(make_request(words, model_, cluster_, imagined_target())),
      laid_([&] {
        require_sense(words, request_);
        return lay_out(request_, fold_beyond(words), [&](const plan::Plan&) {
          plan::Limits limits;
          for (const cluster::Device& device : cluster_.devices()) {
            limits.memory.push_back(device.memory);
          }
          return limits;
        });
      }()),
      step_(imagined_step(laid_.plan, cluster_, laid_.stands_for, what_if_)),
      study_(laid_.plan, laid_.copies(), trace::Origin::simulated) {
  study_.add(step_);
}

std::vector<Sensitivity> Scenario::sensitivities() const {
  return job::sensitivities(
      [&](const WhatIf& what_if) { return imagined_step(laid_.plan, cluster_, laid_.stands_for, what_if).duration; }, what_if_,
      step_.duration);
}

}  // namespace baton::job
