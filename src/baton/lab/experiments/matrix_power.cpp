#include "baton/measure/matrix_power.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// While it lives, tells the share of an expected time that has passed, from a thread of its own. One step may take minutes, and
/// an executor reports whole steps only.
class Ticker {
 public:
  Ticker(const std::function<void(double share)>& tell, Nanoseconds expected) {
    if (tell && expected.count > 0) {
      thread_ = std::thread([this, tell, expected, start = now()] {
        std::unique_lock lock(mutex_);
        while (!done_.wait_for(lock, std::chrono::milliseconds(200), [this] { return over_; })) {
          const double passed = static_cast<double>((now() - start).count) / static_cast<double>(expected.count);
          tell(std::min(passed, 0.99));
        }
      });
    }
  }
  ~Ticker() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    done_.notify_one();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::thread thread_;
};

/// The job gives the devices and the precision; the plan is of our own, and nothing is trained.
class PowerMeasurement final : public TrainMeasurement {
 public:
  PowerMeasurement(const Point& point, const Settings& settings)
      : TrainMeasurement(words_for(point, settings), settings, options_for(point)),
        point_(point),
        settings_(settings),
        power_(power_of(point)) {}

  /// Large matrices are tried small first: what would take longer than a point may is refused before it begins, and what takes
  /// long is run once.
  void round(Nanoseconds time) override {
    if (!training().simulated() && training().timed().empty() && size_of(point_) >= large) {
      expected_ = estimate();
      if (expected_ > settings_.time_limit) {
        throw usage_error(
            "raising matrices of {0}x{0} to the power of {1} would take about {2} here, longer than the {3} that a point may "
            "take: --time-limit {4:.0f}s allows it",
            size_of(point_), power_, to_text(expected_), to_text(settings_.time_limit),
            std::ceil(1.5e-9 * static_cast<double>(expected_.count)));
      }
      once_ = 4 * expected_.count > settings_.time_limit.count;
    }
    if (!once_) {
      TrainMeasurement::round(time);
    } else if (training().timed().empty()) {
      const Ticker ticker(settings_.within, expected_);
      run(1, 0);
    }
  }

  bool once() const override { return once_; }

  Json record() const override {
    Json record = TrainMeasurement::record();
    for (const char* key :
         {"samples_per_s", "global_batch", "losses", "loss_final", "loss_steps", "losses_checksum", "gradients_left"}) {
      record.erase(key);
    }
    const Json trained = record["trained"];
    record["trained"] = {{"precision", trained["precision"]}, {"device", trained["device"]}};  // nothing is trained
    record["tflops"] = number(record, "flops") / number(record, "time_per_step_ns") / 1000;
    record["products"] = measure::products_needed(power_);
    const auto step = number(record, "time_per_step_ns");
    record["move_ns"] = std::llround(step * on_path("receive"));
    record["products_ns"] = std::llround(step * on_path("matrix_product"));
    record["sum_ns"] = std::llround(step * on_path("add"));
    return record;
  }

 private:
  static constexpr std::int64_t large = 2048;
  static constexpr std::int64_t smaller = 8;  // times, in rows

  /// From matrices that are this many times smaller, by the number of products of numbers.
  Nanoseconds estimate() const {
    Point small = point_;
    small["size"] = size_of(point_) / smaller;
    PowerMeasurement trial(small, settings_);
    trial.run(2, 1);
    return trial.training().timed().back() * (smaller * smaller * smaller);
  }

  /// The share of the critical paths of the traced steps that tasks of this kind take; of a transfer both ends are "receive". The
  /// path covers the step once, so shares of all kinds and the time between tasks are the step.
  double on_path(std::string_view kind) const {
    const plan::Plan& plan = training().plan();
    Nanoseconds sum;
    Nanoseconds total;
    for (const trace::StepTrace& step : training().trace().steps) {
      total += step.duration;
      for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
        const bool moves = segment.kind == trace::PathSegment::SpentOn::communication;
        const bool computes = segment.kind == trace::PathSegment::SpentOn::compute;
        if ((moves && kind == "receive") || (computes && plan::verb(plan[segment.task]) == kind)) {
          sum += segment.end - segment.start;
        }
      }
    }
    return trace::share(sum, total);
  }

  static std::int64_t size_of(const Point& point) { return whole(point, "size", 1, 65536); }
  static std::int64_t power_of(const Point& point) { return whole(point, "power", 1, 1 << 20); }

  static job::JobSpec words_for(const Point& point, const Settings& settings) {
    job::JobSpec spec;
    spec.devices = devices_for(settings, whole(point, "devices", 1, 4096), 2);
    take(spec, point, "precision");
    return spec;
  }

  static Options options_for(const Point& point) {
    const std::int64_t size = size_of(point);
    const std::int64_t power = power_of(point);
    return {.warmup = 1, .least_steps = 1, .timeline = "", .planner = [size, power](const training::Job& job) {
              return measure::matrix_power_plan(size, power, job.cluster(), job.request().target, job.request().step.precision);
            }};
  }

  Point point_;
  Settings settings_;
  std::int64_t power_;
  Nanoseconds expected_;  // of one step, where it is estimated
  bool once_ = false;
};

