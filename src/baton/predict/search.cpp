#include "baton/predict/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <map>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/findings/median.h"
#include "baton/job/choice.h"
#include "baton/job/keys.h"
#include "baton/job/price.h"
#include "baton/lab/rows.h"
#include "baton/training/simulation.h"

namespace baton::predict {
namespace {

using job::Choice;
using job::Price;

/// A split that may be simulated, its price, and its group.
struct Candidate {
  Choice choice;
  Price price;
  std::size_t group = 0;
  bool done = false;
};

bool is_plain_device(const Choice& choice) { return choice == Choice{}; }

/// The results of a group's simulated candidates, compared with their prices.
struct Known {
  bool simulated = false;
  double time = 1;                                    // times the price
  std::map<strategy::Recompute, double> memory = {};  // likewise, by recomputation
};

/// All candidates, of which only the cheapest of each group are kept if there are many.
class Candidates {
 public:
  Candidates(const training::Job& job, const SearchProgress& progress, SearchResult& result)
      : devices_(static_cast<std::int64_t>(job.cluster().size())), memory_(smallest_memory(job)) {
    job::Pricer pricer(job.request(), job.what_if(), job.software(), job.overrides().duration);
    const std::int64_t batch = job.request().step.global_batch;
    const std::vector<job::Group> groups = job::groups_of(job.model(), batch, devices_);
    for (const job::Group& group : groups) {
      if (progress && !progress(0, most_simulated)) {
        result.complete = false;
        return;
      }
      throw_if_stop_requested();
      if (const std::optional<std::string> why = pricer.refused(group.tp, group.sp)) {
        ++result.considered;
        ++result.refused;
        ++result.reasons[*why];
        continue;
      }
      std::vector<Candidate> list;
      job::for_each_choice(
          group, job.model(), batch,
          [&](const Choice& choice) {
            ++result.considered;
            try {
              if (const double least = pricer.least_memory(choice); least > memory_ && !is_plain_device(choice)) {
                result.note_too_large(least);
                return;
              }
              if (const Price price = pricer.price(choice); price.tasks > most_tasks_of_one && !is_plain_device(choice)) {
                ++result.too_long;
                every_one_ = false;
              } else {
                list.push_back({choice, price, known_.size()});
              }
            } catch (const Error& error) {
              ++result.refused;
              ++result.reasons[error.what()];
            }
          },
          !job.spec().software.empty());
      known_.emplace_back();
      constexpr std::size_t most_of_group = 64;
      if (groups.size() > 400 && list.size() > most_of_group) {
        std::stable_sort(list.begin(), list.end(), [&](const Candidate& a, const Candidate& b) { return key(a) < key(b); });
        result.left_out += list.size() - most_of_group;
        list.resize(most_of_group);
        every_one_ = false;
      }
      all_.insert(all_.end(), list.begin(), list.end());
    }
    every_one_ = every_one_ && all_.size() <= 40'000;
  }

  static constexpr std::size_t most_simulated = 50;
  static constexpr double most_tasks_of_one = 3e6;  // tasks of a plan that is compiled: that takes 15 s
  static constexpr double most_tasks = 20e6;        // tasks of all plans together: 75 s on two cores

  /// True if all that could be simulated are here.
  bool every_one() const { return every_one_; }
  std::vector<Candidate>& all() { return all_; }

  /// One device without micro-batches or recomputation, with which every split is compared.
  Candidate* plain_device() {
    const auto found = std::find_if(all_.begin(), all_.end(), [](const Candidate& one) { return is_plain_device(one.choice); });
    return found == all_.end() ? nullptr : &*found;
  }

