#include "baton/job/scenario.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cost/roofline.h"
#include "baton/cost/scaled.h"
#include "baton/job/setup.h"
#include "baton/job/spec_text.h"
#include "baton/strategy/fold.h"

namespace baton::job {
namespace {

void sum_totals(LaidOutPlan& laid) {
  for (const plan::Totals& device : plan::totals_by_device(laid.plan)) {
    laid.totals += device;
    laid.flops += static_cast<double>(device.work.flops.count);
  }
}

/// Checks a plan, or the slice of one that stands for all of `cluster`, and lays it out.
void check_and_lay_out(LaidOutPlan& laid, const cluster::Cluster* cluster, const std::vector<Bytes>& peak_of_others,
                       const LimitsOf& limits_of) {
  plan::Limits limits = limits_of(laid.plan);
  limits.slice = laid.copies() > 1;
  limits.memory.resize(laid.plan.devices().size());
  for (std::size_t d = 0; d < laid.stands_for.devices.size(); ++d) {
    limits.memory[d] = cluster->device(laid.stands_for.devices[d][0]).memory;
  }
  const plan::Verdict verdict = plan::verify(laid.plan, limits);
  plan::require(verdict);
  laid.peak = verdict.memory.peak;
  for (std::size_t d = 0; d < peak_of_others.size(); ++d) {
    laid.peak[d] = std::max(laid.peak[d], peak_of_others[d]);
    if (laid.peak[d] > limits.memory[d]) {
      throw usage_error("{} and its replicas need up to {} but have {}: use a smaller model or batch, or divide the model more",
                        laid.plan.devices()[d], to_text(laid.peak[d]), to_text(limits.memory[d]));
    }
  }
}

/// Times of a user's own for the computation of devices; times of messages are by the cluster's file.
class OwnCost final : public cost::CostModel {
 public:
  OwnCost(Duration own, std::shared_ptr<const cost::CostModel> base) : own_(std::move(own)), base_(std::move(base)) {}
  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override { return own_(plan, task); }
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override { return base_->copying(plan, task); }
  std::string origin() const override { return "times of a user's own"; }

