#include "baton/lab/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/findings/median.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// Simulated when it is opened, so that the times of its tasks are taken in the minute in which it is measured.
class PredictedAndMeasured final : public TrainMeasurement {
 public:
  PredictedAndMeasured(const JobWords& words, const Settings& settings)
      : TrainMeasurement(words, settings, {}), simulated_(simulate(words, settings)) {}

  Json record() const override {
    const Json full = TrainMeasurement::record();
    const double measured = number(full, "time_per_step_ns");
    Json record{{"simulated_ns", simulated_.count}, {"error", static_cast<double>(simulated_.count) / measured - 1}};
    for (const char* key : {"time_per_step_ns", "time_low_ns", "time_high_ns", "steps_timed", "origin", "oversubscribed"}) {
      record[key] = full[key];
    }
    return record;
  }

 private:
  static Nanoseconds simulate(JobWords words, const Settings& settings) {
    words.cluster = this_machine;
    Training simulated(words, settings.machine);
    simulated.run(1, 0);
    return simulated.timed()[0];
  }

  Nanoseconds simulated_;
};

/// Whether two points agree in all but the strategy.
bool rivals(const Json& a, const Json& b) {
  for (const auto& [axis, value] : a["point"].items()) {
    if (axis != "strategy" && b["point"][axis] != value) {
      return false;
    }
  }
  return a["point"].value("strategy", "") != b["point"].value("strategy", "");
}

}  // namespace

Experiment prediction(const JobWords& shared, const AxisValues& axes) {
  Experiment experiment{.id = "prediction", .part = "", .title = "Simulated beside measured", .task = "", .questions = {}};
  for (const auto& [name, values] : axes) {
    experiment.axes.push_back(axis_of_word(name, values));
    experiment.columns.push_back({axis_name(name), axis_name(name), Format::text});
  }
  experiment.columns.insert(experiment.columns.end(), {{"simulated_ns", "simulated", Format::time},
                                                       {"time_per_step_ns", "measured", Format::time},
                                                       {"error", "error", Format::percent}});
  experiment.open = [shared](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
    return std::make_unique<PredictedAndMeasured>(words_at(shared, point), settings);
  };
  experiment.findings = [](const std::vector<Json>&) { return std::vector<std::string>{}; };
  return experiment;
}

Accuracy accuracy(const std::vector<Json>& rows) {
  Accuracy result;
  std::vector<double> errors;
  for (const Json& row : rows) {
    errors.push_back(std::abs(number(row, "error")));
  }
  result.points = errors.size();
  result.median_error = findings::median(errors);
  result.largest_error = errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (!rivals(rows[i], rows[j]) || !differs(rows[i], rows[j])) {
        continue;
      }
      const bool measured = number(rows[i], "time_per_step_ns") < number(rows[j], "time_per_step_ns");
      const bool simulated = number(rows[i], "simulated_ns") < number(rows[j], "simulated_ns");
      ++result.pairs;
      result.in_order += measured == simulated ? 1 : 0;
    }
  }
  return result;
}

}  // namespace baton::lab