  /// The most promising candidate that is not done and whose plan has at most `most_tasks` tasks, by prices that are corrected with
  /// simulated times; nullptr if there is none. `among` restricts the choice: any candidate; only groups not simulated yet; only
  /// such groups that use all devices.
  enum class Among { any, new_group, new_group_of_all_devices };
  Candidate* best(Among among, double most_tasks) {
    Candidate* best = nullptr;
    for (Candidate& one : all_) {
      const bool known = known_[one.group].simulated;
      const bool wanted = one.price.tasks <= most_tasks &&
                          (among == Among::any || (!known && (among == Among::new_group || one.choice.devices() == devices_)));
      if (wanted && !one.done && (best == nullptr || key(one) < key(*best))) {
        best = &one;
      }
    }
    return best;
  }
  /// The candidate with the least memory by its price, with at most `most_tasks` tasks. Plans that cannot be folded are often the
  /// smallest; they may have a sixteenth of that number.
  Candidate* smallest(double most_tasks) {
    Candidate* best = nullptr;
    for (Candidate& one : all_) {
      const bool folded = one.price.tasks < one.price.all_tasks;
      if (!one.done && one.price.tasks <= (folded ? most_tasks : most_tasks / 16) &&
          (best == nullptr || one.price.memory < best->price.memory)) {
        best = &one;
      }
    }
    return best;
  }

  void pick(Candidate& one) {
    one.done = true;
    if (Known& known = known_[one.group]; !known.simulated) {
      known.simulated = true;
      known.time = usual_;
    }
  }
  void learn(const Candidate& one, const RankedSplit& found) {
    Known& known = known_[one.group];
    known.simulated = true;
    known.time = static_cast<double>(found.step.count) / std::max(1.0, one.price.time);
    const double memory = static_cast<double>(found.memory.count) / std::max(1.0, one.price.memory);
    known.memory[one.choice.recompute] = memory;
    memory_of_schedule_[{one.choice.schedule, one.choice.recompute}] = memory;
    ratios_.push_back(known.time);
    usual_ = findings::median(ratios_);
  }

  double memory() const { return memory_; }

 private:
  static double smallest_memory(const training::Job& job) {
    const std::vector<cluster::Device>& devices = job.cluster().devices();
    return static_cast<double>(
        std::min_element(devices.begin(), devices.end(), [](const cluster::Device& a, const cluster::Device& b) {
          return a.memory < b.memory;
        })->memory.count);
  }

  /// The order of candidates: those that fit come first, and of these the fastest.
  std::pair<bool, double> key(const Candidate& one) const {
    const Known& known = one.group < known_.size() ? known_[one.group] : unknown_;
    const auto memory = known.memory.find(one.choice.recompute);
    const auto alike = memory_of_schedule_.find({one.choice.schedule, one.choice.recompute});
    const double factor = memory != known.memory.end() ? memory->second : alike != memory_of_schedule_.end() ? alike->second : 1;
    const bool fits = one.price.memory * factor <= memory_;
    return {!fits, one.price.time * (known.simulated ? known.time : usual_)};
  }

