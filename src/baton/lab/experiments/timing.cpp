#include <fmt/format.h>

#include <cmath>

#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// Keeps the time of each step, warm-up included, beside what every training measurement keeps.
class EveryStep final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Json record() const override {
    Json record = TrainMeasurement::record();
    Json times = Json::array();
    for (std::size_t s = 0; s < std::min<std::size_t>(training().step_times().size(), 30); ++s) {
      times.push_back(training().step_times()[s].count);
    }
    record["first_step_times_ns"] = times;
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.devices = settings.devices;
  words.seed = text(point, "run") == "other seed" ? "1" : "0";
  return std::make_unique<EveryStep>(
      words, settings,
      TrainMeasurement::Options{
          .warmup = 5, .least_steps = 25, .timeline = text(point, "run") == "first" ? "one step on one device" : ""});
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  const Json& first = rows[0];
  const std::vector<double> times = first["first_step_times_ns"].get<std::vector<double>>();
  const double warm = (times.empty() ? 0 : times[0]);
  const double median = number(first, "time_per_step_ns");
  sentences.push_back(fmt::format(
      "Why warm up: the very first step took {}, {:.2f} times the median of {} over the {} timed steps{}. Counted in, the first "
      "five would have moved the mean of the first thirty by {}.",
      to_text(Nanoseconds(static_cast<std::int64_t>(warm))), warm / median, to_text(time_of(first)), text(first, "steps_timed"),
      warm > 1.05 * median ? "; it touches memory for the first time and finds caches cold"
                           : "; here it was no slower, or noise hid it",
      [&] {
        double all = 0;
        double timed = 0;
        for (std::size_t i = 0; i < times.size(); ++i) {
          all += times[i];
          timed += i >= 5 ? times[i] : 0;
        }
        const double with = all / static_cast<double>(times.size());
        const double without = timed / static_cast<double>(std::max<std::size_t>(times.size(), 6) - 5);
        return fmt::format("{:+.1f} %", 100 * (with / without - 1));
      }()));
  sentences.push_back(fmt::format("A step takes {} (median), {} ± {} (mean and standard deviation): the spread is {} of the mean.",
                                  to_text(time_of(first)), to_text(time_of(first, "mean_ns")), to_text(time_of(first, "std_ns")),
                                  percent(number(first, "std_ns") / number(first, "mean_ns"))));
  const auto first_losses = [&](const char* run) {
    const std::vector<Json> found = where(rows, "run", run);
    std::vector<double> losses = found.empty() ? std::vector<double>() : losses_of(found[0]);
    losses.resize(std::min<std::size_t>(losses.size(), 30));
    return losses;
  };
  const std::vector<double> a = first_losses("first");
  const std::vector<double> b = first_losses("same seed");
  const std::vector<double> c = first_losses("other seed");
  if (!a.empty() && !b.empty() && !c.empty()) {
    const std::size_t count = std::min({a.size(), b.size(), c.size()});
    const bool same = std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin());
    const bool other = std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), c.begin());
    sentences.push_back(fmt::format(
        "Why control randomness: two runs with seed 0 gave {} over {} steps; seed 1 gave {} (first step {:.9g} against {:.9g}). "
        "Only with the seed fixed can a difference be put down to what was changed.",
        same ? "the same losses to the bit" : "different losses, which is a fault", count,
        other ? "the same losses, which is a fault" : "others", a[0], c[0]));
  }
  return sentences;
}

}  // namespace

Experiment timing() {
  return {.id = "timing",
          .part = "A",
          .title = "A benchmark that repeats",
          .task =
              "Train with fixed seeds; log the time of each step from before the forward to after the update; at least 30 "
              "steps, the first 5 dropped as warm-up.",
          .questions = {{"hw1/1/Q1", "Why is warm-up needed in GPU benchmarking?", nullptr},
                        {"hw1/1/Q2", "Why must randomness be controlled?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"run",
                    "first, again with the same seed, and with another",
                    {"first", "same seed", "other seed"},
                    {"first", "same seed", "other seed"}}},
          .columns = {{"run", "run", Format::text},
                      {"time_per_step_ns", "median", Format::time},
                      {"mean_ns", "mean", Format::time},
                      {"std_ns", "std", Format::time},
                      {"steps_timed", "steps", Format::integer},
                      {"warmup", "warm-up", Format::integer},
                      {"loss_last", "loss at step 30", Format::number}},
          .plots = {time_plot(Plot::Kind::bars, "Median step time of each run", "run", "run")},
          .open = open,
          .derive =
              [](std::vector<Json>& rows) {
                std::size_t steps = 30;  // runs had time for different numbers of steps: all show the loss of the same one
                for (const Json& row : rows) {
                  steps = std::min(steps, row["losses"].size());
                }
                for (Json& row : rows) {
                  row["loss_last"] = losses_of(row)[steps - 1];
                }
              },
          .details = find,
          .by_losses = true};
}

}  // namespace baton::lab
