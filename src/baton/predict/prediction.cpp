#include "baton/predict/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/measure/calibration.h"

namespace baton::predict {
namespace {

namespace key = job::key;

/// Simulated when it is opened, so that the times of its tasks are taken in the minute in which it is measured.
class PredictedAndMeasured final : public lab::TrainMeasurement {
 public:
  PredictedAndMeasured(const job::JobSpec& spec, const lab::Settings& settings)
      : lab::TrainMeasurement(spec, settings, {}), spec_(spec), settings_(settings), simulated_(simulate(spec, settings)) {}

  lab::Record record() const override {
    const lab::Record full = lab::TrainMeasurement::record();
    const double measured = lab::number(full, key::time_per_step_ns);
    if (const double ratio = static_cast<double>(simulated_.count) / measured; !timed_again_ && (ratio > 1.5 || ratio < 1 / 1.5)) {
      timed_again_ = true;  // before so large an error is reported
      time_again();
      simulated_ = simulate(spec_, settings_);
    }
    lab::Record record{key::simulated_ns(simulated_), key::error(static_cast<double>(simulated_.count) / measured - 1)};
    for (const std::string& name : std::vector<std::string>{key::time_per_step_ns, key::time_low_ns, key::time_high_ns,
                                                            key::steps_timed, key::origin, key::oversubscribed}) {
      record.put(name, full.at(name));
    }
    return record;
  }

 private:
  static Nanoseconds simulate(job::JobSpec spec, const lab::Settings& settings) {
    spec.cluster = job::this_machine;
    training::Training simulated(spec, settings.machine);
    simulated.run(1, 0);
    return simulated.timed()[0];
  }

  void time_again() const {
    job::JobSpec spec = spec_;
    spec.cluster = job::this_machine;
    const training::Job job(spec, settings_.machine);
    const plan::Plan plan = job.compile();
    measure::Calibration calibration(job.machine(), job.cluster(), job.backend());
    calibration.measure(plan, calibration.keys(plan, job.cluster()), job.cluster(), job.backend(), true);
  }

  job::JobSpec spec_;
  lab::Settings settings_;
  mutable Nanoseconds simulated_;
  mutable bool timed_again_ = false;
};

/// True if two rows agree in all axes but the strategy.
bool rivals(const lab::Record& a, const lab::Record& b, const std::vector<std::string>& axes) {
  return std::all_of(axes.begin(), axes.end(),
                     [&](const std::string& axis) { return (a.at(axis) != b.at(axis)) == (axis == key::strategy.name); });
}

std::string errors_text(const std::vector<lab::Record>& rows) {
  std::vector<double> errors;
  for (const lab::Record& row : rows) {
    errors.push_back(std::abs(lab::number(row, key::error)));
  }
  return fmt::format("Over {} point{} the median of the absolute errors is {}, the largest {}.", errors.size(),
                     errors.size() == 1 ? "" : "s", lab::percent(findings::median(errors)),
                     lab::percent(*std::max_element(errors.begin(), errors.end())));
}

std::vector<std::string> accuracy(const std::vector<lab::Record>& rows, const std::vector<std::string>& axes) {
  std::vector<std::string> sentences{errors_text(rows)};
  std::size_t pairs = 0;
  std::size_t in_order = 0;
  const bool compared = std::find(axes.begin(), axes.end(), key::strategy.name) != axes.end();
  for (std::size_t i = 0; i < rows.size() && compared; ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (!rivals(rows[i], rows[j], axes) || !lab::differs(rows[i], rows[j])) {
        continue;
      }
      const bool measured = lab::number(rows[i], key::time_per_step_ns) < lab::number(rows[j], key::time_per_step_ns);
      const bool simulated = lab::number(rows[i], key::simulated_ns) < lab::number(rows[j], key::simulated_ns);
      ++pairs;
      in_order += measured == simulated ? 1 : 0;
    }
  }
  if (pairs > 0) {
    sentences.push_back(
        fmt::format("Of {} pair{} of strategies that differ by more than the noise, {} {} in the order that was predicted.", pairs,
                    pairs == 1 ? "" : "s", in_order, in_order == 1 ? "is" : "are"));
  }
  lab::add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

lab::Experiment prediction(const job::JobSpec& shared, const lab::AxisValues& axes) {
  lab::Experiment experiment{
      .id = "prediction",
      .part = "",
      .title = "Simulated compared with measured",
      .task = "Each step simulated from tasks that are timed by themselves, then measured; the error is of the simulated one.",
      .questions = {}};
  std::vector<std::string> names;
  for (const auto& [name, values] : axes) {
    experiment.axes.push_back(lab::axis_of_field(name, values));
    names.push_back(experiment.axes.back().name);
    experiment.columns.push_back({names.back(), names.back(), lab::Format::text});
  }
  experiment.columns.insert(experiment.columns.end(), {{key::simulated_ns, "simulated", lab::Format::time},
                                                       {key::time_per_step_ns, "measured", lab::Format::time},
                                                       {key::error, "error", lab::Format::percent}});
  experiment.open = [shared](const lab::Point& point, const lab::Settings& settings) -> std::unique_ptr<lab::Measurement> {
    return std::make_unique<PredictedAndMeasured>(lab::spec_at(shared, point), settings);
  };
  experiment.details = [names](const std::vector<lab::Record>& rows) { return accuracy(rows, names); };
  return experiment;
}

}  // namespace baton::predict