  std::int64_t devices_;
  double memory_;
  bool every_one_ = true;
  std::vector<Candidate> all_;
  std::vector<Known> known_;  // by group
  Known unknown_;
  /// By schedule and recomputation: how much more memory the last one simulated took than its price, for groups not known yet.
  std::map<std::pair<std::int64_t, strategy::Recompute>, double> memory_of_schedule_;
  std::vector<double> ratios_;
  double usual_ = 1;
};

/// On devices that hold anything: afterwards it is compared with the memory that is there.
RankedSplit simulate_all(const job::JobSpec& shown, const cluster::Machine& machine, const training::JobOverrides& overrides,
                         job::Unfolded unfolded) {
  job::JobSpec spec = shown;
  spec.memory = job::ample_memory;
  const training::Job job(spec, machine, nullptr, overrides);
  const auto limits = [&](const plan::Plan& plan) { return job.limits(plan); };
  const job::LaidOutPlan laid = job::lay_out(job.request(), job.fold_beyond(), limits, unfolded);
  throw_if_stop_requested();
  const trace::StepTrace step = training::Simulation(job, laid.plan, laid.stands_for).step();
  job::Study study(laid.plan, laid.copies(), trace::Origin::simulated);
  study.add(step);
  std::string name = strategy::describe(job.request());
  name += spec.chunks ? fmt::format(", {} chunks", *spec.chunks) : "";
  name += spec.recompute == strategy::Recompute::none ? "" : fmt::format(", recompute {}", strategy::to_text(spec.recompute));
  return {.spec = shown,
          .name = std::move(name),
          .step = step.duration,
          .memory = *std::max_element(laid.peak.begin(), laid.peak.end()),
          .time = study.mean_time(step.duration)};
}

template <typename T>
T extended(T at_few, T at_more, double factor) {
  return T(at_more.count + static_cast<std::int64_t>(static_cast<double>(at_more.count - at_few.count) * factor));
}

/// For a step of very many micro-batches, simulates two with fewer: from one full pipeline on each further one adds the same.
RankedSplit simulate(const Candidate& candidate, const job::JobSpec& shared, const cluster::Machine& machine,
                     const training::JobOverrides& overrides) {
  const Choice& choice = candidate.choice;
  job::JobSpec spec = job::spec_of(choice, shared);
  spec.fold = job::Fold::always;
  const auto shorter = job::shorter_steps(choice, shared.batch);
  const auto unfolded = candidate.price.all_tasks > Candidates::most_tasks_of_one ? job::Unfolded::refused
                                                                                  : job::Unfolded::written_out;
  if (!shorter) {
    return simulate_all(spec, machine, overrides, unfolded);
  }
  const auto step_of = [&](std::int64_t count) {
    job::JobSpec fewer = spec;
    fewer.micro_batches = count;
    fewer.batch = shared.batch / choice.micro_batches * count;
    return simulate_all(fewer, machine, overrides, unfolded);
  };
  const RankedSplit few = step_of(shorter->first);
  RankedSplit found = step_of(shorter->second);
  const double factor = static_cast<double>(choice.micro_batches - shorter->second) /
                        static_cast<double>(shorter->second - shorter->first);
  found.spec = spec;
  const std::string count = fmt::format("{} micro-batches", shorter->second);
  if (const std::size_t at = found.name.find(count); at != std::string::npos) {
    found.name.replace(at, count.size(), fmt::format("{} micro-batches", choice.micro_batches));
  }
  found.step = extended(few.step, found.step, factor);
  found.memory = std::max(found.memory, extended(few.memory, found.memory, factor));
  found.time.busy = extended(few.time.busy, found.time.busy, factor);
  found.time.idle = extended(few.time.idle, found.time.idle, factor);
  found.time.exposed = extended(few.time.exposed, found.time.exposed, factor);
  found.time.waiting = extended(few.time.waiting, found.time.waiting, factor);
  found.time.delayed = extended(few.time.delayed, found.time.delayed, factor);
  found.from_shorter_steps = true;
  return found;
}

/// True if the second is the first with recomputation, which here saves nothing: a stage of one block frees nothing.
bool same_but_recomputing(const RankedSplit& plain, const RankedSplit& recomputing) {
  job::JobSpec spec = recomputing.spec;
  spec.recompute = strategy::Recompute::none;
  return plain.spec == spec && recomputing.spec.recompute != strategy::Recompute::none && recomputing.memory >= plain.memory &&
         recomputing.step >= plain.step;
}

/// Refuses fields that the search chooses itself.
void refuse_choices(const job::JobSpec& spec) {
  for (const std::string& name : fields_a_search_chooses()) {
    for (const job::JobField& field : training::job_fields()) {
      if (field.name == name && field.given(spec)) {
        throw usage_error("a search chooses --{} itself: leave it out, or give the split to baton simulate", name);
      }
    }
  }
}

/// Simulates candidates, two at a time, and keeps their results.
class Trials {
 public:
  Trials(const job::JobSpec& shared, const cluster::Machine& machine, const training::JobOverrides& overrides,
         Candidates& candidates, const SearchProgress& progress, SearchResult& result)
      : shared_(shared), machine_(machine), overrides_(overrides), candidates_(candidates), progress_(progress), result_(result) {}

