#include "baton/job/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "baton/base/error.h"
#include "baton/job/price.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"

namespace baton::job {
namespace {

/// The words as they are simulated, on devices that hold anything.
JobWords on_roomy_devices(JobWords words) {
  words.memory = "1024T";
  return words;
}

std::string name_of(const strategy::Request& request) {
  std::string name = strategy::describe(request);
  name += request.layout.chunks > 0 ? fmt::format(", {} chunks", request.layout.chunks) : "";
  const std::string& recompute = strategy::recompute_names()[static_cast<std::size_t>(request.layout.recompute)];
  return name + (recompute == "none" ? "" : ", recompute " + recompute);
}

/// Words with one thing changed.
using Change = std::function<bool(JobWords& words)>;  // false: it is so already, or cannot be

bool doubled(std::string& word, std::int64_t most) {
  const std::int64_t count = word.empty() ? 1 : parse_integer(word, "a number of the split", 1, 1 << 20);
  if (2 * count > most) {
    return false;
  }
  word = fmt::format("{}", 2 * count);
  return true;
}

/// Takes replicas away for twice as many of another axis.
bool instead_of_replicas(JobWords& words, std::string JobWords::*axis) {
  const std::int64_t dp = words.dp.empty() ? 1 : parse_integer(words.dp, "--dp", 1, 1 << 20);
  if (dp % 2 != 0 || !doubled(words.*axis, 1 << 20)) {
    return false;
  }
  words.dp = fmt::format("{}", dp / 2);
  return true;
}

std::vector<Change> changes() {
  return {
      [](JobWords& words) { return std::exchange(words.recompute, "full") != "full"; },
      [](JobWords& words) { return !words.tp.empty() && words.tp != "1" && std::exchange(words.sp, "on") != "on"; },
      [](JobWords& words) {
        const std::int64_t dp = words.dp.empty() ? 1 : parse_integer(words.dp, "--dp", 1, 1 << 20);
        return doubled(words.micro_batches, parse_integer(words.batch, "--batch", 1, 1 << 30) / dp);
      },
      [](JobWords& words) { return words.dp != "1" && !words.dp.empty() && std::exchange(words.zero, "1") < "1"; },
      [](JobWords& words) { return words.dp != "1" && !words.dp.empty() && std::exchange(words.zero, "2") < "2"; },
      [](JobWords& words) { return words.dp != "1" && !words.dp.empty() && std::exchange(words.zero, "3") < "3"; },
      [](JobWords& words) { return instead_of_replicas(words, &JobWords::tp); },
      [](JobWords& words) { return instead_of_replicas(words, &JobWords::pp); },
  };
}

/// The split with every axis written out, so that one can be changed. A strategy with a function of its own has none.
std::optional<JobWords> written_out_split(const JobWords& given) {
  const JobWords words = with_software(given);
  const model::Model model = make_model(words);
  const cluster::Cluster cluster = imagine(words);
  const strategy::Request request = make_request(words, model, cluster, imagined_target());
  const strategy::NamedLayout* named = strategy::strategy_by_name(request.strategy).layout();
  if (named == nullptr || request.layout.grid) {
    return std::nullopt;
  }
  const strategy::Axes axes = strategy::axes_of(request, *named);
  JobWords split = given;
  split.strategy = "product";
  split.dp = fmt::format("{}", axes.dp);
  split.pp = fmt::format("{}", axes.pp);
  split.tp = fmt::format("{}", axes.tp);
  if (const std::int64_t zero = request.layout.zero.value_or(named->zero); zero > 0) {
    split.zero = fmt::format("{}", zero);
  }
  if (axes.pp > 1 && split.schedule.empty()) {
    split.schedule = named->schedule;
  }
  split.micro_batches = fmt::format("{}", schedule::micro_batches(strategy::grid_of(request, *named)));
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

Fit laid_out(const JobWords& given, Unfolded unfolded) {
  if (!is_imagined(given)) {
    throw usage_error("whether a job fits is asked of a cluster: give it one with --cluster");
  }
  const JobWords words = with_software(given);
  const model::Model model = make_model(words);
  const cluster::Cluster roomy = imagine(on_roomy_devices(words));
  const strategy::Request request = make_request(words, model, roomy, imagined_target());
  require_sense(words, request);
  const std::size_t beyond = words.fold == JobWords{}.fold ? 0 : fold_beyond(words);
  const Laid laid = lay_out(
      request, strategy::strategy_by_name(request.strategy), beyond,
      [&](const plan::Plan& plan) {
        plan::Limits limits;
        limits.memory.assign(plan.devices().size(), roomy.devices()[0].memory);
        return limits;
      },
      unfolded);
  Fit fit{.words = given, .name = name_of(request), .devices = {}, .limit = imagine(words).devices()[0].memory};
  const std::vector<Held> held = held_at_the_fullest(laid.plan);
  for (std::size_t d = 0; d < held.size(); ++d) {
    fit.devices.push_back({.device = laid.plan.devices()[d], .copies = laid.copies(), .peak = laid.peak[d], .held = held[d]});
  }
  fit.reserved = reserved_memory(request, cost::software_by_name(words.software));
  return fit;
}

}  // namespace

Fit fit(const JobWords& words) { return laid_out(words, Unfolded::written_out); }

std::vector<Fit> smaller_splits(const Fit& too_large) {
  std::vector<Fit> list;
  const std::optional<JobWords> split = written_out_split(too_large.words);
  if (!split) {
    return list;
  }
  for (const Change& change : changes()) {
    JobWords words = *split;
    if (!change(words)) {
      continue;
    }
    try {
      Fit one = fit(words);
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

FitList fitting_splits(const JobWords& given, const std::function<bool(std::size_t done, std::size_t total)>& go_on) {
  const JobWords words = with_software(given);
  const model::Model model = make_model(words);
  const cluster::Cluster cluster = imagine(words);
  const strategy::Request request = make_request(words, model, cluster, imagined_target());
  require_sense(words, request);
  const auto devices = static_cast<std::int64_t>(cluster.size());
  constexpr double most_tasks_of_one = 5e5;
  FitList list;
  list.limit = cluster.devices()[0].memory;
  const auto limit = static_cast<double>(list.limit.count);

  struct Candidate {
    Choice choice;
    Price price;
  };
  std::vector<Candidate> candidates;  // of each division of the devices the fastest and the smallest that fit by formula
  Pricer pricer(request, parse_what_if(words.what_if), cost::software_by_name(words.software));
  for (const Group& group : groups_of(model, request.step.global_batch, devices)) {
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
    for_each_choice(group, model, request.step.global_batch, [&](const Choice& choice) {
      ++list.considered;
      if (pricer.least_memory(choice) > limit) {
        ++list.impossible;
        return;
      }
      Candidate one{choice, pricer.price(choice)};
      if (const auto shorter = shorter_steps(choice, request.step.global_batch)) {  // here all of it is compiled
        const double longer = static_cast<double>(choice.micro_batches) / static_cast<double>(shorter->first + shorter->second);
        one.price.tasks *= longer;
        one.price.all_tasks *= longer;
      }
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
    });
    for (const std::optional<Candidate>& one : {fastest, smallest}) {
      if (one) {
        candidates.push_back(*one);
      }
    }
  }
  // The fastest by formula and the smallest, in turns, until they are many or their plans large.
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
  constexpr std::size_t most = 20;
  constexpr double most_tasks = 2e6;
  double tasks = 0;
  std::vector<Choice> done;
  for (std::size_t i = 0; i < candidates.size() && list.laid_out < most && tasks < most_tasks; ++i) {
    for (const Candidate* one : {by_time[i], by_memory[i]}) {
      if (std::find(done.begin(), done.end(), one->choice) != done.end()) {
        continue;
      }
      done.push_back(one->choice);
      if (go_on && !go_on(list.laid_out, std::min(most, 2 * candidates.size()))) {
        i = candidates.size();
        break;
      }
      tasks += one->price.tasks;
      try {
        Fit laid = laid_out(words_of(one->choice, given),
                            one->price.all_tasks > most_tasks ? Unfolded::refused : Unfolded::written_out);
        ++list.laid_out;
        laid.estimated_time = one->price.time;
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
