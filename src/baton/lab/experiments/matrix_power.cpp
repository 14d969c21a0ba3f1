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

  /// Large matrices are tried small first: a power that would take longer than a point may is refused before it begins, and one
  /// that takes long is run once.
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

  Record record() const override {
    Record record = TrainMeasurement::record();
    for (const std::string& name : std::vector<std::string>{key::samples_per_s, key::global_batch, key::losses, key::loss_final,
                                                            key::loss_steps, key::losses_checksum, key::gradients_left}) {
      record.erase(name);
    }
    const Record trained = record[key::trained];
    // Nothing is trained.
    record.set(key::trained, {key::precision(trained[key::precision]), key::device(trained[key::device])});
    record.set(key::tflops, number(record, key::flops) / number(record, key::time_per_step_ns) / 1000);
    record.set(key::products, measure::products_needed(power_));
    const auto step = number(record, key::time_per_step_ns);
    record.set(key::move_ns, Nanoseconds(std::llround(step * on_path("receive"))));
    record.set(key::products_ns, Nanoseconds(std::llround(step * on_path("matrix_product"))));
    record.set(key::sum_ns, Nanoseconds(std::llround(step * on_path("add"))));
    return record;
  }

 private:
  static constexpr std::int64_t large = 2048;
  static constexpr std::int64_t smaller = 8;  // times, in rows

  /// From matrices that are this many times smaller, by the number of products of numbers.
  Nanoseconds estimate() const {
    Point small = point_;
    small.set(key::size, size_of(point_) / smaller);
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
    return trace::share_of(sum, total);
  }

  static std::int64_t size_of(const Point& point) { return whole_number(point, key::size, 1, 65536); }
  static std::int64_t power_of(const Point& point) { return whole_number(point, key::power, 1, 1 << 20); }

  static job::JobSpec words_for(const Point& point, const Settings& settings) {
    job::JobSpec spec;
    spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 2);
    take(spec, point, key::precision);
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
  Nanoseconds expected_;  // estimated time of one step
  bool once_ = false;
};

/// The reasons for which two are not twice as fast: the differences from half of the time on one, in parts that add up. Parts below
/// a hundredth are with the rest.
std::string why_not_two(const Record& alone, const Record& row) {
  const double half = number(alone, key::time_per_step_ns) / 2;
  const double time = number(row, key::time_per_step_ns);
  const double move = number(row, key::move_ns, 0.0);
  if (move <= 0 || time < 1.01 * half) {
    return "";
  }
  const auto more = [&](job::Key<Nanoseconds> key) { return number(row, key, 0.0) - number(alone, key, 0.0) / 2; };
  const double products = more(key::products_ns);
  std::string parts = fmt::format("moving Bⁿ ({}) {}", bytes_text(number(row, key::sent_bytes)), duration_text(move));
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
  add(more(key::sum_ns), "the sum on one device alone");
  add(rest, rest < 0 ? "less time between tasks" : "time between tasks");
  return fmt::format(" Not 2: two devices take half of the time on one ({}) plus {}.", duration_text(half), parts);
}

std::string on_one_and_two(const std::vector<Record>& rows) {
  std::string all;
  for (const Record& row : rows) {
    for (const Record& alone :
         rows_with(rows_with(rows_with(rows, key::size, row[key::size]), key::power, row[key::power]), key::devices, 1)) {
      if (number(row, key::devices) > 1 && all.empty()) {  // only two of more devices work
        const double speedup = number(alone, key::time_per_step_ns) / number(row, key::time_per_step_ns);
        all = fmt::format(
            "One takes {}, {} {}: a speedup of {}{}{}. At most 2 are possible: there are two powers, and only their sum needs "
            "both. Size {}, n = {}, {} and {} TFLOP/s.{}",
            to_text(time_of(alone)), row[key::devices] == 2 ? "two take" : text(row, key::devices) + " take", to_text(time_of(row)),
            ratio_text(speedup), ratio_noise_text(difference_of(row, alone)), origin_mark({alone, row}), text(row, key::size),
            text(row, key::power), three_figures(number(alone, key::tflops)), three_figures(number(row, key::tflops)),
            why_not_two(alone, row));
      }
    }
  }
  std::vector<std::string> times;
  for (const Record& row : rows) {
    times.push_back(fmt::format("{} take{} {} (size {}, n = {}){}", devices_text(row[key::devices]),
                                row[key::devices] == 1 ? "s" : "", to_text(time_of(row)), text(row, key::size),
                                text(row, key::power), origin_mark({row})));
  }
  return all.empty() ? listing(times) + "." : all;
}

std::string products_used(const std::vector<Record>& rows) {
  std::string all;
  for (const std::int64_t power : values_of(rows, key::power)) {
    const Record row = rows_with(rows, key::power, power)[0];
    all += fmt::format("{}{} per matrix for n = {}, by repeated squaring; one after the other it would take {}.",
                       all.empty() ? "" : " ", text(row, key::products), text(row, key::power), row[key::power] - 1);
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
          .axes = {{key::size, "rows of A and B", {1024}, {10000}},
                   {key::power, "n", {10}, {10}},
                   {key::precision, "number format", {"fp32"}, {"fp32"}},
                   {key::devices, "devices", {1, 2}, {1, 2}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      {key::size, "size", Format::integer},
                      {key::power, "n", Format::integer},
                      {key::time_per_step_ns, "time", Format::time},
                      {key::tflops, "TFLOP/s", Format::rate},
                      {key::speedup, "speedup", Format::ratio},
                      {key::products, "products per matrix", Format::integer}},
          .plots = {},
          .open = [](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
            return std::make_unique<PowerMeasurement>(point, settings);
          },
          .derive =
              [](std::vector<Record>& rows) {
                add_speedup(rows, {key::size, key::power});
              },
          .details = nullptr,
          .trains = false};
}

}  // namespace baton::lab