  /// Returns false if a signal asked to stop.
  bool run(const std::vector<Candidate*>& list, std::size_t total) {
    if (progress_ && !progress_(result_.tried, std::max(total, result_.tried + list.size()))) {
      result_.complete = false;
      return false;
    }
    std::vector<std::future<RankedSplit>> futures;
    const auto policy = overrides_.duration ? std::launch::deferred
                                            : std::launch::async;  // a user's own code may not expect threads
    for (Candidate* one : list) {
      one->done = true;
      futures.push_back(std::async(policy, [this, one] { return simulate(*one, shared_, machine_, overrides_); }));
    }
    bool stopped = false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      try {
        take(*list[i], futures[i].get());
      } catch (const Stopped&) {
        stopped = true;
      } catch (const Error& error) {
        ++result_.tried;
        ++result_.refused;
        ++result_.reasons[error.what()];
      }
    }
    result_.complete = result_.complete && !stopped;
    return !stopped;
  }

  std::size_t fitting() const { return result_.ranked.size(); }
  double work() const { return work_; }
  double fastest() const { return fastest_; }

 private:
  void take(const Candidate& one, RankedSplit found) {
    found.choice = one.choice;
    ++result_.tried;
    work_ += one.price.tasks;
    candidates_.learn(one, found);
    if (is_plain_device(one.choice)) {
      result_.one_device = found;
    }
    // The memory of a step that was extrapolated from shorter ones may be a little larger in fact.
    const double needed = static_cast<double>(found.memory.count) * (found.from_shorter_steps ? 1.02 : 1);
    if (needed > candidates_.memory()) {
      result_.note_too_large(needed);
    } else {
      fastest_ = fastest_ == 0 ? static_cast<double>(found.step.count) : std::min(fastest_, static_cast<double>(found.step.count));
      result_.ranked.push_back(std::move(found));
    }
  }

  const job::JobSpec& shared_;
  const cluster::Machine& machine_;
  const training::JobOverrides& overrides_;
  Candidates& candidates_;
  const SearchProgress& progress_;
  SearchResult& result_;
  double work_ = 0;
  double fastest_ = 0;  // nanoseconds; 0: nothing fits yet
};

/// The best of different groups first, then the best by prices that are corrected with the simulated times.
void try_the_best(Candidates& candidates, Trials& trials, SearchResult& result) {
  using Among = Candidates::Among;
  constexpr std::size_t most_tried = 2 * Candidates::most_simulated;
  constexpr std::size_t at_once = 2;
  constexpr std::size_t few_large = 4;
  while (trials.fitting() < Candidates::most_simulated && result.tried < most_tried && trials.work() < Candidates::most_tasks) {
    // A few may be large; then each gets its share of the tasks that are left, so that as many are simulated.
    const auto to_come = static_cast<double>(
        std::max<std::size_t>(1, Candidates::most_simulated - std::min(Candidates::most_simulated, result.tried)));
    const double share = result.tried < few_large ? Candidates::most_tasks_of_one
                                                  : 1.5 * (Candidates::most_tasks - trials.work()) / to_come;
    std::vector<Candidate*> list;
    for (std::size_t i = 0; i < at_once; ++i) {
      const std::size_t n = result.tried + i;
      Candidate* one = n == 0        ? candidates.plain_device()
                       : n % 10 == 9 ? candidates.smallest(share)
                       : n < 10      ? candidates.best(Among::new_group_of_all_devices, share)
                       : n < 20      ? candidates.best(Among::new_group, share)
                                     : nullptr;
      one = one == nullptr ? candidates.best(Among::any, share) : one;
      if (one == nullptr) {
        break;
      }
      candidates.pick(*one);
      list.push_back(one);
    }
    if (list.empty() || !trials.run(list, Candidates::most_simulated)) {
      return;
    }
  }
}

/// If plans are few and small, simulates all that could be faster than the fastest.
void try_the_rest(Candidates& candidates, Trials& trials, SearchResult& result) {
  constexpr double most_tasks = 6e6;
  std::vector<Candidate*> rest;
  for (Candidate& one : candidates.all()) {
    if (!one.done) {
      rest.push_back(&one);
    }
  }
  std::stable_sort(rest.begin(), rest.end(),
                   [](const Candidate* a, const Candidate* b) { return a->price.least_time < b->price.least_time; });
  const auto cannot_win = [&](const Candidate& one) { return trials.fastest() > 0 && one.price.least_time >= trials.fastest(); };
  std::size_t next = 0;
  while (next < rest.size() && !cannot_win(*rest[next]) && candidates.every_one() && trials.work() < most_tasks) {
    std::vector<Candidate*> list;
    for (; next < rest.size() && list.size() < 2 && !cannot_win(*rest[next]); ++next) {
      list.push_back(rest[next]);
    }
    if (!trials.run(list, result.tried + rest.size() - next)) {
      return;
    }
  }
  for (; next < rest.size(); ++next) {
    ++(cannot_win(*rest[next]) ? result.pruned : result.left_out);
  }
}

}  // namespace

