#include <filesystem>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/lab/experiment.h"
#include "baton/lab/runner.h"
#include "baton/lab/store.h"
#include "baton/lab/sweep.h"
#include "baton/lab/train_measurement.h"
#include "baton/report/report.h"
#include "bindings.h"
#include "outside.h"

namespace baton::python {
namespace {

using lab::Json;

/// Text as `--set` takes it, or values.
using AxisValue = std::variant<std::string, std::vector<job::FieldValue>>;

/// Where an experiment is measured, and for how long.
struct Conditions {
  std::string devices;
  std::string cluster;
  std::string what_if;
  bool full = false;
  double seconds = 0;  // per point; 0: the preset's
};

/// An experiment of the user's own. What calls its functions takes the GIL.
struct OwnExperiment {
  std::string id;
  std::string title;
  std::vector<std::pair<std::string, std::vector<job::FieldValue>>> axes;
  std::shared_ptr<py::object> open;                                               // from the values by axis to a Setup
  std::vector<std::pair<std::string, std::shared_ptr<py::object>>> answers = {};  // by question: from the rows as JSON to text
};

lab::Settings settings_of(const Conditions& conditions) {
  lab::Settings settings{.preset = conditions.full ? lab::Preset::full : lab::Preset::quick,
                         .devices = lab::parse_device_type(conditions.devices),
                         .machine = machine(),
                         .time_limit = Nanoseconds(conditions.full ? 30'000'000'000 : 900'000'000),
                         .cluster = conditions.cluster,
                         .what_if = job::parse_what_if(conditions.what_if)};
  if (conditions.seconds > 0) {
    settings.time_limit = Nanoseconds(static_cast<std::int64_t>(conditions.seconds * 1e9));
  }
  return settings;
}

/// Measures all points; gives JSON.
std::string measure_all(const std::shared_ptr<const lab::Experiment>& experiment, const lab::AxisValues& values,
                        const Conditions& conditions, const lab::Progress& progress) {
  const lab::Settings settings = settings_of(conditions);
  const std::vector<lab::Point> points = lab::points(*experiment, settings.preset, values);
  std::vector<lab::Record> records = lab::measure(
      *experiment, points, settings, {}, [](const lab::Point&, const lab::Record&, bool) {}, progress);
  return report::to_json(lab::conclude(experiment, points, std::move(records), "import baton", settings.preset)).dump();
}

std::string run_experiment(const std::string& id, const std::map<std::string, AxisValue>& sets, const Conditions& conditions,
                           const lab::Progress& progress) {
  lab::AxisValues values;
  std::vector<std::string> names;
  for (const auto& [name, value] : sets) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      lab::parse_axis_values(name + "=" + *text, values);
    } else {
      lab::set_axis_values(name, std::get<std::vector<job::FieldValue>>(value), values);
    }
  }
  for (const auto& [name, list] : values) {
    names.push_back(name);
  }
  const auto experiment = std::make_shared<const lab::Experiment>(lab::extended(lab::experiment_by_id(id), names));
  if (!conditions.cluster.empty() && experiment->by_losses) {
    throw usage_error("{} needs losses, which only training gives: leave out the cluster", id);
  }
  return measure_all(experiment, values, conditions, progress);
}

std::string run_own_experiment(const OwnExperiment& own, const Conditions& conditions, const lab::Progress& progress) {
  lab::Sweep sweep{.id = own.id, .title = own.title, .question = "", .axes = {}};
  std::int64_t points = 1;
  for (const auto& [name, values] : own.axes) {
    sweep.axes.emplace_back(name, "", values, values);
    points *= static_cast<std::int64_t>(values.size());
    if (points > lab::most_points) {
      throw usage_error("experiment {} has more than {} points", own.id, lab::most_points);
    }
  }
  sweep.open = [open = own.open](const lab::Point& point, const lab::Settings& settings) {
    const Setup setup = [&] {
      const py::gil_scoped_acquire acquire;
      py::dict values;
      for (const auto& [axis, value] : point) {
        values[py::str(axis)] = value;
      }
      const py::object given = (*open)(values);
      if (py::isinstance<py::str>(given)) {
        throw usage_error("{}", given.cast<std::string>());  // the reason for which there is no job for this point
      }
      return given.cast<Setup>();
    }();
    const Setup measured = settings.cluster.empty() && setup.spec.cluster.empty() ? setup : setup.without_data();
    return lab::measure_training(measured.spec, settings, {.timeline = point.text(), .overrides = measured.overrides});
  };
  lab::Experiment experiment = lab::to_experiment(std::move(sweep));
  for (const auto& [question, answer] : own.answers) {
    experiment.questions.push_back({"", question, [callback = answer](const std::vector<lab::Record>& rows) {
                                      Json list = Json::array();
                                      for (const lab::Record& row : rows) {
                                        list.push_back(row.json());
                                      }
                                      const py::gil_scoped_acquire acquire;
                                      return (*callback)(list.dump()).cast<std::string>();
                                    }});
  }
  return measure_all(std::make_shared<const lab::Experiment>(std::move(experiment)), {}, conditions, progress);
}

/// The user's function as progress; null: none. It is called on another thread, without the GIL.
lab::Progress to_progress(const py::object& progress) {
  const std::shared_ptr<py::object> callback = progress.is_none() ? nullptr : shared(progress);
  return [callback](double done, const std::string& what) {
    if (!callback) {
      return !asked_to_stop();
    }
    const py::gil_scoped_acquire acquire;
    const py::object answer = (*callback)(done, what);
    return !asked_to_stop() && (answer.is_none() || answer.cast<bool>());
  };
}

std::string read_run(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw usage_error("{} is not a folder with results of the laboratory", folder);
  }
  const lab::Store store(folder);
  const std::vector<std::string> ids = store.experiments();
  if (ids.empty()) {
    throw usage_error("{} holds no results of experiments", folder);
  }
  Json list = Json::array();
  for (const std::string& id : ids) {
    list.push_back(report::to_json(lab::conclude(store, id)));
  }
  return list.dump();
}

}  // namespace