/// Why two are not twice as fast: what comes to half of the time on one, in parts that add up. Parts below a hundredth are with the
/// rest.
std::string why_not_two(const Json& alone, const Json& row) {
  const double half = number(alone, "time_per_step_ns") / 2;
  const double time = number(row, "time_per_step_ns");
  const double move = row.value("move_ns", 0.0);
  if (move <= 0 || time < 1.01 * half) {
    return "";
  }
  const auto more = [&](const char* key) { return row.value(key, 0.0) - alone.value(key, 0.0) / 2; };
  const double products = more("products_ns");
  std::string parts = fmt::format("moving Bⁿ ({}) {}", bytes_text(number(row, "sent_bytes")), duration_text(move));
  double rest = time - half - move;
  const auto add = [&](double part, const std::string& what) {
    if (std::abs(part) >= 0.01 * time) {
      parts += fmt::format(", {} {}", what, duration_text(part));
      rest -= part;
    }
  };
  const bool simulated = is_simulated(row);
  add(products, products <= 0 ? "faster products"
                : simulated   ? "products that slow each other down"
                              : "slower products (shared memory, other programs or noise)");
  add(more("sum_ns"), "the sum on one device alone");
  add(rest, rest < 0 ? "less time between tasks" : "time between tasks");
  return fmt::format(" Not 2, because to half of the time on one, {}, come: {}.", duration_text(half), parts);
}

std::string on_one_and_two(const std::vector<Json>& rows) {
  std::string all;
  for (const Json& row : rows) {
    for (const Json& alone : where(where(where(rows, "size", row["size"]), "power", row["power"]), "devices", 1)) {
      if (number(row, "devices") > 1 && all.empty()) {  // of further devices only two work
        const double speedup = number(alone, "time_per_step_ns") / number(row, "time_per_step_ns");
        all = fmt::format(
            "One takes {}, {} {}: a speedup of {}{}{}. At most 2 are possible: there are two powers, and only their sum needs "
            "both. Size {}, n = {}, {} and {} TFLOP/s.{}",
            to_text(time_of(alone)), row["devices"] == 2 ? "two take" : text(row, "devices") + " take", to_text(time_of(row)),
            ratio_text(speedup), ratio_noise_text(difference_of(row, alone)), origin_mark({alone, row}), text(row, "size"),
            text(row, "power"), three_figures(number(alone, "tflops")), three_figures(number(row, "tflops")),
            why_not_two(alone, row));
      }
    }
  }
  std::vector<std::string> times;
  for (const Json& row : rows) {
    times.push_back(fmt::format("{} take{} {} (size {}, n = {}){}", devices_text(row["devices"]), row["devices"] == 1 ? "s" : "",
                                to_text(time_of(row)), text(row, "size"), text(row, "power"), origin_mark({row})));
  }
  return all.empty() ? listing(times) + "." : all;
}

std::string products_used(const std::vector<Json>& rows) {
  std::string all;
  for (const Json& power : values_of(rows, "power")) {
    const Json row = where(rows, "power", power)[0];
    all += fmt::format("{}{} per matrix for n = {}, by repeated squaring; one after the other it would take {}.",
                       all.empty() ? "" : " ", text(row, "products"), text(row, "power"), row["power"].get<std::int64_t>() - 1);
  }
  return all;
}

}  // namespace

Experiment matrix_power() {
  return {.id = "matrix-power",
          .part = "C",
          .title = "Powers of matrices on one device and on two",
          .task = "Aⁿ + Bⁿ with n = {power}, A and B of {size} rows, by repeated squaring; on two devices each raises one matrix.",
          .questions = {{"csye-hw4/2/Q1", "How long does it take on one GPU and on two?", on_one_and_two},
                        {"", "How many products are used?", products_used}},
          .axes = {{"size", "rows of A and B", {1024}, {10000}},
                   {"power", "n", {10}, {10}},
                   {"precision", "number format", {"fp32"}, {"fp32"}},
                   {"devices", "devices", {1, 2}, {1, 2}}},
          .columns = {{"devices", "#devices", Format::integer},
                      {"size", "size", Format::integer},
                      {"power", "n", Format::integer},
                      {"time_per_step_ns", "time", Format::time},
                      {"tflops", "TFLOP/s", Format::rate},
                      {"speedup", "speedup", Format::ratio},
                      {"products", "products per matrix", Format::integer}},
          .plots = {},
          .open = [](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
            return std::make_unique<PowerMeasurement>(point, settings);
          },
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"size", "power"});
              },
          .details = nullptr,
          .trains = false};
}

}  // namespace baton::lab