const std::vector<std::string>& fields_a_search_chooses() {
  static const std::vector<std::string> names{
      "strategy", "dp", "pp", "tp", "sp", "zero", "schedule", "chunks", "split", "micro-batches", "recompute", "fold"};
  return names;
}

void SearchResult::note_too_large(double bytes) {
  const Bytes size(static_cast<std::int64_t>(bytes));
  least_too_large = too_large == 0 ? size : std::min(least_too_large, size);
  ++too_large;
}

SearchResult search(const job::JobSpec& shared, const cluster::Machine& machine, const SearchProgress& progress,
                    const training::JobOverrides& overrides) {
  refuse_choices(shared);
  if (overrides.schedule) {
    throw usage_error("a search chooses the schedule itself: give yours to a simulation");
  }
  const training::Job job(shared, machine, nullptr, overrides);
  if (!job.imagined()) {
    throw usage_error("a search simulates hundreds of splits: give it a cluster with --cluster");
  }
  training::require_rates(job);
  SearchResult result;
  result.device_memory = job.cluster().devices()[0].memory;
  result.devices = static_cast<std::int64_t>(job.cluster().size());
  try {
    Candidates candidates(job, progress, result);
    Trials trials(shared, machine, overrides, candidates, progress, result);
    if (result.complete) {
      try_the_best(candidates, trials, result);
    }
    if (result.complete) {
      try_the_rest(candidates, trials, result);
    }
  } catch (const Stopped&) {
    result.complete = false;
  }
  const std::vector<RankedSplit> all = result.ranked;
  std::erase_if(result.ranked, [&](const RankedSplit& one) {
    return std::any_of(all.begin(), all.end(), [&](const RankedSplit& other) { return same_but_recomputing(other, one); });
  });
  std::stable_sort(result.ranked.begin(), result.ranked.end(), [](const RankedSplit& a, const RankedSplit& b) {
    return std::pair(a.step, a.memory) < std::pair(b.step, b.memory);
  });
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (result.frontier.empty() || result.ranked[i].memory < result.ranked[result.frontier.back()].memory) {
      result.frontier.push_back(i);
    }
  }
  return result;
}

std::string against_all_devices(const SearchResult& result) {
  if (result.ranked.empty() || result.devices == 1) {
    return "";
  }
  const auto takes_all = [&](const RankedSplit& one) { return one.choice.devices() == result.devices; };
  const RankedSplit& best = result.ranked[0];
  const auto all = std::find_if(result.ranked.begin(), result.ranked.end(), takes_all);
  if (all == result.ranked.end()) {
    return fmt::format("No split over all {} devices that was simulated fits; {} devices are fastest.", result.devices,
                       best.choice.devices());
  }
  if (takes_all(best)) {
    return fmt::format("No smaller number of devices that was simulated is faster than all {}.", result.devices);
  }
  return fmt::format("{} faster than all {}: the fastest split of all, {}, takes {}, {} longer.",
                     best.choice.devices() == 1 ? "One device is" : fmt::format("{} devices are", best.choice.devices()),
                     result.devices, all->name, to_text(all->step),
                     lab::percent(static_cast<double>((all->step - best.step).count) / static_cast<double>(best.step.count)));
}

