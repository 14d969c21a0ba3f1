#include "baton/job/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "baton/base/error.h"
#include "baton/job/price.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"

namespace baton::job {
namespace {

/// The job on devices that hold anything.
JobSpec on_roomy_devices(JobSpec spec) {
  spec.memory = ample_memory;
  return spec;
}

std::string name_of(const strategy::Request& request) {
  std::string name = strategy::describe(request);
  name += request.layout.chunks > 0 ? fmt::format(", {} chunks", request.layout.chunks) : "";
  const std::string& recompute = strategy::recompute_names()[static_cast<std::size_t>(request.layout.recompute)];
  return name + (recompute == "none" ? "" : ", recompute " + recompute);
}

/// A job with one thing changed.
using Change = std::function<bool(JobSpec& spec)>;  // false: it is so already, or cannot be

bool doubled(std::optional<std::int64_t>& number, std::int64_t most) {
  const std::int64_t twice = 2 * number.value_or(1);
  number = twice <= most ? twice : number;
  return twice <= most;
}

/// Takes replicas away for twice as many of another axis.
bool instead_of_replicas(JobSpec& spec, std::optional<std::int64_t> JobSpec::*axis) {
  const std::int64_t dp = spec.dp.value_or(1);
  if (dp % 2 != 0 || !doubled(spec.*axis, 1 << 20)) {
    return false;
  }
  spec.dp = dp / 2;
  return true;
}

bool shard_more(JobSpec& spec, std::int64_t stage) {
  return spec.dp.value_or(1) > 1 && std::exchange(spec.zero, stage).value_or(0) < stage;
}

std::vector<Change> changes() {
  using strategy::Recompute;
  return {
      [](JobSpec& spec) {
        if (spec.recompute != Recompute::none || !spec.software.empty()) {
          return false;
        }
        spec.recompute = Recompute::light;
        return true;
      },
      [](JobSpec& spec) { return spec.software.empty() && std::exchange(spec.recompute, Recompute::all) != Recompute::all; },
      [](JobSpec& spec) { return std::exchange(spec.recompute, Recompute::full) != Recompute::full; },
      [](JobSpec& spec) { return spec.tp.value_or(1) > 1 && !std::exchange(spec.sp, true); },
      [](JobSpec& spec) { return doubled(spec.micro_batches, spec.batch / spec.dp.value_or(1)); },
      [](JobSpec& spec) { return shard_more(spec, 1); },
      [](JobSpec& spec) { return shard_more(spec, 2); },
      [](JobSpec& spec) { return shard_more(spec, 3); },
      [](JobSpec& spec) { return instead_of_replicas(spec, &JobSpec::tp); },
      [](JobSpec& spec) { return instead_of_replicas(spec, &JobSpec::pp); },
  };
}

/// The split with every axis written out, so that one can be changed. A strategy with a function of its own has none.
std::optional<JobSpec> written_out_split(const JobSpec& given) {
  const JobSpec spec = with_software(given);
  const model::Model model = make_model(spec);
  const cluster::Cluster cluster = imagine(spec);
  const strategy::Request request = make_request(spec, model, cluster, imagined_target());
  const strategy::NamedLayout* named = request.strategy.layout();
  if (named == nullptr || request.layout.grid) {
    return std::nullopt;
  }
  const strategy::Axes axes = *strategy::axes_of(request);
  JobSpec split = given;
  split.strategy = "product";
  split.dp = axes.dp;
  split.pp = axes.pp;
  split.tp = axes.tp;
  if (const std::int64_t zero = request.layout.zero.value_or(named->zero); zero > 0) {
    split.zero = zero;
  }
  if (axes.pp > 1 && split.schedule.empty()) {
    split.schedule = named->schedule;
  }
  split.micro_batches = schedule::micro_batches(*strategy::grid_of(request));
  return split;
}

}  // namespace

const DeviceMemory& Fit::fullest() const {
  return *std::max_element(devices.begin(), devices.end(),
                           [](const DeviceMemory& a, const DeviceMemory& b) { return a.peak < b.peak; });
}

Bytes Fit::needed() const {
  Bytes most = reserved.empty() ? fullest().peak : Bytes(0);
  for (const Reserved& one : reserved) {
    most = std::max(most, one.total);
  }
  return most;
}

namespace {

Fit laid_out(const JobSpec& given, Unfolded unfolded, std::optional<Bytes> room = {}) {
  if (!is_imagined(given)) {
    throw usage_error("fit needs a machine to fit the job into: give one with --cluster");
  }
  const JobSpec spec = with_software(given);
  const model::Model model = make_model(spec);
  const cluster::Cluster roomy = imagine(on_roomy_devices(spec));
  const strategy::Request request = make_request(spec, model, roomy, imagined_target());
  require_sense(spec, request);
  const std::size_t beyond = spec.fold == Fold::automatic ? 0 : fold_beyond(spec);
  const LaidOutPlan laid = lay_out(
      request, beyond,
      [&](const plan::Plan& plan) {
        plan::Limits limits;
        limits.memory.assign(plan.devices().size(), roomy.devices()[0].memory);
        return limits;
      },
      unfolded, room);
  Fit fit{.spec = given, .name = name_of(request), .devices = {}, .limit = imagine(spec).devices()[0].memory};
  const std::vector<MemoryByPurpose> held = memory_at_peak(laid.plan);
  for (std::size_t d = 0; d < held.size(); ++d) {
    fit.devices.push_back({.device = laid.plan.devices()[d], .copies = laid.copies(), .peak = laid.peak[d], .held = held[d]});
  }
  fit.reserved = reserved_memory(request, cost::software_by_name(spec.software), fit.limit);
  return fit;
}

}  // namespace

Fit fit(const JobSpec& spec, std::optional<Bytes> room) { return laid_out(spec, Unfolded::written_out, room); }

std::vector<Fit> smaller_splits(const Fit& too_large) {
  std::vector<Fit> list;
  const std::optional<JobSpec> split = written_out_split(too_large.spec);
  if (!split) {
    return list;
  }
  for (const Change& change : changes()) {
    JobSpec spec = *split;
    if (!change(spec)) {
      continue;
    }
    try {
      Fit one = fit(spec);
      // As many micro-batches as are needed, as long as each doubling takes off a tenth at least.
      std::int64_t before = too_large.needed().count;
      for (int more = 0; more < 5 && !one.fits() && spec.micro_batches != split->micro_batches; ++more) {
        if (10 * one.needed().count > 9 * before || !change(spec)) {
          break;
        }
        before = one.needed().count;
        one = fit(spec);
      }
      if (one.needed() < too_large.needed()) {
        list.push_back(std::move(one));
      }
    } catch (const Error&) {
      continue;  // that change is not possible here
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const Fit& a, const Fit& b) { return a.fits() > b.fits(); });
  return list;
}

namespace {

/// A split that may fit, and its price.
struct Candidate {
  Choice choice;
  Price price;
};

/// By formula. Unlike in a search, all of a step is compiled, however many micro-batches it has.
Candidate priced(Pricer& pricer, const Choice& choice, std::int64_t batch) {
  Candidate one{choice, pricer.price(choice)};
  if (const auto shorter = shorter_steps(choice, batch)) {
    const double longer = static_cast<double>(choice.micro_batches) / static_cast<double>(shorter->first + shorter->second);
    one.price.tasks *= longer;
    one.price.all_tasks *= longer;
  }
  return one;
}

/// The fastest and the smallest split that fit by formula, for each division of the devices. Counts in `list` the splits that it
/// looks at.
std::vector<Candidate> candidates_of(const strategy::Request& request, Pricer& pricer, bool of_programs, FitList& list) {
  constexpr double most_tasks_of_one = 5e5;
  const auto devices = static_cast<std::int64_t>(request.cluster.size());
  const auto limit = static_cast<double>(list.limit.count);
  const std::int64_t batch = request.step.global_batch;
  std::vector<Candidate> candidates;
  for (const Group& group : groups_of(request.model, batch, devices)) {
    if (group.devices() != devices) {
      continue;
    }
    if (pricer.refused(group.tp, group.sp)) {
      ++list.considered;
      ++list.refused;
      continue;
    }
    std::optional<Candidate> fastest;
    std::optional<Candidate> smallest;
    for_each_choice(
        group, request.model, batch,
        [&](const Choice& choice) {
          ++list.considered;
          if (const double least = pricer.least_memory(choice); least > limit) {
            const Bytes bytes(static_cast<std::int64_t>(least));
            list.least_impossible = list.impossible == 0 ? bytes : std::min(list.least_impossible, bytes);
            ++list.impossible;
            return;
          }
          const Candidate one = priced(pricer, choice, batch);
          const bool likely = one.price.memory <= limit;
          list.likely += likely;
          if (one.price.tasks > most_tasks_of_one) {
            return;
          }
          if (likely && (!fastest || one.price.time < fastest->price.time)) {
            fastest = one;
          }
          if (!smallest || std::pair(one.price.memory, one.price.time) < std::pair(smallest->price.memory, smallest->price.time)) {
            smallest = one;
          }
        },
        of_programs);
    for (const std::optional<Candidate>& one : {fastest, smallest}) {
      if (one) {
        candidates.push_back(*one);
      }
    }
  }
  return candidates;
}

/// The fastest by formula and the smallest, side by side.
std::vector<std::array<const Candidate*, 2>> in_turns(const std::vector<Candidate>& candidates, double limit) {
  std::vector<const Candidate*> by_time;
  std::vector<const Candidate*> by_memory;
  for (const Candidate& one : candidates) {
    by_time.push_back(&one);
    by_memory.push_back(&one);
  }
  std::stable_sort(by_time.begin(), by_time.end(), [&](const Candidate* a, const Candidate* b) {
    return std::pair(a->price.memory > limit, a->price.time) < std::pair(b->price.memory > limit, b->price.time);
  });
  std::stable_sort(by_memory.begin(), by_memory.end(),
                   [](const Candidate* a, const Candidate* b) { return a->price.memory < b->price.memory; });
  std::vector<std::array<const Candidate*, 2>> turns;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    turns.push_back({by_time[i], by_memory[i]});
  }
  return turns;
}

/// The most plans that are laid out, and the most tasks that these may have together.
constexpr std::size_t most_laid_out = 20;
constexpr double most_tasks = 2e6;

/// Lays out the plan of a candidate and adds it to the list.
void lay_out_candidate(const Candidate& one, const JobSpec& given, FitList& list) {
  try {
    Fit laid = laid_out(spec_of(one.choice, given), one.price.all_tasks > most_tasks ? Unfolded::refused : Unfolded::written_out);
    ++list.laid_out;
    laid.estimated_time = one.price.time;
    if (laid.fits()) {
      list.smallest.push_back(laid);
      list.fastest.push_back(std::move(laid));
    } else if (!list.nearest || laid.needed() < list.nearest->needed()) {
      list.nearest = std::move(laid);
    }
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::usage) {
      throw;
    }
    ++list.refused;
  }
}

}  // namespace

