#include "baton/sim/memory_contention.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace baton::sim {
namespace {

constexpr int walks = 8;

/// Times between two models', a share for each task, and longer for those that come after a rest.
class Between final : public cost::CostModel {
 public:
  Between(const plan::Plan& plan, const cost::CostModel& alone, const cost::CostModel& beside)
      : alone_(alone), beside_(beside), contended_(plan.tasks().size(), 0), longer_(plan.tasks().size()) {}

  /// The share of its time in which others were at work too.
  void set_contended(std::size_t task, double share) { contended_[task] = share; }
  void set_longer(std::size_t task, Nanoseconds time) { longer_[task] = time; }

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override {
    const auto alone = static_cast<double>(alone_.duration(plan, task).count);
    const auto beside = static_cast<double>(beside_.duration(plan, task).count);
    const double share = contended_[task.index()];
    // While alone it does 1/alone of its work per nanosecond, while others work 1/beside.
    return Nanoseconds(beside > 0 ? std::llround(alone / (1 - share + share * alone / beside)) : 0) + longer_[task.index()];
  }
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override { return alone_.copying(plan, task); }
  std::string origin() const override { return alone_.origin(); }

 private:
  const cost::CostModel& alone_;
  const cost::CostModel& beside_;
  std::vector<double> contended_;  // by task
  std::vector<Nanoseconds> longer_;
};

struct Stretch {
  Nanoseconds start;
  Nanoseconds end;
};

/// The part of [start, end) that these stretches cover; they are in order and do not overlap.
std::int64_t covered(const std::vector<Stretch>& stretches, Nanoseconds start, Nanoseconds end) {
  std::int64_t sum = 0;
  auto at = std::partition_point(stretches.begin(), stretches.end(), [&](const Stretch& one) { return one.end <= start; });
  for (; at != stretches.end() && at->start < end; ++at) {
    sum += (std::min(at->end, end) - std::max(at->start, start)).count;
  }
  return sum;
}

/// Finds, for each task that computes, the share of its time in which another device computed, the mean over the others.
void look_around(const plan::Plan& plan, const trace::StepTrace& step, Between& between) {
  const std::size_t tasks = plan.tasks().size();
  const auto computes = [&](std::size_t t) { return plan.tasks()[t].lane == plan::Lane::compute; };
  std::vector<std::vector<Stretch>> work(plan.devices().size());
  for (std::size_t t = 0; t < tasks; ++t) {
    if (computes(t) && !std::holds_alternative<plan::Delay>(plan.tasks()[t].action)) {
      work[plan.tasks()[t].device.index()].push_back({step.events[t].start, step.events[t].end});
    }
  }
  for (std::size_t t = 0; t < tasks; ++t) {
    const trace::Event& event = step.events[t];
    const std::int64_t time = (event.end - event.start).count;
    if (!computes(t) || time == 0) {
      continue;
    }
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < work.size(); ++d) {
      sum += d == plan.tasks()[t].device.index() ? 0 : covered(work[d], event.start, event.end);
    }
    between.set_contended(t, static_cast<double>(sum) / static_cast<double>(time) / static_cast<double>(work.size() - 1));
  }
}

/// Finds the products that come after a rest.
void look_for_rests(const plan::Plan& plan, const trace::StepTrace& step, const WakingUp& waking_up, Between& between) {
  for (std::size_t d = 0; d < plan.devices().size(); ++d) {
    std::vector<TaskId> products;
    for (const TaskId task : plan.lane(DeviceId(d), plan::Lane::compute)) {
      if (plan::is_product(plan[task])) {
        products.push_back(task);
      }
    }
    Nanoseconds before = products.empty() ? Nanoseconds(0) : step.events[products.back().index()].end - step.duration;
    for (const TaskId task : products) {
      const trace::Event& event = step.events[task.index()];
      between.set_longer(task.index(), event.start - before >= waking_up.rest ? waking_up.costs : Nanoseconds(0));
      before = event.end;
    }
  }
}

}  // namespace

trace::StepTrace simulate(const plan::Plan& plan, const cluster::Cluster& cluster, const cost::CostModel& alone,
                          const cost::CostModel& beside, const WakingUp& waking_up) {
  Between between(plan, alone, beside);
  trace::StepTrace step = simulate(plan, cluster, between);
  const bool several = plan.devices().size() > 1;
  const bool wakes = waking_up.costs.count > 0;
  for (int walk = 1; walk < walks && (several || wakes); ++walk) {
    if (several) {
      look_around(plan, step, between);
    }
    if (wakes) {
      look_for_rests(plan, step, waking_up, between);
    }
    step = simulate(plan, cluster, between);
  }
  return step;
}

}  // namespace baton::sim
