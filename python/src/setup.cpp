#include <fmt/format.h>

#include <cmath>

#include "arrays.h"
#include "baton/base/error.h"
#include "baton/cluster/blueprint.h"
#include "baton/plan/plan.h"
#include "baton/schedule/schedule.h"
#include "bindings.h"
#include "task_view.h"

namespace baton::python {
namespace {

/// A schedule as Python gives it: text in PyTorch's notation, or rows of cells.
schedule::Grid to_grid(const py::handle& given) {
  if (py::isinstance<py::str>(given)) {
    return schedule::parse_csv(given.cast<std::string>());
  }
  std::string text;
  for (const py::handle row : given) {
    std::string line;
    for (const py::handle cell : row) {
      line += (line.empty() ? "" : ",") + (cell.is_none() ? std::string(" ") : cell.cast<std::string>());
    }
    text += line + "\n";
  }
  return schedule::parse_csv(text);
}

void set_model(Setup& setup, const std::shared_ptr<model::Model>& model, const std::map<std::string, py::array>& weights) {
  setup.overrides.model = *model;
  setup.overrides.weights = weights.empty() ? nullptr : to_source(weights);
}

void set_schedule(Setup& setup, py::object callable) {
  setup.overrides.schedule = [callback = shared(std::move(callable))](const schedule::Pipeline& pipeline) {
    const py::gil_scoped_acquire acquire;
    return to_grid((*callback)(pipeline.devices, pipeline.chunks, pipeline.micro_batches));
  };
}

void set_costs(Setup& setup, py::object callable, const std::string& origin) {
  setup.overrides.duration = [callback = shared(std::move(callable))](const plan::Plan& plan, TaskId task) {
    const py::gil_scoped_acquire acquire;
    const py::object given = (*callback)(py::cast(TaskView(plan, task)));
    const auto seconds = given.cast<double>();
    if (!(seconds >= 0 && seconds < 1e9)) {
      throw usage_error("the cost model gives {} s for {}: give seconds, 0 or more", seconds, plan.describe(task));
    }
    return Nanoseconds(std::llround(seconds * 1e9));
  };
  setup.overrides.duration_origin = origin;
}

void set_data(Setup& setup, const py::array& inputs, const std::optional<py::array>& targets) {
  std::vector<data::Array> wanted;
  if (targets) {
    wanted.push_back(to_tensor("the array of targets", *targets));
  }
  setup.overrides.data = data::Parts{.train = data::arrays_source(to_tensor("the array of inputs", inputs), std::move(wanted)),
                                     .test = nullptr};
}

py::list fields() {
  py::list list;
  for (const job::JobField& field : training::job_fields()) {
    list.append(py::make_tuple(field.name, field.text(job::JobSpec{}), field.help));
  }
  return list;
}

}  // namespace

Setup Setup::without_data() const {
  Setup other = *this;
  other.overrides.data.reset();
  other.overrides.weights.reset();
  other.spec.data = job::JobSpec{}.data;
  return other;
}

void bind_setup(py::module_& module) {
  py::class_<TaskView>(module, "Task", "A task of a plan, as a cost model sees it.")
      .def_property_readonly("name", &TaskView::name, "The kind of work: linear, all_reduce, sgd, ...")
      .def_property_readonly("device", &TaskView::device, "The number of its device.")
      .def_property_readonly("phase", &TaskView::phase, "forward, backward or update.")
      .def_property_readonly("block", &TaskView::block, "The number of its block; -1 if it belongs to none.")
      .def_property_readonly("micro_batch", &TaskView::micro_batch, "The number of its micro-batch; -1 if it belongs to none.")
      .def_property_readonly("flops", &TaskView::flops, "The floating-point operations that it computes.")
      .def_property_readonly("read_bytes", &TaskView::read_bytes, "The bytes that it reads.")
      .def_property_readonly("written_bytes", &TaskView::written_bytes, "The bytes that it writes.")
      .def_property_readonly("is_product", &TaskView::is_product, "Whether it multiplies matrices.")
      .def("__repr__", &TaskView::describe);
  py::class_<Setup>(module, "Setup", "A job: settings by their names, and what no setting names.")
      .def(py::init<>())
      .def(py::init<const Setup&>(), py::arg("other"), "A copy.")
      .def(
          "set",
          [](Setup& setup, const std::string& name, const job::FieldValue& value) { job::set_field(setup.spec, name, value); },
          py::arg("name"), py::arg("value"), "Sets one setting, by the name of its flag.")
      .def(
          "set_list",
          [](Setup& setup, const std::string& name, const std::vector<std::int64_t>& values) {
            job::set_list_field(setup.spec, name, values);
          },
          py::arg("name"), py::arg("values"), "Sets a setting that is a list of whole numbers.")
      .def(
          "words",
          [](const Setup& setup) {
            py::dict words;
            for (const job::JobField& field : training::job_fields()) {
              const bool own = field.name == "strategy" && setup.spec.strategy && !setup.spec.strategy->is_listed();
              words[py::str(field.name)] = own ? std::string() : field.text(setup.spec);
            }
            return words;
          },
          "All settings as the command line takes them, by the names of their flags; a strategy of your own is empty.")
      .def(
          "values",
          [](const Setup& setup) {
            py::dict values;
            for (const job::JobField& field : training::job_fields()) {
              values[py::str(field.name)] = field.value(setup.spec);
            }
            return values;
          },
          "All settings, numbers as numbers, by the names of their flags.")
      .def(
          "model_name",
          [](const Setup& setup) { return setup.overrides.model ? setup.overrides.model->name() : setup.spec.model.text(); },
          "What its model is called.")
      .def("set_model", &set_model, py::arg("model").none(false), py::arg("weights"),
           "A model of the user's own, and its weights by name.")
      .def("set_schedule", &set_schedule, py::arg("callable"), "A schedule: callable(devices, chunks, micro_batches) gives rows.")
      .def("set_costs", &set_costs, py::arg("callable"), py::arg("origin"), "A cost model: callable(task) gives seconds.")
      .def("set_data", &set_data, py::arg("inputs"), py::arg("targets"), "Arrays to train on; samples are along their first axis.")
      .def("without_data", &Setup::without_data, "A copy that reads no data, as simulations need it.");
  module.def("fields", &fields, "(name, default, help) of every setting of a job.");
  module.def(
      "strategy_names",
      [] {
        std::vector<std::pair<std::string, std::string>> list;
        for (const strategy::Strategy& strategy : strategy::strategies()) {
          list.emplace_back(strategy.name(), strategy.summary());
        }
        return list;
      },
      "(name, summary) of every strategy.");
  module.def(
      "cluster_names",
      [] {
        std::vector<std::string> list;
        for (const cluster::Blueprint& blueprint : cluster::catalogue()) {
          list.push_back(blueprint.name);
        }
        return list;
      },
      "The machines that can be simulated by name.");
}

}  // namespace baton::python
