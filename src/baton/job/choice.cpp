#include "baton/job/choice.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "baton/schedule/schedule.h"
#include "baton/strategy/training_step.h"

namespace baton::job {
namespace {

using strategy::Recompute;

constexpr std::int64_t few_devices = 64;
constexpr std::int64_t very_few_devices = 8;

bool is_power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

std::set<std::int64_t> divisors(std::int64_t n) {
  std::set<std::int64_t> list;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) {
      list.insert(d);
      list.insert(n / d);
    }
  }
  return list;
}

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::set<std::int64_t> replica_counts(std::int64_t batch, std::int64_t devices) {
  std::set<std::int64_t> list = divisors(batch);
  for (std::int64_t n = 1; n <= std::min({devices, batch, few_devices}) && devices <= few_devices; ++n) {
    list.insert(n);
  }
  return list;
}

std::set<std::int64_t> stage_counts(std::int64_t blocks, std::int64_t devices) {
  std::set<std::int64_t> list;
  for (std::int64_t n = 1; n <= std::min(blocks, devices); ++n) {
    if (devices <= few_devices || devices % n == 0 || is_power_of_two(n) || n == 1 || ceil_of(blocks, n) < ceil_of(blocks, n - 1)) {
      list.insert(n);
    }
  }
  return list;
}

std::set<std::int64_t> part_counts(std::int64_t devices) {
  std::set<std::int64_t> list;
  for (std::int64_t n = 1; n <= std::min(devices, few_devices); ++n) {
    if (devices <= very_few_devices || devices % n == 0 || is_power_of_two(n)) {
      list.insert(n);
    }
  }
  return list;
}

std::set<std::int64_t> micro_batch_counts(std::int64_t rows, std::int64_t pp) {
  std::set<std::int64_t> list = divisors(rows);
  for (const std::int64_t times : {1, 2, 4}) {
    if (times * pp <= rows) {
      list.insert(times * pp);
    }
  }
  return list;
}

/// Numbers of stages per device that a schedule may have.
std::vector<std::int64_t> chunk_counts(const schedule::Schedule& schedule, const Group& group, std::int64_t blocks) {
  std::vector<std::int64_t> list;
  if (schedule.default_chunks == 1 || schedule.name == "zb-v") {
    list = {schedule.default_chunks};
  } else {
    list = {2, 3, 4, 6, 8};
  }
  std::erase_if(list, [&](std::int64_t chunks) { return chunks * group.pp > blocks; });
  return list;
}

/// Recomputations that are different plans for stages of at most this many blocks, of a model with or without results that are
/// light.
std::vector<Recompute> recomputations(std::int64_t blocks_of_stage, bool light) {
  std::vector<Recompute> list{Recompute::none};
  if (light) {
    list.push_back(Recompute::light);
  }
  if (blocks_of_stage > 4) {  // otherwise `all` keeps every second input too
    list.push_back(Recompute::alternate);
  }
  if (blocks_of_stage > 1) {
    list.push_back(Recompute::all);
  }
  list.push_back(Recompute::full);
  return list;
}

}  // namespace

JobSpec spec_of(const Choice& choice, JobSpec shared) {
  shared.strategy = "product";
  shared.dp = choice.dp;
  shared.pp = choice.pp;
  shared.tp = choice.tp;
  shared.sp = choice.sp;
  shared.zero = choice.zero > 0 ? std::optional(choice.zero) : std::nullopt;
  shared.schedule.clear();
  shared.chunks.reset();
  if (choice.pp > 1) {
    const schedule::Schedule& schedule = schedule::schedules()[static_cast<std::size_t>(choice.schedule)];
    shared.schedule = schedule.name;
    shared.chunks = choice.chunks == schedule.default_chunks ? std::nullopt : std::optional(choice.chunks);
  }
  shared.micro_batches = choice.micro_batches;
  shared.recompute = choice.recompute;
  shared.devices = choice.devices();
  return shared;
}

std::vector<Group> groups_of(const model::Model& model, std::int64_t batch, std::int64_t devices) {
  const auto blocks = static_cast<std::int64_t>(model.blocks().size());
  const std::set<std::int64_t> replicas = replica_counts(batch, devices);
  const std::set<std::int64_t> stages = stage_counts(blocks, devices);
  std::vector<Group> list;
  for (const std::int64_t tp : part_counts(devices)) {
    for (const std::int64_t pp : stages) {
      for (const std::int64_t dp : replicas) {
        if (dp > devices / tp / pp) {
          break;
        }
        list.push_back({dp, pp, tp, false});
        if (tp > 1) {
          list.push_back({dp, pp, tp, true});
        }
      }
    }
  }
  return list;
}

void for_each_choice(const Group& group, const model::Model& model, std::int64_t batch,
                     const std::function<void(const Choice& choice)>& visit, bool of_programs) {
  const auto blocks = static_cast<std::int64_t>(model.blocks().size());
  const bool light = strategy::has_light_results(model);
  const std::int64_t rows = batch / group.dp;
  const auto visit_all = [&](Choice choice) {
    const std::vector<Recompute> list = of_programs ? std::vector{Recompute::none, Recompute::full}
                                                    : recomputations(ceil_of(blocks, choice.pp * choice.chunks), light);
    for (const Recompute recompute : list) {
      choice.recompute = recompute;
      for (choice.zero = 0; choice.zero <= (choice.dp > 1 ? 3 : 0); ++choice.zero) {
        visit(choice);
      }
    }
  };
  for (const std::int64_t count : micro_batch_counts(rows, group.pp)) {
    const Choice choice{.dp = group.dp, .pp = group.pp, .tp = group.tp, .sp = group.sp, .micro_batches = count};
    if (group.pp == 1) {
      visit_all(choice);
      continue;
    }
    const std::vector<schedule::Schedule>& schedules = schedule::schedules();
    for (std::size_t s = 0; s < schedules.size(); ++s) {
      if (count == 1 && (schedules[s].name == "gpipe" || schedules[s].name == "1f1b")) {
        continue;  // with one micro-batch they are naive
      }
      for (const std::int64_t chunks : chunk_counts(schedules[s], group, blocks)) {
        Choice one = choice;
        one.schedule = static_cast<std::int64_t>(s);
        one.chunks = chunks;
        visit_all(one);
      }
    }
  }
}

}  // namespace baton::job