 private:
  Duration own_;
  std::shared_ptr<const cost::CostModel> base_;
};

}  // namespace

void require_room(const strategy::Request& request, Bytes room, bool folded) {
  constexpr double bytes_per_task = 850;  // for the plan, its checks and the simulation together
  const double tasks = strategy::estimated_tasks(request, folded);
  if (const double needed = bytes_per_task * tasks; room.count > 0 && needed > static_cast<double>(room.count)) {
    const bool whole = folded || request.cluster.size() == 1;
    throw usage_error("a plan of about {:.1f} {} tasks would take about {} of this machine's memory, which is {}: use fewer {}",
                      tasks < 1e9 ? tasks / 1e6 : tasks / 1e9, tasks < 1e9 ? "million" : "billion",
                      to_text(Bytes(static_cast<std::int64_t>(std::min(needed, 9e18)))), to_text(room),
                      whole ? "micro-batches" : "devices or micro-batches (or leave out --fold never)");
  }
}

LaidOutPlan lay_out(plan::Plan plan, const LimitsOf& limits) {
  LaidOutPlan laid{.plan = std::move(plan)};
  check_and_lay_out(laid, nullptr, {}, limits);
  sum_totals(laid);
  return laid;
}

LaidOutPlan lay_out(const strategy::Request& request, std::size_t fold_beyond, const LimitsOf& limits, Unfolded unfolded,
                    std::optional<Bytes> room) {
  std::optional<strategy::Folded> folded;
  if (request.cluster.size() > fold_beyond) {
    if (room) {
      require_room(request, *room, true);
    }
    folded = strategy::fold(request);
  }
  if (!folded && unfolded == Unfolded::refused) {
    throw usage_error("its devices are not alike, and the plan of all of them would be very large: simulate it by itself");
  }
  if (!folded) {
    if (room) {
      require_room(request, *room);
    }
    return lay_out(strategy::compile(request), limits);
  }
  LaidOutPlan laid{
      .plan = std::move(folded->plan), .stands_for = stands_for(*folded), .totals = folded->totals, .flops = folded->flops};
  check_and_lay_out(laid, &request.cluster, folded->peak_of_others, limits);
  if (laid.copies() == 1) {
    sum_totals(laid);
  }
  return laid;
}

sim::StandsFor stands_for(const strategy::Folded& folded) {
  sim::StandsFor stands_for{.devices = folded.stands_for, .parts = static_cast<std::size_t>(folded.parts), .reach = {}};
  for (const strategy::Spans spans : folded.spans) {
    stands_for.reach.push_back(spans == strategy::Spans::replicas ? sim::Reach::replicas
                               : spans == strategy::Spans::parts  ? sim::Reach::parts
                               : spans == strategy::Spans::both   ? sim::Reach::all
                                                                  : sim::Reach::members);
  }
  return stands_for;
}

cluster::Cluster written_out(const cluster::Cluster& cluster, const sim::StandsFor& stands_for) {
  if (stands_for.empty()) {
    return cluster;
  }
  std::vector<cluster::Device> devices;
  for (const std::vector<DeviceId>& list : stands_for.devices) {
    devices.push_back(cluster.device(list[0]));
  }
  return cluster::Cluster(std::move(devices), cluster.emulated_link(), cluster.wiring());
}

trace::StepTrace imagined_step(const plan::Plan& plan, const cluster::Cluster& cluster, const sim::StandsFor& stands_for,
                               const WhatIf& what_if, const cost::Software& software, const Duration& own,
                               std::shared_ptr<cost::KeptTimes> kept) {
  const cluster::Cluster other = changed(cluster, what_if);
  std::shared_ptr<const cost::CostModel> costs = std::make_shared<cost::Roofline>(written_out(other, stands_for), software);
  if (own) {
    costs = std::make_shared<OwnCost>(own, std::move(costs));
  }
  if (kept) {
    costs = std::make_shared<cost::Kept>(std::move(costs), std::move(kept));
  }
  return sim::simulate(plan, other, cost::Scaled(std::move(costs), what_if.compute, what_if.link), stands_for);
}

std::string changed_origin(const std::string& origin, const JobSpec& spec) {
  return spec.what_if.changes() ? origin + "; changed by " + flag_text(spec.what_if) : origin;
}

std::string imagined_origin(const cluster::Cluster& cluster, const JobSpec& spec, const cost::Software& software) {
  return changed_origin(cost::Roofline(cluster, software).origin(), spec);
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
  turn("twice the bandwidth of links", [](WhatIf& what_if) { what_if.link *= 2; });
  turn("half the latency of links", [](WhatIf& what_if) {
    what_if.latency /= 2;
    what_if.longer = Nanoseconds(what_if.longer.count / 2);
  });
  std::stable_sort(list.begin(), list.end(), [](const Sensitivity& a, const Sensitivity& b) { return a.gain > b.gain; });
  return list;
}

Scenario::Scenario(const JobSpec& spec)
    : spec_(with_software(spec)),
      model_(make_model(spec_)),
      cluster_(imagine(spec_)),
      what_if_(spec_.what_if),
      software_(cost::software_by_name(spec_.software)),
      request_(make_request(spec_, model_, cluster_, imagined_target())),
      laid_([&] {
        require_sense(spec_, request_);
        LaidOutPlan laid = lay_out(request_, fold_beyond(spec_), [&](const plan::Plan&) {
          plan::Limits limits;
          for (const cluster::Device& device : cluster_.devices()) {
            limits.memory.push_back(device.memory);
          }
          return limits;
        });
        require_rates(spec_, request_, software_);  // what a plan breaks is said first, as by `baton simulate`
        return laid;
      }()),
      step_(imagined_step(laid_.plan, cluster_, laid_.stands_for, what_if_, software_, {}, kept_)),
      study_(laid_.plan, laid_.copies(), trace::Origin::simulated) {
  study_.add(step_);
}

std::vector<Sensitivity> Scenario::sensitivities() const {
  return job::sensitivities(
      [&](const WhatIf& what_if) {
        return imagined_step(laid_.plan, cluster_, laid_.stands_for, what_if, software_, {}, kept_).duration;
      },
      what_if_, step_.duration);
}

}  // namespace baton::job
