#include <filesystem>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/lab/experiment.h"
#include "baton/lab/runner.h"
#include "baton/lab/store.h"
#include "baton/report/report.h"
#include "bindings.h"
#include "outside.h"

namespace baton::python {
namespace {

using lab::Json;

/// Text as `--set` takes it, or values.
using AxisValue = std::variant<std::string, std::vector<job::FieldValue>>;

struct ExperimentChoice {
  std::string id;
  std::string devices;
  std::string cluster;
  std::string what_if;
  bool full = false;
  double seconds = 0;                     // per point; 0: the preset's
  std::map<std::string, AxisValue> sets;  // by axis
};

std::string run_experiment(const ExperimentChoice& choice, const lab::Progress& progress) {
  lab::AxisValues values;
  std::vector<std::string> names;
  for (const auto& [name, value] : choice.sets) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      lab::parse_axis_values(name + "=" + *text, values);
    } else {
      lab::set_axis_values(name, std::get<std::vector<job::FieldValue>>(value), values);
    }
  }
  for (const auto& [name, list] : values) {
    names.push_back(name);
  }
  const auto experiment = std::make_shared<const lab::Experiment>(lab::extended(lab::experiment_by_id(choice.id), names));
  if (!choice.cluster.empty() && experiment->by_losses) {
    throw usage_error("{} needs losses, which only training gives: leave out the cluster", choice.id);
  }
  lab::Settings settings{.preset = choice.full ? lab::Preset::full : lab::Preset::quick,
                         .devices = lab::parse_device_type(choice.devices),
                         .machine = machine(),
                         .time_limit = Nanoseconds(choice.full ? 30'000'000'000 : 900'000'000),
                         .cluster = choice.cluster,
                         .what_if = job::parse_what_if(choice.what_if)};
  if (choice.seconds > 0) {
    settings.time_limit = Nanoseconds(static_cast<std::int64_t>(choice.seconds * 1e9));
  }
  const std::vector<lab::Point> points = lab::points(*experiment, settings.preset, values);
  std::vector<lab::Record> records = lab::measure(
      *experiment, points, settings, {}, [](const lab::Point&, const lab::Record&, bool) {}, progress);
  return report::to_json(lab::conclude(experiment, points, std::move(records), "import baton", settings.preset)).dump();
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
        const std::shared_ptr<py::object> told = progress.is_none() ? nullptr : shared(progress);
        const lab::Progress tell = [&](double done, const std::string& what) {
          if (!told) {
            return !asked_to_stop();
          }
          const py::gil_scoped_acquire acquire;
          const py::object answer = (*told)(done, what);
          return !asked_to_stop() && (answer.is_none() || answer.cast<bool>());
        };
        return outside([&] { return run_experiment({id, devices, cluster, what_if, full, seconds, sets}, tell); });
      },
      py::arg("id"), py::arg("devices"), py::arg("cluster"), py::arg("what_if"), py::arg("full"), py::arg("seconds"),
      py::arg("sets"), py::arg("progress"), "Measures or simulates an experiment; gives JSON.");
  module.def(
      "read_run", [](const std::string& folder) { return outside([&] { return read_run(folder); }); }, py::arg("folder"),
      "The experiments of a folder that `baton lab` wrote, as JSON.");
}

}  // namespace baton::python