FitList fitting_splits(const JobSpec& given, const std::function<bool(std::size_t done, std::size_t total)>& go_on) {
  const JobSpec spec = with_software(given);
  const model::Model model = make_model(spec);
  const cluster::Cluster cluster = imagine(spec);
  const strategy::Request request = make_request(spec, model, cluster, imagined_target());
  require_sense(spec, request);
  FitList list;
  list.limit = cluster.devices()[0].memory;
  Pricer pricer(request, spec.what_if, cost::software_by_name(spec.software));
  const std::vector<Candidate> candidates = candidates_of(request, pricer, !spec.software.empty(), list);
  const std::vector<std::array<const Candidate*, 2>> turns = in_turns(candidates, static_cast<double>(list.limit.count));
  const std::size_t total = std::min(most_laid_out, 2 * candidates.size());
  double tasks = 0;
  std::vector<Choice> done;
  bool goes_on = true;
  for (std::size_t i = 0; goes_on && i < turns.size() && list.laid_out < most_laid_out && tasks < most_tasks; ++i) {
    for (const Candidate* one : turns[i]) {
      if (std::find(done.begin(), done.end(), one->choice) != done.end()) {
        continue;
      }
      done.push_back(one->choice);
      if (go_on && !go_on(list.laid_out, total)) {
        goes_on = false;
        break;
      }
      tasks += one->price.tasks;
      lay_out_candidate(*one, given, list);
    }
  }
  std::stable_sort(list.smallest.begin(), list.smallest.end(), [](const Fit& a, const Fit& b) { return a.needed() < b.needed(); });
  std::stable_sort(list.fastest.begin(), list.fastest.end(),
                   [](const Fit& a, const Fit& b) { return a.estimated_time < b.estimated_time; });
  if (!list.smallest.empty()) {
    list.nearest.reset();
  }
  return list;
}

}  // namespace baton::job
