#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

constexpr std::int64_t all_steps = 30;
constexpr std::int64_t dropped = 5;

/// One run of 30 steps, the first 5 dropped. Keeps the time of each step in addition to the values of every training measurement.
class EveryStep final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  void round(Nanoseconds) override {
    if (training().timed().empty()) {
      run(all_steps, dropped);
    }
  }

  bool once() const override { return true; }  // the task is one run

  Record record() const override {
    Record record = TrainMeasurement::record();
    std::vector<std::int64_t> times;
    for (const Nanoseconds time : training().step_times()) {
      times.push_back(time.count);
    }
    record.set(key::first_step_times_ns, times);
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 2);
  spec.seed = text(point, key::run) == "other seed" ? 1 : 0;
  return std::make_unique<EveryStep>(
      spec, settings,
      TrainMeasurement::Options{.warmup = dropped, .timeline = text(point, key::run) == "first" ? "one step of ddp" : ""});
}

std::vector<double> doubles(const std::vector<std::int64_t>& values) { return {values.begin(), values.end()}; }

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// The reasons of a GPU's slow first steps that exist on the measured devices.
std::string reasons(const Record& row) {
  return row.value(key::gpus, Json::array()).empty()
             ? "On these CPU cores it pays only for the first use of memory, cold caches, sleeping threads and low clocks."
             : "Here it pays only for lazy loading, recording the step as a graph, cold caches and low clocks.";
}

/// The first steps of one run, compared with the others.
struct FirstSteps {
  double first = 0;   // step 1, in nanoseconds
  double slower = 0;  // times the median
  double change = 0;  // relative change of the mean if the dropped steps counted
  bool stands_out = false;
};
FirstSteps first_steps(const Record& row) {
  const std::vector<double> times = doubles(row[key::first_step_times_ns]);
  const std::vector<double> rest(times.begin() + dropped, times.end());
  const double median = number(row, key::time_per_step_ns);
  const double slower = times[0] / median;
  return {times[0], slower, mean(times) / mean(rest) - 1, slower > 1.05 && times[0] - median > 2 * number(row, key::std_ns)};
}

/// This many runs are listed one by one.
constexpr std::size_t few_runs = 3;

/// "5.00, 4.50 and 1.00"; of many "1.00 to 5.00".
std::string each_or_range(std::vector<double> values, const std::function<std::string(double)>& to_text) {
  if (values.size() > few_runs) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return fmt::format("{} to {}", to_text(*least), to_text(*most));
  }
  std::vector<std::string> words;
  std::transform(values.begin(), values.end(), std::back_inserter(words), to_text);
  return listing(words);
}

std::string why_warm_up(const std::vector<Record>& rows) {
  std::vector<FirstSteps> runs;
  for (const Record& row : rows) {
    if (row[key::first_step_times_ns].size() > dropped) {
      runs.push_back(first_steps(row));
    }
  }
  if (runs.empty()) {
    return "";
  }
  const auto of_each = [&](double FirstSteps::*value, const std::function<std::string(double)>& to_text) {
    std::vector<double> values;
    std::transform(runs.begin(), runs.end(), std::back_inserter(values), [&](const FirstSteps& run) { return run.*value; });
    return each_or_range(values, to_text);
  };
  const auto slow = static_cast<std::size_t>(
      std::count_if(runs.begin(), runs.end(), [](const FirstSteps& run) { return run.stands_out; }));
  const bool slows = std::all_of(runs.begin(), runs.end(), [](const FirstSteps& run) { return run.change > 0.05; });
  const std::string verdict = slow == 0 ? slows ? "Because the first steps are slower, though step 1 is within the scatter of all"
                                                : "To be safe, though here step 1 does not stand out from the others"
                              : slow == runs.size()
                                  ? "Because step 1 does work that later ones do not"
                                  : fmt::format("Because step 1 may do work that later ones do not, which shows in {} of {} runs",
                                                slow, runs.size());
  return fmt::format(
      "{}: it took {}, {} times the median; the first {} would change the mean by {}. On a GPU step 1 pays for context creation, "
      "lazy loading of kernels, choice of algorithms, the allocator, caches and clocks. {}",
      verdict, of_each(&FirstSteps::first, [](double time) { return duration_text(time); }),
      of_each(&FirstSteps::slower, ratio_text), dropped,
      of_each(&FirstSteps::change, [](double change) { return fmt::format("{:+.1f} %", 100 * change); }), reasons(rows[0]));
}