void bind_results(py::module_& module) {
  module.def(
      "experiments",
      [] {
        std::vector<std::pair<std::string, std::string>> list;
        for (const lab::Experiment& experiment : lab::experiments()) {
          list.emplace_back(experiment.id, experiment.title);
        }
        return list;
      },
      "(id, title) of every experiment, in the order of the course.");
  module.def(
      "run_experiment",
      [](const std::string& id, const std::string& devices, const std::string& cluster, const std::string& what_if, bool full,
         double seconds, const std::map<std::string, AxisValue>& sets, const py::object& progress) {
        const lab::Progress tell = to_progress(progress);
        return outside([&] { return run_experiment(id, sets, {devices, cluster, what_if, full, seconds}, tell); });
      },
      py::arg("id"), py::arg("devices"), py::arg("cluster"), py::arg("what_if"), py::arg("full"), py::arg("seconds"),
      py::arg("sets"), py::arg("progress"), "Measures or simulates an experiment; gives JSON.");
  module.def(
      "run_own_experiment",
      [](const std::string& id, const std::string& title,
         const std::vector<std::pair<std::string, std::vector<job::FieldValue>>>& axes, const py::object& open,
         const std::vector<std::pair<std::string, py::object>>& answers, const std::string& cluster, const std::string& what_if,
         bool full, double seconds, const py::object& progress) {
        OwnExperiment own{.id = id, .title = title, .axes = axes, .open = shared(open)};
        for (const auto& [question, answer] : answers) {
          own.answers.emplace_back(question, shared(answer));
        }
        const lab::Progress tell = to_progress(progress);
        return outside([&] { return run_own_experiment(own, {"cpu", cluster, what_if, full, seconds}, tell); });
      },
      py::arg("id"), py::arg("title"), py::arg("axes"), py::arg("open"), py::arg("answers"), py::arg("cluster"), py::arg("what_if"),
      py::arg("full"), py::arg("seconds"), py::arg("progress"),
      "Measures or simulates an experiment of the user's own: open(values by axis) gives a setup, and each answer text from the "
      "rows\n"
      "as JSON. Gives JSON.");
  module.def(
      "read_run", [](const std::string& folder) { return outside([&] { return read_run(folder); }); }, py::arg("folder"),
      "The experiments of a folder that `baton lab` wrote, as JSON.");
}

}  // namespace baton::python