std::string against_one_device(const SearchResult& result) {
  if (!result.one_device || result.ranked.empty()) {
    return "";
  }
  const RankedSplit& alone = *result.one_device;
  const RankedSplit& best = result.ranked[0];
  if (alone.memory > result.device_memory) {
    return fmt::format("One device cannot hold the job: it needs {} and has {}.", to_text(alone.memory),
                       to_text(result.device_memory));
  }
  const auto several = [](const RankedSplit& one) { return one.choice.devices() > 1; };
  const auto split = std::find_if(result.ranked.begin(), result.ranked.end(), several);
  if (split == result.ranked.end()) {
    return fmt::format("No split over several devices works; one device takes {}.", to_text(alone.step));
  }
  const double ratio = static_cast<double>(alone.step.count) / static_cast<double>(split->step.count);
  return several(best) && ratio > 1
             ? fmt::format("{} is {:.2f} times as fast as one device, which takes {}.", split->name, ratio, to_text(alone.step))
             : fmt::format("No split beats one device, which takes {}: the fastest of several devices, {}, takes {}.",
                           to_text(alone.step), split->name, to_text(split->step));
}

namespace {

/// Two times in one unit, with enough digits to differ.
std::pair<std::string, std::string> told_apart(Nanoseconds a, Nanoseconds b) {
  if (std::pair texts{to_text(a), to_text(b)}; texts.first != texts.second) {
    return texts;
  }
  const auto [unit, name] = a.count >= 1'000'000'000 ? std::pair(1e9, "s")
                            : a.count >= 1'000'000   ? std::pair(1e6, "ms")
                            : a.count >= 1'000       ? std::pair(1e3, "µs")
                                                     : std::pair(1.0, "ns");
  std::pair<std::string, std::string> texts;
  for (int digits = 2; digits <= 9 && texts.first == texts.second; ++digits) {
    texts = {fmt::format("{:.{}f} {}", static_cast<double>(a.count) / unit, digits, name),
             fmt::format("{:.{}f} {}", static_cast<double>(b.count) / unit, digits, name)};
  }
  return texts;
}

}  // namespace

job::Record to_record(const RankedSplit& found) {
  namespace key = job::key;
  return {key::name(found.name),
          key::time_per_step_ns(found.step),
          key::peak_bytes(found.memory),
          key::compute_ns(found.time.busy),
          key::exposed_ns(found.time.exposed),
          key::waiting_ns(found.time.waiting),
          key::rest_ns(found.time.rest())};
}

std::string why_not(const RankedSplit& best, const RankedSplit& second) {
  struct TimeShare {
    std::string_view name;
    std::int64_t more;
  };
  const std::array<TimeShare, 4> shares{{{"computing", (second.time.busy - best.time.busy).count},
                                         {"exposed communication", (second.time.exposed - best.time.exposed).count},
                                         {"waiting for other devices", (second.time.waiting - best.time.waiting).count},
                                         {"having nothing to do", (second.time.rest() - best.time.rest()).count}}};
  const double step = static_cast<double>(best.step.count);
  if (second.step == best.step) {
    return fmt::format("{} takes as long.", second.name);
  }
  const auto [longer, shorter] = told_apart(second.step, best.step);
  std::string text = fmt::format("{} takes {} longer ({} for {})", second.name,
                                 lab::percent(static_cast<double>((second.step - best.step).count) / step), longer, shorter);
  std::string_view joint = ": of the faster step, ";
  for (const TimeShare& one : shares) {
    const double share = static_cast<double>(one.more) / step;
    if (std::abs(share) >= 0.0005) {  // a share that is shown as zero is not named
      text += fmt::format("{}{} {} goes into {}", joint, lab::percent(std::abs(share)), share > 0 ? "more" : "less", one.name);
      joint = ", ";
    }
  }
  return text + " (the mean over devices).";
}

}  // namespace baton::predict
