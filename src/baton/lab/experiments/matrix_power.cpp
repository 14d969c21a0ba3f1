#include "baton/lab/matrix_power.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/simulation.h"
#include "baton/lab/training.h"
#include "baton/plan/verify.h"

namespace baton::lab {
namespace {

class PowerMeasurement final : public Measurement {
 public:
  PowerMeasurement(const Point& point, const Settings& settings)
      : job_(words_for(point, settings), settings.machine),
        power_(whole(point, "power", 1, 1 << 20)),
        plan_(matrix_power_plan(whole(point, "size", 1, 65536), power_, job_.cluster(), job_.request().target,
                                job_.request().step.precision)) {
    if (job_.simulated()) {
      plan::require(plan::verify(plan_, job_.limits(plan_)));
      simulation_ = std::make_unique<Simulation>(job_, plan_);
    } else {
      executor_ = std::make_unique<exec::Executor>(plan_, job_.cluster(), job_.backend());
    }
  }

  void round(Nanoseconds time) override {
    if (simulation_) {
      times_.assign(1, simulation_->step().duration);
      return;
    }
    const auto run = [&](std::int64_t steps, std::int64_t warmup) {
      const exec::RunResult result = executor_->run({.steps = steps, .warmup = warmup});
      times_.insert(times_.end(), result.step_times.begin() + warmup, result.step_times.end());
    };
    if (times_.empty()) {
      run(2, 1);
    }
    run(std::clamp<std::int64_t>(time.count / trace::spread(times_).median.count, 1, 100), 0);
  }

  bool stable(double uncertainty) const override { return simulation_ || trace::median_uncertainty(times_) < uncertainty; }

  Bytes memory() const override {
    Bytes sum;
    for (const Bytes arena : executor_ ? executor_->arenas() : std::vector<Bytes>{}) {
      sum += arena;
    }
    return sum;
  }

  Json record() const override {
    const trace::Spread spread = trace::spread(times_);
    const auto [low, high] = trace::median_interval(times_);
    Flops flops;
    for (const plan::Totals& totals : plan::totals_by_device(plan_)) {
      flops += totals.work.flops;
    }
    return {{"time_per_step_ns", spread.median.count},
            {"time_low_ns", low.count},
            {"time_high_ns", high.count},
            {"tflops", static_cast<double>(flops.count) / static_cast<double>(spread.median.count) / 1000},
            {"products", products_needed(power_)},
            {"steps_timed", times_.size()},
            {"origin", simulation_ ? "simulated" : "measured"},
            {"oversubscribed", job_.cluster().oversubscribed()}};
  }

 private:
  static JobWords words_for(const Point& point, const Settings& settings) {
    JobWords words;
    words.devices = workers(settings, whole(point, "devices", 1, 4096), 2);
    words.precision = text(point, "precision");
    words.cluster = settings.cluster;
    words.what_if = settings.what_if;
    return words;
  }

  Job job_;  // for its devices; what it trains does not matter
  std::int64_t power_;
  plan::Plan plan_;
  std::unique_ptr<exec::Executor> executor_;  // of the two, one
  std::unique_ptr<Simulation> simulation_;
  std::vector<Nanoseconds> times_;
};

}  // namespace

Experiment matrix_power() {
  return {
      .id = "matrix-power",
      .part = "C",
      .title = "Powers of matrices on one device and on two",
      .task = "Aⁿ + Bⁿ with n = 10, by repeated squaring; on two devices each raises one matrix.",
      .questions = {"What is the speedup?", "How many products are used?"},
      .axes = {{"size", "rows of A and B", {1024}, {10000}},
               {"power", "n", {10}, {10}},
               {"precision", "number format", {"fp32"}, {"fp32"}},
               {"devices", "devices", {1, 2}, {1, 2}}},
      .columns = {{"devices", "#devices", Format::integer},
                  {"size", "size", Format::integer},
                  {"power", "n", Format::integer},
                  {"time_per_step_ns", "time", Format::time},
                  {"tflops", "TFLOP/s", Format::number},
                  {"speedup", "speedup", Format::ratio},
                  {"products", "products a matrix", Format::integer}},
      .plots = {{.kind = Plot::Kind::bars,
                 .title = "Time",
                 .x = "devices",
                 .y = "time_per_step_ns",
                 .x_title = "devices",
                 .y_title = "time",
                 .y_format = Format::time,
                 .low = "time_low_ns",
                 .high = "time_high_ns"}},
      .open = [](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
        return std::make_unique<PowerMeasurement>(point, settings);
      },
      .derive =
          [](std::vector<Json>& rows) {
            add_speedup(rows, {"size", "power"});
          },
      .findings =
          [](const std::vector<Json>& rows) {
            std::vector<std::string> sentences;
            for (const Json& power : values_of(rows, "power")) {
              const Json row = where(rows, "power", power)[0];
              sentences.push_back(fmt::format(
                  "Repeated squaring takes {} products a matrix for n = {}, where multiplying one after the other would take {}.",
                  text(row, "products"), text(row, "power"), row["power"].get<std::int64_t>() - 1));
            }
            for (const Json& row : rows) {
              for (const Json& alone : where(where(where(rows, "size", row["size"]), "power", row["power"]), "devices", 1)) {
                if (number(row, "devices") > 1) {
                  sentences.push_back(
                      fmt::format("{} devices need {} where one needs {}: a speedup of {:.2f} of at most 2, since there are two "
                                  "powers and only "
                                  "their sum needs both. Rates: {:.3f} and {:.3f} TFLOP/s.",
                                  row["devices"] == 2 ? "Two" : text(row, "devices"), to_text(time_of(row)),
                                  to_text(time_of(alone)), number(alone, "time_per_step_ns") / number(row, "time_per_step_ns"),
                                  number(alone, "tflops"), number(row, "tflops")));
                }
              }
            }
            return sentences;
          }};
}

}  // namespace baton::lab