std::string why_seeds(const std::vector<Record>& rows) {
  const auto losses_in = [&](const char* run) {
    const std::vector<Record> found = rows_with(rows, key::run, run);
    return found.empty() ? std::vector<double>() : found[0][key::losses];
  };
  const std::vector<double> a = losses_in("first");
  const std::vector<double> b = losses_in("same seed");
  const std::vector<double> c = losses_in("other seed");
  if (a.empty() || b.empty() || c.empty()) {
    return "";
  }
  const std::size_t count = std::min({a.size(), b.size(), c.size()});
  const auto agrees = [&](const std::vector<double>& other) {
    return std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), other.begin());
  };
  return fmt::format(
      "So that a difference between two runs is due to what was changed. Two runs with seed 0 gave {} over {} steps; seed 1 gave "
      "{} "
      "(step 1: {:.9g} against {:.9g}). Otherwise weights and data differ too: neither a better loss nor a fault could be put down "
      "to the change, or be repeated.",
      agrees(b) ? "the same losses to the bit" : "different losses, which is a fault", count,
      agrees(c) ? "the same losses, which is a fault" : "others", a[0], c[0]);
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Record& row : rows) {
    sentences.push_back(
        fmt::format("Run \"{}\": a step takes {} (median), {} ± {} (mean and standard deviation): the spread is {} of the mean.",
                    text(row, key::run), to_text(time_of(row)), to_text(time_of(row, key::mean_ns)),
                    to_text(time_of(row, key::std_ns)), percent(number(row, key::std_ns) / number(row, key::mean_ns))));
  }
  return sentences;
}

}  // namespace

Experiment timing() {
  return {.id = "timing",
          .part = "A",
          .title = "A benchmark that repeats",
          .task =
              "Train under DDP with fixed seeds; time each step from before the forward to after the update; 30 steps, "
              "the first 5 dropped as warm-up.",
          .questions = {{"hw1/1/Q1", "Why is warm-up needed in GPU benchmarking?", why_warm_up},
                        {"hw1/1/Q2", "Why must randomness be controlled?", why_seeds}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::devices, "devices", {2}, {2}},
                   {key::run,
                    "first, again with the same seed, and with another",
                    {"first", "same seed", "other seed"},
                    {"first", "same seed", "other seed"}}},
          .columns = {{key::run, "run", Format::text},
                      {key::devices, "#devices", Format::integer},
                      {key::step_1_ns, "step 1", Format::time},
                      {key::time_per_step_ns, "median", Format::time},
                      {key::mean_ns, "mean", Format::time},
                      {key::mean_all_ns, "mean with the dropped", Format::time},
                      {key::std_ns, "std", Format::time},
                      {key::steps_timed, "steps timed", Format::integer},
                      {key::warmup, "dropped", Format::integer},
                      {key::loss_last, "loss at step 30", Format::number}},
          .plots = {first_steps_plot(), spread_plot(key::run)},
          .open = open,
          .derive =
              [](std::vector<Record>& rows) {
                std::size_t steps = all_steps;  // all show the loss of the same step
                for (const Record& row : rows) {
                  steps = std::min(steps, row[key::losses].size());
                }
                for (Record& row : rows) {
                  if (steps > 0) {
                    row.set(key::loss_last, row[key::losses][steps - 1]);
                  }
                  if (const std::vector<std::int64_t> times = row.value(key::first_step_times_ns, {}); !times.empty()) {
                    row.set(key::step_1_ns, Nanoseconds(times[0]));
                    row.set(key::mean_all_ns, mean(doubles(times)));
                  }
                }
              },
          .details = details,
          .by_losses = true,
          .own_fields = {"seed"}};
}

}  // namespace baton::lab
